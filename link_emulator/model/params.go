// Package model is the shaping model of one direction of a link: a queue, a serializer with a rate, a wire that may
// lose frames, and a delay line with optional jitter.
//
// It does no I/O and has no clock: the time of every event is an argument and randomness comes from a seed, so it is
// tested in simulated time, to the nanosecond. Nothing in it allocates once its ring has grown to the load.
package model

import (
	"fmt"
	"math/bits"
)

// Ranges of the parameters. Within them no sum of times overflows int64: the longest backlog is MaxQueueFrames frames
// of 64 KiB at MinRateBPS, 5.2e17 ns.
const (
	MaxDelayNS     = int64(3600e9) // an hour
	MinRateBPS     = int64(1000)
	MaxRateBPS     = int64(1e12)
	MaxQueueFrames = 1_000_000
	MaxQueueBytes  = int64(10e9)
	MaxOverhead    = 1000             // bytes
	MaxSeed        = int64(1)<<53 - 1 // every JSON reader can represent it exactly

	MaxCorrelationNS = usualCorrelation * MaxDelayNS
)

// A default queue holds usualQueueNS at the rate, within these bounds, unless the bandwidth-delay product is larger.
const (
	usualQueueNS        = int64(250e6)
	minUsualQueueFrames = 200
	maxUsualQueueFrames = 2000
)

// maxDefaultQueueFrames keeps the default within what the frame memory can hold in full-size frames.
const maxDefaultQueueFrames = 100_000

// fullFrameBytes is an Ethernet frame with 1500 bytes of payload as a TAP shows it: no FCS, no preamble.
const fullFrameBytes = 1514

// normalTail is where a normal distribution is truncated, in standard deviations: 6 draws in 100,000 are repeated, and
// the standard deviation shrinks by 0.1 %. netem's table ends there, too.
const normalTail = 4

// The correlation time of jitter that keeps order, in units of the jitter: the least, and the usual one.
//
// Frames keep their order where the delay falls by less than a second per second. The path has the slope pi/2 standard
// deviations per correlation time (see chance.path), and at most as much after quantile, so with n times the jitter the
// delay's slope has the standard deviation pi/(2 n). With 8 it is below -1 for 2 in 10 million of the time (5.1
// standard deviations), with 10 for 1 in 10 billion (6.4); of uniform jitter less often, since it has only 0.8 of that
// slope.
const (
	leastCorrelation = 8
	usualCorrelation = 10
)

// Params are the configured parameters of one direction of a link. The zero value is a perfect cable.
type Params struct {
	DelayNS  int64 // one way, 0..MaxDelayNS
	RateBPS  int64 // bits per second of Ethernet frames (no FCS, no preamble) and their overhead; 0: unlimited
	Overhead int   // bytes that each frame takes at the rate besides its own, 0..MaxOverhead; 24: FCS, preamble, gap
	// frames that may wait for the serializer; 0: DefaultQueueFrames, or no such limit if QueueBytes is given
	QueueFrames int
	QueueBytes  int64 // bytes that may wait for the serializer; 0: no such limit
	Jitter      Jitter
	Loss        Loss
	Seed        int64 // of the random draws of this direction, 0..MaxSeed
}

// Distribution is how the delay of a frame is drawn around DelayNS.
type Distribution uint8

const (
	NoJitter Distribution = iota
	Uniform               // equally likely anywhere from DelayNS-NS to DelayNS+NS
	Normal                // mean DelayNS, standard deviation NS, truncated at 4 standard deviations
)

// Jitter is the variation of the delay. With Reorder every frame draws a delay of its own and may overtake others. Else
// the delay is a path in time that changes so slowly that frames keep their order; CorrelationNS says how slowly. So
// the distribution of the delay does not depend on how closely frames follow each other.
type Jitter struct {
	Distribution  Distribution
	NS            int64
	Reorder       bool
	CorrelationNS int64 // after which the correlation is 1/pi, about a third; 0: 10 NS; none with Reorder
}

// LossModel is how losses are drawn.
type LossModel uint8

const (
	NoLoss         LossModel = iota
	Independent              // each frame is lost with probability Ratio
	GilbertElliott           // two states, each with its own loss probability; see Loss
)

// Loss on the wire: a lost frame has waited in the queue and used the serializer like any other.
//
// Gilbert-Elliott is a Markov chain with a good and a bad state (Elliott, Bell System Technical Journal 42, 1963). A
// frame is lost with the loss probability of the current state; then the state changes with its transition probability.
// It starts in the good state. In the long run GoodToBad/(GoodToBad+BadToGood) of the frames see the bad state.
type Loss struct {
	Model                                   LossModel
	Ratio                                   float64 // of Independent
	GoodToBad, BadToGood, GoodLoss, BadLoss float64 // of GilbertElliott
}

// DefaultQueueFrames is the queue limit where none is configured, in full-size frames: 250 ms at the rate, from 200 to
// 2000; the bandwidth-delay product where that is larger; at most 100,000. A direction knows only its own delay, so the
// round trip is taken as four times that: there and back over two such links, host - switch - host. A loss-based TCP
// flow needs at most one bandwidth-delay product of queue to keep a link busy (the rule of RFC 3439 section 2.2), so
// the default does not limit a single flow. For the other bounds see docs/adr/0011.
func DefaultQueueFrames(delayNS, rateBPS int64, overhead int) int {
	if rateBPS == 0 {
		return maxUsualQueueFrames // no effect: nothing waits
	}
	usual := min(max(productFrames(usualQueueNS, rateBPS, overhead), minUsualQueueFrames), maxUsualQueueFrames)
	return max(productFrames(4*delayNS, rateBPS, overhead), usual)
}

