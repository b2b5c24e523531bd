package control

import (
	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/histogram"
)

// The types here are the "result" objects of the protocol, field for field.

type helloResult struct {
	Version            string          `json:"version"`
	Realtime           bool            `json:"realtime"`
	RealtimeReason     string          `json:"realtime_reason"`
	MemoryLocked       bool            `json:"memory_locked"`
	MemoryLockedReason string          `json:"memory_locked_reason"`
	KeptAwake          bool            `json:"kept_awake"`
	KeptAwakeReason    string          `json:"kept_awake_reason"`
	Stamps             stamps          `json:"stamps"`
	StampsReason       string          `json:"stamps_reason"`
	PID                int             `json:"pid"`
	Core               *int            `json:"core"`
	Latencies          latenciesResult `json:"latencies"`
	SelfTest           selfTestResult  `json:"self_test"`
}

// stamps is who tells when a frame came to an interface.
type stamps string

const (
	kernel stamps = "kernel"
	read   stamps = "read" // a frame counts as come when it was read
)

// stampsOf: reason is why the kernel does not stamp frames, empty where it does.
func stampsOf(reason string) stamps {
	if reason != "" {
		return read
	}
	return kernel
}

type latenciesResult struct {
	TimerNS int64 `json:"timer_ns"`
}

type selfTestResult struct {
	Passed       bool   `json:"passed"`
	Reason       string `json:"reason"`
	Echoes       int    `json:"echoes"`
	ConfiguredNS int64  `json:"configured_ns"`
	MinNS        int64  `json:"min_ns"`
	MedianNS     int64  `json:"median_ns"`
	MaxNS        int64  `json:"max_ns"`
}

type portResult struct {
	IfName     string `json:"ifname"`
	MAC        string `json:"mac"`
	MTU        int    `json:"mtu"`
	TxQueueLen int    `json:"tx_queue_len"`
}

type linkResult struct {
	Up      bool            `json:"up"`
	AdminUp bool            `json:"admin_up"`
	Stamps  stamps          `json:"stamps"`
	AToB    directionResult `json:"a_to_b"`
	BToA    directionResult `json:"b_to_a"`
}

type directionResult struct {
	DelayNS             int64             `json:"delay_ns"`
	RateBPS             *int64            `json:"rate_bps"`
	OverheadBytes       int               `json:"overhead_bytes"`
	QueueFrames         *int              `json:"queue_frames"`
	QueueBytes          *int64            `json:"queue_bytes"`
	Jitter              *jitter           `json:"jitter"`
	Loss                *loss             `json:"loss"`
	Seed                int64             `json:"seed"`
	Offered             uint64            `json:"offered"`
	Unmatched           uint64            `json:"unmatched"`
	Frames              uint64            `json:"frames"`
	Bytes               uint64            `json:"bytes"`
	InFlight            int               `json:"in_flight"`
	QueueHighWater      int               `json:"queue_high_water"`
	QueueHighWaterBytes int64             `json:"queue_high_water_bytes"`
	Drops               map[string]uint64 `json:"drops"`
	WireDelay           wireDelayResult   `json:"wire_delay"`
	Lateness            latenessResult    `json:"lateness"`
}

type wireDelayResult struct {
	Count       uint64 `json:"count"`
	MeanNS      int64  `json:"mean_ns"`
	DeviationNS int64  `json:"deviation_ns"`
}

func newLinkResult(s fabric.LinkState, stamps stamps, buckets bool) linkResult {
	return linkResult{
		Up: s.Up, AdminUp: s.AdminUp, Stamps: stamps,
		AToB: newDirectionResult(s.AToB, buckets), BToA: newDirectionResult(s.BToA, buckets),
	}
}

func newDirectionResult(s fabric.DirectionState, buckets bool) directionResult {
	return directionResult{
		DelayNS:             s.Params.DelayNS,
		RateBPS:             unlessZero(s.Params.RateBPS),
		OverheadBytes:       s.Params.Overhead,
		QueueFrames:         unlessZero(s.Params.QueueFrames),
		QueueBytes:          unlessZero(s.Params.QueueBytes),
		Jitter:              newJitter(s.Params.Jitter),
		Loss:                newLoss(s.Params.Loss),
		Seed:                s.Params.Seed,
		Offered:             s.Offered,
		Unmatched:           s.Unmatched,
		Frames:              s.Frames,
		Bytes:               s.Bytes,
		InFlight:            s.InFlight,
		QueueHighWater:      s.QueueHighWater,
		QueueHighWaterBytes: s.QueueHighWaterBytes,
		Drops:               s.Drops,
		WireDelay:           wireDelayResult{s.WireDelay.Count, s.WireDelay.MeanNS(), s.WireDelay.DeviationNS()},
		Lateness:            newLatenessResult(&s.Lateness, buckets),
	}
}

// unlessZero makes a null of a parameter that is not limited.
func unlessZero[T int | int64](value T) *T {
	if value == 0 {
		return nil
	}
	return &value
}

