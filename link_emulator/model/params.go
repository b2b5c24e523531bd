// Package model is the shaping model of one direction of a link: a queue with its discipline, a serializer with a rate,
// a wire that may lose, duplicate and damage frames, and a delay line with optional jitter.
//
// It does no I/O and has no clock: the time of every event is an argument and randomness comes from a seed, so it is
// tested in simulated time, to the nanosecond. Nothing in it allocates once its ring has grown to the load.
package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"

	"containernet-env/link_emulator/input"
)

// Ranges of the parameters. Within them no sum of times overflows int64: the longest backlog is MaxQueueFrames frames
// of 64 KiB at MinRateBPS, 5.2e17 ns.
const (
	MaxDelayNS     = 3_600_000_000_000 // an hour
	MinRateBPS     = 1000
	MaxRateBPS     = 1_000_000_000_000
	MaxQueueFrames = 1_000_000
	MaxQueueBytes  = 10_000_000_000
	MaxOverhead    = 1000      // bytes
	MaxSeed        = 1<<53 - 1 // every JSON reader can represent it exactly

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

// Params are the configured parameters of one direction of a link, with their names in the control protocol. The zero
// value is a perfect cable.
type Params struct {
	DelayNS int64 `json:"delay_ns"` // one way, 0..MaxDelayNS
	// bits per second of Ethernet frames (no FCS, no preamble) and their overhead; 0: unlimited
	RateBPS input.Limit `json:"rate_bps"`
	// bytes that each frame takes at the rate besides its own, 0..MaxOverhead; 24: FCS, preamble, gap
	Overhead int64 `json:"overhead_bytes"`
	// frames that may wait for the serializer; 0: DefaultQueueFrames, or no such limit if QueueBytes is given
	QueueFrames input.Limit `json:"queue_frames"`
	QueueBytes  input.Limit `json:"queue_bytes"` // bytes that may wait for the serializer; 0: no such limit
	Jitter      Jitter      `json:"jitter"`
	Loss        Loss        `json:"loss"`
	Duplication float64     `json:"duplication_ratio"` // of the frames that are not lost, those that arrive twice
	Corruption  float64     `json:"corruption_ratio"`  // likewise, those with one flipped bit: see Corrupt
	AQM         AQM         `json:"aqm"`
	Seed        int64       `json:"seed"` // of the random draws of this direction, 0..MaxSeed
}

// Distribution is how the delay of a frame is drawn around DelayNS.
type Distribution string

const (
	NoJitter Distribution = ""
	Uniform  Distribution = "uniform" // equally likely anywhere from DelayNS-NS to DelayNS+NS
	Normal   Distribution = "normal"  // mean DelayNS, standard deviation NS, truncated at 4 standard deviations
)

// Jitter is the variation of the delay. With Reorder every frame draws a delay of its own and may overtake others. Else
// the delay is a path in time that changes so slowly that frames keep their order; CorrelationNS says how slowly. So
// the distribution of the delay does not depend on how closely frames follow each other.
type Jitter struct {
	Distribution  Distribution `json:"distribution"`
	NS            int64        `json:"ns"`
	Reorder       bool         `json:"reorder"`
	CorrelationNS input.Limit  `json:"correlation_ns"` // correlation 1/pi, a third; 0: 10 NS; none with Reorder
}

// MarshalJSON implements json.Marshaler: null is no jitter.
func (j Jitter) MarshalJSON() ([]byte, error) {
	if j.Distribution == NoJitter {
		return []byte("null"), nil
	}
	type fields Jitter
	return json.Marshal(fields(j))
}

// UnmarshalJSON implements json.Unmarshaler. What it does not name has its default.
func (j *Jitter) UnmarshalJSON(data []byte) error {
	type fields Jitter
	*j = Jitter{}
	err := input.Decode(data, (*fields)(j))
	if err == nil && j.Distribution != Uniform && j.Distribution != Normal && string(data) != "null" {
		err = fmt.Errorf("distribution: got %q, allowed: %s, %s", j.Distribution, Uniform, Normal)
	}
	if err != nil {
		return fmt.Errorf("jitter.%w", err)
	}
	return nil
}

// LossModel is how losses are drawn.
type LossModel string

const (
	NoLoss         LossModel = ""
	Independent    LossModel = "independent"     // each frame is lost with probability Ratio
	GilbertElliott LossModel = "gilbert_elliott" // two states, each with its own loss probability; see Loss
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

// ratio is a probability, by its name in the control protocol.
type ratio struct {
	name  string
	value *float64
}

// ratios are those of the model.
func (l *Loss) ratios() []ratio {
	switch l.Model {
	case Independent:
		return []ratio{{"ratio", &l.Ratio}}
	case GilbertElliott:
		return []ratio{{"good_to_bad_ratio", &l.GoodToBad}, {"bad_to_good_ratio", &l.BadToGood},
			{"good_loss_ratio", &l.GoodLoss}, {"bad_loss_ratio", &l.BadLoss}}
	}
	return nil
}

// MarshalJSON implements json.Marshaler: null is no loss.
func (l Loss) MarshalJSON() ([]byte, error) {
	if l.Model == NoLoss {
		return []byte("null"), nil
	}
	fields := map[string]any{"model": l.Model}
	for _, r := range l.ratios() {
		fields[r.name] = r.value
	}
	return json.Marshal(fields)
}

// UnmarshalJSON implements json.Unmarshaler. All ratios of the model must be given, and no others.
func (l *Loss) UnmarshalJSON(data []byte) error {
	*l = Loss{}
	if string(data) == "null" {
		return nil
	}
	if err := l.read(data); err != nil {
		return fmt.Errorf("loss.%w", err)
	}
	return nil
}

func (l *Loss) read(data []byte) error {
	var given map[string]any
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	model, _ := given["model"].(string)
	if l.Model = LossModel(model); l.ratios() == nil {
		return fmt.Errorf("model: got %q, allowed: %s, %s", model, Independent, GilbertElliott)
	}
	delete(given, "model")
	var err error
	for _, r := range l.ratios() {
		number, isNumber := given[r.name].(float64)
		if *r.value = number; !isNumber {
			err = cmp.Or(err, fmt.Errorf("%s: the field is missing, or is no number", r.name))
		}
		delete(given, r.name)
	}
	for name := range given {
		return fmt.Errorf("%s: the model %s has no such field", name, model)
	}
	return err
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
		j.CorrelationNS = input.Limit(usualCorrelation * j.NS)
	}
	if p.QueueFrames == 0 && p.QueueBytes == 0 {
		p.QueueFrames = input.Limit(DefaultQueueFrames(p.DelayNS, int64(p.RateBPS), int(p.Overhead)))
	}
	return p
}

// Check refuses what the model cannot reproduce faithfully. The error begins with the path of the field in the control
// protocol, such as "jitter.ns: ".
func (p Params) Check() error {
	return cmp.Or(
		input.Range("delay_ns", p.DelayNS, 0, MaxDelayNS),
		p.RateBPS.Check("rate_bps", MinRateBPS, MaxRateBPS),
		input.Range("overhead_bytes", p.Overhead, 0, MaxOverhead),
		p.QueueFrames.Check("queue_frames", 1, MaxQueueFrames),
		p.QueueBytes.Check("queue_bytes", 1, MaxQueueBytes),
		input.Range("seed", p.Seed, 0, MaxSeed),
		p.Jitter.check(p.DelayNS),
		p.Loss.check(),
		input.Ratio("duplication_ratio", p.Duplication),
		input.Ratio("corruption_ratio", p.Corruption),
		p.AQM.check(),
	)
}

// ReachNS is the largest deviation from the delay.
func (j Jitter) ReachNS() int64 { return j.reach() * j.NS }

func (j Jitter) reach() int64 {
	switch j.Distribution {
	case Uniform:
		return 1
	case Normal:
		return normalTail
	}
	return 0
}

// check: a delay cannot be negative, and truncating at zero would change the distribution.
func (j Jitter) check(delayNS int64) error {
	if j.Distribution == NoJitter {
		return nil
	}
	if most := delayNS / j.reach(); j.NS < 1 || j.NS > most {
		return fmt.Errorf("jitter.ns: got %d, allowed: 1 to %d, which is 1/%d of delay_ns (%s jitter; "+
			"no delay can be negative)", j.NS, most, j.reach(), j.Distribution)
	}
	if j.Reorder && j.CorrelationNS != 0 {
		return fmt.Errorf("jitter.correlation_ns: got %d, allowed: null with reorder: every frame draws its own delay",
			j.CorrelationNS)
	}
	if err := j.CorrelationNS.Check("jitter.correlation_ns", leastCorrelation*j.NS, MaxCorrelationNS); err != nil {
		return fmt.Errorf("%w for %d times ns (less than %d times ns cannot keep order)", err, usualCorrelation,
			leastCorrelation)
	}
	return nil
}

func (l Loss) check() error {
	for _, r := range l.ratios() {
		if err := input.Ratio("loss."+r.name, *r.value); err != nil {
			return err
		}
	}
	return nil
}