// productFrames is how many full frames are sent in a time at a rate, rounded up, at most maxDefaultQueueFrames.
func productFrames(ns, rateBPS int64, overhead int) int {
	frameNSBits := uint64(fullFrameBytes+overhead) * 8e9
	hi, lo := bits.Mul64(uint64(ns), uint64(rateBPS))
	if hi >= frameNSBits {
		return maxDefaultQueueFrames
	}
	frames, more := bits.Div64(hi, lo, frameNSBits)
	if more > 0 {
		frames++
	}
	return int(min(frames, maxDefaultQueueFrames))
}

// Resolved is p with the default queue limit and correlation time filled in where none is configured.
func (p Params) Resolved() Params {
	if j := &p.Jitter; j.Distribution != NoJitter && !j.Reorder && j.CorrelationNS == 0 {
		j.CorrelationNS = usualCorrelation * j.NS
	}
	if p.QueueFrames == 0 && p.QueueBytes == 0 {
		p.QueueFrames = DefaultQueueFrames(p.DelayNS, p.RateBPS, p.Overhead)
	}
	return p
}

// Check refuses what the model cannot reproduce faithfully. The error begins with the path of the field in the control
// protocol, such as "jitter.ns: ".
func (p Params) Check() error {
	switch {
	case p.DelayNS < 0 || p.DelayNS > MaxDelayNS:
		return fmt.Errorf("delay_ns: got %d, allowed: 0 to %d", p.DelayNS, MaxDelayNS)
	case p.RateBPS != 0 && (p.RateBPS < MinRateBPS || p.RateBPS > MaxRateBPS):
		return fmt.Errorf("rate_bps: got %d, allowed: %d to %d, or null for unlimited", p.RateBPS, MinRateBPS, MaxRateBPS)
	case p.Overhead < 0 || p.Overhead > MaxOverhead:
		return fmt.Errorf("overhead_bytes: got %d, allowed: 0 to %d", p.Overhead, MaxOverhead)
	case p.QueueFrames < 0 || p.QueueFrames > MaxQueueFrames:
		return fmt.Errorf("queue_frames: got %d, allowed: 1 to %d, or null for the default", p.QueueFrames, MaxQueueFrames)
	case p.QueueBytes < 0 || p.QueueBytes > MaxQueueBytes:
		return fmt.Errorf("queue_bytes: got %d, allowed: 1 to %d, or null for no such limit", p.QueueBytes, MaxQueueBytes)
	case p.Seed < 0 || p.Seed > MaxSeed:
		return fmt.Errorf("seed: got %d, allowed: 0 to %d, or null for the default", p.Seed, MaxSeed)
	}
	if err := p.Jitter.check(p.DelayNS); err != nil {
		return fmt.Errorf("jitter.%w", err)
	}
	if err := p.Loss.check(); err != nil {
		return fmt.Errorf("loss.%w", err)
	}
	return nil
}

// ReachNS is the largest deviation from the delay.
func (j Jitter) ReachNS() int64 {
	switch j.Distribution {
	case Uniform:
		return j.NS
	case Normal:
		return normalTail * j.NS
	}
	return 0
}

// check: a delay cannot be negative, and truncating at zero would change the distribution.
func (j Jitter) check(delayNS int64) error {
	reach, name := int64(1), "uniform"
	switch j.Distribution {
	case NoJitter:
		return nil
	case Normal:
		reach, name = normalTail, "normal"
	}
	if j.NS < 1 || j.NS > MaxDelayNS || reach*j.NS > delayNS {
		return fmt.Errorf("ns: got %d, allowed: 1 to %d, which is 1/%d of delay_ns (%s jitter; no delay can be negative)",
			j.NS, delayNS/reach, reach, name)
	}
	switch least := leastCorrelation * j.NS; {
	case j.CorrelationNS == 0:
	case j.Reorder:
		return fmt.Errorf("correlation_ns: got %d, allowed: null with reorder: every frame draws its own delay",
			j.CorrelationNS)
	case j.CorrelationNS < least || j.CorrelationNS > MaxCorrelationNS:
		return fmt.Errorf("correlation_ns: got %d, allowed: %d (%d times ns; "+
			"a shorter one cannot keep order) to %d, or null for %d times ns", j.CorrelationNS, least, leastCorrelation,
			MaxCorrelationNS, usualCorrelation)
	}
	return nil
}

func (l Loss) check() error {
	for _, probability := range [...]struct {
		field string
		value float64
	}{
		{"ratio", l.Ratio}, {"good_to_bad_ratio", l.GoodToBad}, {"bad_to_good_ratio", l.BadToGood},
		{"good_loss_ratio", l.GoodLoss}, {"bad_loss_ratio", l.BadLoss},
	} {
		if !(probability.value >= 0 && probability.value <= 1) {
			return fmt.Errorf("%s: got %v, allowed: 0 to 1", probability.field, probability.value)
		}
	}
	return nil
}