type statsResult struct {
	Links     map[string]linkResult        `json:"links"`
	Ports     map[string]portStatsResult   `json:"ports"`
	Switches  map[string]switchStatsResult `json:"switches"`
	Partition map[string]int               `json:"partition"`
	Stamps    stamps                       `json:"stamps"`
	Unmatched uint64                       `json:"unmatched"`
	Lateness  latenessResult               `json:"lateness"`
	Latencies latenciesResult              `json:"latencies"`
	Loop      loopResult                   `json:"loop"`
	Buffers   buffersResult                `json:"buffers"`
}

type portStatsResult struct {
	Alive          bool           `json:"alive"`
	PID            int            `json:"pid"`
	IfName         string         `json:"ifname"`
	MAC            string         `json:"mac"`
	MTU            int            `json:"mtu"`
	ReceivedFrames uint64         `json:"received_frames"`
	ReceivedBytes  uint64         `json:"received_bytes"`
	SentFrames     uint64         `json:"sent_frames"`
	SentBytes      uint64         `json:"sent_bytes"`
	Drops          portDrops      `json:"drops"`
	TapDrops       *tapDrops      `json:"tap_drops"`
	TapDropsError  string         `json:"tap_drops_error"`
	Lateness       latenessResult `json:"lateness"`
}

type portDrops struct {
	Malformed uint64 `json:"malformed"`
	NoLink    uint64 `json:"no_link"`
}

type tapDrops struct {
	Queue   uint64 `json:"queue"`
	Receive uint64 `json:"receive"`
}

type switchStatsResult struct {
	Forwarded     uint64 `json:"forwarded"`
	Flooded       uint64 `json:"flooded"`
	Filtered      uint64 `json:"filtered"`
	InvalidSource uint64 `json:"invalid_source"`
	NotLearned    uint64 `json:"not_learned"`
}

type durationsResult struct {
	Count   uint64     `json:"count"`
	P50NS   int64      `json:"p50_ns"`
	P99NS   int64      `json:"p99_ns"`
	MaxNS   int64      `json:"max_ns"`
	Buckets [][2]int64 `json:"buckets,omitempty"` // each [upper edge in ns, count]; only if requested
}

type latenessResult struct {
	durationsResult
	EarlyMaxNS int64  `json:"early_max_ns"`
	TooEarly   uint64 `json:"too_early"`
}

type loopResult struct {
	Turns  uint64 `json:"turns"`
	Yields uint64 `json:"yields"`
}

type buffersResult struct {
	Frames      int   `json:"frames"`
	MappedBytes int64 `json:"mapped_bytes"`
	LimitBytes  int64 `json:"limit_bytes"`
}

func newStatsResult(s *emulator.Stats, stamps stamps, buckets bool) statsResult {
	result := statsResult{
		Links:     make(map[string]linkResult, len(s.Fabric.Links)),
		Ports:     make(map[string]portStatsResult, len(s.Ports)),
		Switches:  make(map[string]switchStatsResult, len(s.Fabric.Switches)),
		Partition: s.Fabric.Partition,
		Stamps:    stamps,
		Unmatched: s.Unmatched,
		Lateness:  newLatenessResult(&s.Lateness, buckets),
		Latencies: latenciesResult{s.TimerNS},
		Loop:      loopResult(s.Loop),
		Buffers:   buffersResult(s.Buffers),
	}
	for name, link := range s.Fabric.Links {
		result.Links[name] = newLinkResult(link, stamps, buckets)
	}
	for name, sw := range s.Fabric.Switches {
		result.Switches[name] = switchStatsResult(sw)
	}
	for name, p := range s.Ports {
		result.Ports[name] = newPortStatsResult(p, s.Fabric.Ports[name])
	}
	return result
}

func newPortStatsResult(p emulator.PortStats, counted fabric.PortState) portStatsResult {
	return portStatsResult{
		Alive:          counted.Alive,
		PID:            p.PID,
		IfName:         p.IfName,
		MAC:            p.MAC.String(),
		MTU:            p.MTU,
		ReceivedFrames: counted.ReceivedFrames,
		ReceivedBytes:  counted.ReceivedBytes,
		SentFrames:     counted.SentFrames,
		SentBytes:      counted.SentBytes,
		Drops:          portDrops(counted.Dropped),
		TapDrops:       newTapDrops(p.Kernel),
		TapDropsError:  p.KernelError,
		Lateness:       newLatenessResult(&counted.Lateness, false),
	}
}

func newTapDrops(d *device.Drops) *tapDrops {
	if d == nil {
		return nil
	}
	drops := tapDrops(*d)
	return &drops
}

func newLatenessResult(l *fabric.Lateness, buckets bool) latenessResult {
	return latenessResult{newDurationsResult(&l.Histogram, buckets), l.EarlyMaxNS, l.TooEarly}
}

func newDurationsResult(h *histogram.Histogram, buckets bool) durationsResult {
	result := durationsResult{Count: h.Count(), P50NS: h.PercentileNS(50), P99NS: h.PercentileNS(99), MaxNS: h.MaxNS()}
	if buckets {
		for upToNS, count := range h.Buckets() {
			result.Buckets = append(result.Buckets, [2]int64{upToNS, int64(count)})
		}
	}
	return result
}
