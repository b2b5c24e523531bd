// Package probe sends streams of frames between hosts, from inside their network namespaces, and records when each
// frame was sent and how long it took, one way: all namespaces of a machine share its clock.
//
// A frame's delay is the kernel's receive stamp less the time right before it was sent. The kernel writes frames and
// stamps into a ring that is read after the last stream, so receiving takes no CPU time of this process while it
// measures, and a late wake-up of it makes no frame late.
package probe

import (
	"cmp"
	"fmt"

	"containernet-env/link_emulator/input"
)

// Ranges of a request; times may be 100 times as long as in real time, the largest dilation.
const (
	maxStreams    = 200_000
	maxFrames     = 4_000_000 // of all streams together: their times take 64 MB
	minFrame      = 60        // the smallest Ethernet frame without its checksum
	maxFrame      = 65_535
	maxIntervalNS = 1_000_000_000_000
	maxDurationMS = 60_000_000
	maxWarmupMS   = 60_000_000

	minWarmupIntervalUS   = 1_000
	usualWarmupIntervalUS = 5_000
	maxWarmupIntervalUS   = 1_000_000_000
)

// Stream is a number of frames from one host to another. Times count from the start of the measurement.
type Stream struct {
	From       int   `json:"from"` // index of the host
	To         int   `json:"to"`
	StartUS    int64 `json:"start_us"`    // of the first frame
	UntilUS    int64 `json:"until_us"`    // after which none is sent any more
	IntervalNS int64 `json:"interval_ns"` // between two frames; 0: as fast as it goes
	Count      int   `json:"count"`
	FrameBytes int   `json:"frame_bytes"` // of the Ethernet frame, without its checksum
	CountOnly  bool  `json:"count_only"`  // the times of its frames are not wanted
}

// Request configures a measurement.
type Request struct {
	Hosts            []input.Host `json:"hosts"`
	Streams          []Stream     `json:"streams"`
	WarmupMS         int64        `json:"warmup_ms"`          // the most that is waited for a frame to reach every host
	WarmupIntervalUS int64        `json:"warmup_interval_us"` // between two frames of a host meanwhile; 0: the default
	DurationMS       int64        `json:"duration_ms"`        // after which nothing is sent or received any more
	BypassQdisc      bool         `json:"bypass_qdisc"`       // frames pass by the queueing disciplines of their host
}

// Parse reads a request as JSON; see the README. Unknown fields and values out of range are errors.
func Parse(data []byte) (r Request, err error) {
	if err = input.Decode(data, &r); err == nil {
		err = r.Check()
	}
	return r, err
}

// Check refuses values out of range, and fills in the default.
func (r *Request) Check() error {
	if r.WarmupIntervalUS == 0 {
		r.WarmupIntervalUS = usualWarmupIntervalUS
	}
	if err := cmp.Or(
		input.Hosts(r.Hosts),
		input.Range("streams", len(r.Streams), 0, maxStreams),
		input.Range("warmup_ms", r.WarmupMS, 0, maxWarmupMS),
		input.Range("warmup_interval_us", r.WarmupIntervalUS, minWarmupIntervalUS, maxWarmupIntervalUS),
		input.Range("duration_ms", r.DurationMS, 1, maxDurationMS),
	); err != nil {
		return err
	}
	frames, last := 0, len(r.Hosts)-1
	for i, s := range r.Streams {
		if err := cmp.Or(
			input.Range("from", s.From, 0, last),
			input.Range("to", s.To, 0, last),
			input.Range("start_us", s.StartUS, 0, r.DurationMS*1000),
			input.Range("until_us", s.UntilUS, s.StartUS, r.DurationMS*1000),
			input.Range("interval_ns", s.IntervalNS, 0, maxIntervalNS),
			input.Range("count", s.Count, 1, maxFrames),
			input.Range("frame_bytes", s.FrameBytes, minFrame, maxFrame),
		); err != nil {
			return fmt.Errorf("streams[%d].%w", i, err)
		}
		if s.From == s.To {
			return fmt.Errorf("streams[%d].to: got %d, which sends", i, s.To)
		}
		frames += s.Count
	}
	return input.Range("frames of all streams", frames, 0, maxFrames)
}
