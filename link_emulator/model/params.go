// Package model is the shaping model of one direction of a link: a queue, a serializer of a given rate and a delay line.
//
// It does no I/O and knows no clock: the time of every event is an argument, so it is tested in simulated
// time, to the nanosecond. Nothing in it allocates once its ring has grown to the load.
package model

import "containernet-env/link_emulator/refusal"

// Ranges of the parameters. Within them no sum of times leaves int64: the longest backlog is MaxQueueFrames
// frames of 64 KiB at MinRateBPS, 5.2e17 ns.
const (
	MaxDelayNS     = int64(3600e9) // an hour
	MinRateBPS     = int64(1000)
	MaxRateBPS     = int64(1e12)
	MaxQueueFrames = 1_000_000
)

// MinDefaultQueueFrames is the smallest default queue limit: what Linux gives an Ethernet interface (txqueuelen) and netem (limit).
const MinDefaultQueueFrames = 1000

// maxDefaultQueueFrames keeps the default within what the frame memory can hold of full-size frames.
const maxDefaultQueueFrames = 100_000

// fullFrameBits is an Ethernet frame with 1500 bytes of payload as a TAP shows it: no FCS, no preamble.
const fullFrameBits = 1514 * 8

// Params are what one direction of a link is asked to be.
type Params struct {
	DelayNS     int64 // one way, 0..MaxDelayNS
	RateBPS     int64 // bits per second of Ethernet frames (no FCS, no preamble); 0: unlimited
	QueueFrames int   // frames that may wait for the serializer; 0: DefaultQueueFrames
}

// DefaultQueueFrames is the queue limit where none is asked for: the bandwidth-delay product in full-size frames, at
// least 1000 and at most 100,000. A direction knows only its own delay, so the round trip is taken as four times
// that: there and back over two such links, host - switch - host. A loss-based TCP needs at most one bandwidth-delay product
// of queue to keep a link busy (RFC 3439 section 2.2 names the rule), so this never is what limits one flow.
func DefaultQueueFrames(delayNS, rateBPS int64) int {
	if rateBPS == 0 {
		return MinDefaultQueueFrames
	}
	frames := 4 * float64(delayNS) / 1e9 * float64(rateBPS) / fullFrameBits
	return int(min(max(frames+1, MinDefaultQueueFrames), maxDefaultQueueFrames))
}

// Resolved is p with the default queue limit filled in.
func (p Params) Resolved() Params {
	if p.QueueFrames == 0 {
		p.QueueFrames = DefaultQueueFrames(p.DelayNS, p.RateBPS)
	}
	return p
}

// Check refuses what the model cannot do faithfully; the refusal names the field as the control protocol does.
func (p Params) Check() error {
	if p.DelayNS < 0 || p.DelayNS > MaxDelayNS {
		return refusal.New("delay_ns", "got %d, allowed: 0 to %d", p.DelayNS, MaxDelayNS)
	}
	if p.RateBPS != 0 && (p.RateBPS < MinRateBPS || p.RateBPS > MaxRateBPS) {
		return refusal.New("rate_bps", "got %d, allowed: %d to %d, or null for unlimited", p.RateBPS, MinRateBPS, MaxRateBPS)
	}
	if p.QueueFrames < 0 || p.QueueFrames > MaxQueueFrames {
		return refusal.New("queue_frames", "got %d, allowed: 1 to %d, or null for the default", p.QueueFrames, MaxQueueFrames)
	}
	return nil
}
