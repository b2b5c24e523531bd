// Package probe sends streams of frames between hosts, from inside their network namespaces, and says when each frame
// was sent and how long it took, one way: all namespaces of a machine share its clock.
//
// A frame's delay is the kernel's receive stamp less the time right before it was sent. The kernel writes frames and
// stamps into a ring that is read after the last stream, so receiving takes no CPU time of this process while it
// measures, and a late wake-up of it makes no frame late.
package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Ranges of a request.
const (
	maxHosts     = 256
	maxStreams   = 200_000
	maxFrames    = 4_000_000 // of all streams together: their times take 64 MB
	minFrame     = 60        // the smallest Ethernet frame without its checksum
	maxFrame     = 65_535
	maxInterval  = 10 * time.Second
	maxDuration  = 10 * time.Minute
	maxWarmup    = 10 * time.Minute
	maxNameBytes = 128
	maxPID       = 1 << 22

	minWarmupInterval, usualWarmupInterval = time.Millisecond, 5 * time.Millisecond
)

// Host is a sender and receiver of frames.
type Host struct {
	Name string     `json:"name"`
	PID  int        `json:"pid"` // a process in the host's network namespace
	IP   netip.Addr `json:"ip"`  // of the interface to use there
}

// Stream is a number of frames from one host to another.
type Stream struct {
	From       int           `json:"from"` // index of the host
	To         int           `json:"to"`
	Start      time.Duration `json:"-"` // of the first frame, from the start of the measurement
	Until      time.Duration `json:"-"` // after which none is sent any more
	Interval   time.Duration `json:"-"` // between two frames; 0: as fast as it goes
	Count      int           `json:"count"`
	FrameBytes int           `json:"frame_bytes"` // of the Ethernet frame, without its checksum
	CountOnly  bool          `json:"count_only"`  // the times of its frames are not wanted
}

// Request configures a measurement.
type Request struct {
	Hosts          []Host
	Streams        []Stream
	Warmup         time.Duration // the most that is waited for a frame to reach every host
	WarmupInterval time.Duration // between two frames of a host meanwhile
	Duration       time.Duration // after which nothing is sent or received any more
	BypassQdisc    bool          // frames pass by the queueing disciplines of their host
}

// Form is a request as JSON; see the README.
type Form struct {
	Hosts   []Host `json:"hosts"`
	Streams []struct {
		Stream
		StartUS    int64 `json:"start_us"`
		UntilUS    int64 `json:"until_us"`
		IntervalNS int64 `json:"interval_ns"`
	} `json:"streams"`
	WarmupMS         int64 `json:"warmup_ms"`
	WarmupIntervalUS int64 `json:"warmup_interval_us"`
	DurationMS       int64 `json:"duration_ms"`
	BypassQdisc      bool  `json:"bypass_qdisc"`
}

// Parse reads a request as JSON. Unknown fields and values out of range are errors.
func Parse(data []byte) (Request, error) {
	var given Form
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		return Request{}, err
	}
	return given.Request()
}

// Request is what a form asks for. Values out of range are errors.
func (given Form) Request() (Request, error) {
	if given.WarmupIntervalUS == 0 {
		given.WarmupIntervalUS = usualWarmupInterval.Microseconds()
	}
	r := Request{
		Hosts:          given.Hosts,
		Warmup:         time.Duration(given.WarmupMS) * time.Millisecond,
		WarmupInterval: time.Duration(given.WarmupIntervalUS) * time.Microsecond,
		Duration:       time.Duration(given.DurationMS) * time.Millisecond,
		BypassQdisc:    given.BypassQdisc,
	}
	if err := checkHosts(r.Hosts); err != nil {
		return Request{}, err
	}
	if err := check("streams", int64(len(given.Streams)), 0, maxStreams); err != nil {
		return Request{}, err
	}
	if err := check("warmup_ms", given.WarmupMS, 0, maxWarmup.Milliseconds()); err != nil {
		return Request{}, err
	}
	if err := check("warmup_interval_us", given.WarmupIntervalUS, minWarmupInterval.Microseconds(),
		maxInterval.Microseconds()); err != nil {
		return Request{}, err
	}
	if err := check("duration_ms", given.DurationMS, 1, maxDuration.Milliseconds()); err != nil {
		return Request{}, err
	}
	frames := int64(0)
	for i, stream := range given.Streams {
		last := int64(len(r.Hosts) - 1)
		for _, number := range [...]struct {
			field          string
			got, low, high int64
		}{
			{"from", int64(stream.From), 0, last},
			{"to", int64(stream.To), 0, last},
			{"start_us", stream.StartUS, 0, given.DurationMS * 1000},
			{"until_us", stream.UntilUS, stream.StartUS, given.DurationMS * 1000},
			{"interval_ns", stream.IntervalNS, 0, maxInterval.Nanoseconds()},
			{"count", int64(stream.Count), 1, maxFrames},
			{"frame_bytes", int64(stream.FrameBytes), minFrame, maxFrame},
		} {
			if err := check(fmt.Sprintf("streams[%d].%s", i, number.field), number.got, number.low, number.high); err != nil {
				return Request{}, err
			}
		}
		if stream.From == stream.To {
			return Request{}, fmt.Errorf("streams[%d].to: got %d, which sends", i, stream.To)
		}
		frames += int64(stream.Count)
		stream.Start = time.Duration(stream.StartUS) * time.Microsecond
		stream.Until = time.Duration(stream.UntilUS) * time.Microsecond
		stream.Interval = time.Duration(stream.IntervalNS)
		r.Streams = append(r.Streams, stream.Stream)
	}
	return r, check("frames of all streams", frames, 0, maxFrames)
}

func check(field string, got, low, high int64) error {
	if got < low || got > high {
		return fmt.Errorf("%s: got %d, allowed: %d to %d", field, got, low, high)
	}
	return nil
}

func checkHosts(hosts []Host) error {
	if err := check("hosts", int64(len(hosts)), 2, maxHosts); err != nil {
		return err
	}
	for i, host := range hosts {
		switch {
		case host.Name == "" || len(host.Name) > maxNameBytes:
			return fmt.Errorf("hosts[%d].name: got %.60q, allowed: 1 to %d bytes", i, host.Name, maxNameBytes)
		case host.PID < 1 || host.PID > maxPID:
			return fmt.Errorf("hosts[%d].pid: got %d, allowed: 1 to %d", i, host.PID, maxPID)
		case !host.IP.Is4():
			return fmt.Errorf("hosts[%d].ip: got %v, allowed: an IPv4 address", i, host.IP)
		}
		for j, other := range hosts[:i] {
			if other.Name == host.Name || other.IP == host.IP {
				return fmt.Errorf("hosts[%d]: hosts[%d] has the same name or address", i, j)
			}
		}
	}
	return nil
}
