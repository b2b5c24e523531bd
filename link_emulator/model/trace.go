package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"containernet-env/link_emulator/input"
)

// TraceKind is what a trace gives over time.
type TraceKind string

const (
	RateTrace        TraceKind = "rate"          // bits per second; 0: no frame starts
	DelayTrace       TraceKind = "delay"         // one way, ns
	OpportunityTrace TraceKind = "opportunities" // when OpportunityBytes can be delivered, as in mahimahi
)

// MaxTracePoints bounds a trace: 64 MiB of memory.
const MaxTracePoints = 1 << 22

// MaxTraceNS bounds the start of a trace and the times in it: no sum of them overflows.
const MaxTraceNS = int64(1) << 60

// OpportunityBytes is what one opportunity delivers, and of a frame it counts uncountedBytes less than its length, and
// the overhead more. mahimahi counts IP packets with the four bytes that a TUN device puts before them (PACKET_SIZE of
// src/frontend/link_queue.cc), a TAP has an Ethernet header of 14 there: a full frame of 1514 bytes fills one.
const (
	OpportunityBytes = 1504
	uncountedBytes   = ethernetBytes - 4
)

// never is when a frame starts that waits behind the end of a trace that does not repeat.
const never = int64(1) << 61

// Trace is a function of time, or a list of opportunities. It is made by NewTrace, Add and End, and then constant: any
// number of lines may follow it.
type Trace struct {
	Name     string
	Kind     TraceKind
	RepeatNS int64 // it starts again after so long; 0: its last value holds

	times  []int64 // since its start: of values ascending from 0, of opportunities not descending
	values []int64 // from then on; none of opportunities
	least  int64   // of the values of a delay
	lastNS int64   // of the last time that was added, also of a value that repeats the one before it; -1: none
}

// NewTrace makes one without points. Opportunities repeat after their last one: repeatNS is 0 for them.
func NewTrace(name string, kind TraceKind, repeatNS int64) (*Trace, error) {
	if kind != RateTrace && kind != DelayTrace && kind != OpportunityTrace {
		return nil, fmt.Errorf("kind: got %q, allowed: %s, %s, %s", kind, RateTrace, DelayTrace, OpportunityTrace)
	}
	if kind == OpportunityTrace && repeatNS != 0 {
		return nil, fmt.Errorf("repeat_ns: got %d, allowed: null: opportunities repeat after the last one", repeatNS)
	}
	if err := input.Limit(repeatNS).Check("repeat_ns", 1, MaxTraceNS); err != nil {
		return nil, err
	}
	return &Trace{Name: name, Kind: kind, RepeatNS: repeatNS, lastNS: -1}, nil
}

// Points is how many points it holds: of equal values in a row only the first.
func (t *Trace) Points() int { return len(t.times) }

// Add appends points; after an error the trace is of no use.
func (t *Trace) Add(times, values []int64) error {
	ofValues := t.Kind != OpportunityTrace
	if ofValues && len(values) != len(times) || !ofValues && len(values) > 0 {
		return fmt.Errorf("values: got %d, allowed: as many as times_ns for rate and delay, none for opportunities",
			len(values))
	}
	for i, ns := range times {
		low := max(t.lastNS, 0)
		if ofValues {
			low = t.lastNS + 1
		}
		if ns < low || ns > MaxTraceNS {
			return fmt.Errorf("times_ns[%d]: got %d, allowed: %d to %d", i, ns, low, MaxTraceNS)
		}
		if ofValues && t.lastNS < 0 && ns != 0 {
			return fmt.Errorf("times_ns[%d]: got %d, allowed: 0 for the first one", i, ns)
		}
		t.lastNS = ns
		if ofValues {
			if err := t.checkValue(values[i]); err != nil {
				return fmt.Errorf("values[%d]: %w", i, err)
			}
			if n := len(t.values); n > 0 && t.values[n-1] == values[i] {
				continue
			}
			t.values = append(t.values, values[i])
		}
		if len(t.times) == MaxTracePoints {
			return fmt.Errorf("times_ns: got more than %d points, allowed: %d", MaxTracePoints, MaxTracePoints)
		}
		t.times = append(t.times, ns)
	}
	return nil
}

func (t *Trace) checkValue(value int64) error {
	switch {
	case t.Kind == DelayTrace && (value < 0 || value > MaxDelayNS):
		return fmt.Errorf("got %d, allowed: 0 to %d", value, MaxDelayNS)
	case t.Kind == RateTrace && value != 0 && (value < MinRateBPS || value > MaxRateBPS):
		return fmt.Errorf("got %d, allowed: 0, or %d to %d", value, MinRateBPS, MaxRateBPS)
	}
	return nil
}

// End checks the whole.
func (t *Trace) End() error {
	switch {
	case len(t.times) == 0:
		return errors.New("times_ns: got none, allowed: at least one")
	case t.Kind == OpportunityTrace && t.lastNS == 0:
		return errors.New("times_ns: got none above 0, allowed: a last one above 0, after which they repeat")
	case t.Kind == RateTrace && slices.Max(t.values) == 0:
		return errors.New("values: got none above 0, allowed: at least one")
	case t.RepeatNS != 0 && t.RepeatNS <= t.lastNS:
		return fmt.Errorf("repeat_ns: got %d, allowed: more than the last of times_ns, %d", t.RepeatNS, t.lastNS)
	}
	switch t.Kind {
	case OpportunityTrace:
		t.RepeatNS = t.lastNS
	case DelayTrace:
		t.least = slices.Min(t.values)
	}
	t.times, t.values = slices.Clip(t.times), slices.Clip(t.values)
	return nil
}

// Traces are what a line follows from StartNS on, in place of its rate and its delay; nil: it keeps them.
type Traces struct {
	Rate    *Trace // of rates or of opportunities
	Delay   *Trace
	StartNS int64
}

// Check refuses what cannot be with the parameters. The error begins with a field of the control protocol.
func (t Traces) Check(p Params) error {
	if t.Rate != nil && p.AQM.Kind != FIFO {
		return fmt.Errorf("rate: got %q with the queue discipline %s, allowed: without one", t.Rate.Name, p.AQM.Kind)
	}
	if t.Rate != nil && t.Rate.Kind == DelayTrace {
		return fmt.Errorf("rate: got %q of the kind %s, allowed: %s, %s", t.Rate.Name, DelayTrace, RateTrace,
			OpportunityTrace)
	}
	if t.Delay == nil {
		return nil
	}
	if t.Delay.Kind != DelayTrace {
		return fmt.Errorf("delay: got %q of the kind %s, allowed: %s", t.Delay.Name, t.Delay.Kind, DelayTrace)
	}
	if least := t.Delay.least; least < p.Jitter.ReachNS() {
		return fmt.Errorf("delay: got %q whose least is %d, allowed: at least %d, by which jitter shortens delays",
			t.Delay.Name, least, p.Jitter.ReachNS())
	}
	return nil
}

// CheckChange refuses a change of parameters that a trace is in the place of.
func (t Traces) CheckChange(held, p Params) error {
	followed := func(field string, followed *Trace, held, wanted int64) error {
		if followed == nil || held == wanted {
			return nil
		}
		return fmt.Errorf("%s: got %d while it follows the trace %q, allowed: %d", field, wanted, followed.Name, held)
	}
	return cmp.Or(
		followed("delay_ns", t.Delay, held.DelayNS, p.DelayNS),
		followed("rate_bps", t.Rate, int64(held.RateBPS), int64(p.RateBPS)),
		followed("overhead_bytes", t.Rate, held.Overhead, p.Overhead),
		t.Check(p),
	)
}

// cursor is a place in a trace. Lines ask for later and later times, mostly close to each other.
type cursor struct {
	trace   *Trace
	index   int
	cycleNS int64 // when the trace started, this time
	left    int64 // what can still be delivered at this opportunity
}

func (c *cursor) atNS() int64 { return c.cycleNS + c.trace.times[c.index] }

// seek moves to the point whose value is in force at a time, at or after the trace's start.
func (c *cursor) seek(ns int64) {
	t := c.trace
	if t.RepeatNS > 0 && ns >= c.cycleNS+t.RepeatNS {
		c.cycleNS += (ns - c.cycleNS) / t.RepeatNS * t.RepeatNS
		c.index = 0
	}
	sinceNS := ns - c.cycleNS
	holds := func(i int) bool {
		return t.times[i] <= sinceNS && (i+1 == len(t.times) || sinceNS < t.times[i+1])
	}
	switch {
	case holds(c.index):
	case c.index+1 < len(t.times) && holds(c.index+1):
		c.index++
	default:
		c.index = sort.Search(len(t.times), func(i int) bool { return t.times[i] > sinceNS }) - 1
	}
}

func (c *cursor) value() int64 { return c.trace.values[c.index] }

// moving is the first time from ns on at which the rate is above 0.
func (c *cursor) moving(ns int64) int64 {
	for ns < never {
		if c.seek(ns); c.value() > 0 {
			return ns
		}
		switch {
		case c.index+1 < len(c.trace.times):
			ns = c.cycleNS + c.trace.times[c.index+1]
		case c.trace.RepeatNS > 0:
			ns = c.cycleNS + c.trace.RepeatNS
		default:
			ns = never
		}
	}
	return ns
}

// opportunity is that which a frame begins with that came at cameNS and cannot begin before readyNS. As in mahimahi
// (LinkQueue::rationalize), it is one after the frame came, and what is left of one that others have begun with, as
// long as they were all there in time. An opportunity for which no frame is there is lost.
func (c cursor) opportunity(cameNS, readyNS int64) cursor {
	if c.left > 0 && c.atNS() > cameNS {
		return c
	}
	c.next()
	if earliestNS := max(readyNS, cameNS+1); c.atNS() < earliestNS {
		sinceNS := earliestNS - c.cycleNS
		// Those at the end of a cycle come before those at the start of the next one, at the same time.
		cycles := (sinceNS - 1) / c.trace.RepeatNS
		from := 0
		if cycles == 0 {
			from = c.index
		}
		c.cycleNS += cycles * c.trace.RepeatNS
		sinceNS = earliestNS - c.cycleNS
		rest := c.trace.times[from:]
		c.index = from + sort.Search(len(rest), func(i int) bool { return rest[i] >= sinceNS })
	}
	return c
}

// next moves to the next opportunity.
func (c *cursor) next() {
	if c.index++; c.index == len(c.trace.times) {
		c.index, c.cycleNS = 0, c.cycleNS+c.trace.RepeatNS
	}
	c.left = OpportunityBytes
}

// deliver takes what a frame needs of this opportunity and those after it; the last one is when it departs.
func (c *cursor) deliver(bytes int64) (departNS int64) {
	for bytes > c.left {
		bytes -= c.left
		c.next()
	}
	c.left -= bytes
	return c.atNS()
}

// following is where a line is in its traces.
type following struct {
	traces Traces
	rate   cursor // of opportunities: the last one that a frame has used, -1 before
	delay  cursor
	ahead  cursor // the rate or the opportunity that the next frame begins with, if it finds room
}

// start begins with the traces: none of what is on the line was sent by them.
func (f *following) start(traces Traces) {
	*f = following{traces: traces}
	f.rate = cursor{trace: traces.Rate, cycleNS: traces.StartNS}
	if f.isOpportunities() {
		f.rate.index = -1
	}
	f.delay = cursor{trace: traces.Delay, cycleNS: traces.StartNS}
}

// restart has frames that wait looked up again, and reports whether instead they keep the opportunities that they have.
func (f *following) restart(traces Traces) (keepsTimes bool) {
	used := f.rate
	keepsTimes = f.isOpportunities() && traces == f.traces
	if f.start(traces); keepsTimes {
		f.rate = used
	}
	return keepsTimes
}

func (f *following) isOpportunities() bool {
	return f.traces.Rate != nil && f.traces.Rate.Kind == OpportunityTrace
}

// LeastDelayNS is the shortest delay that a frame may have, jitter included.
func (l *Line) LeastDelayNS() int64 {
	least := l.params.DelayNS
	if t := l.following.traces.Delay; t != nil {
		least = min(least, t.least)
	}
	return least - l.params.Jitter.ReachNS()
}

// Following is what the line follows.
func (l *Line) Following() Traces { return l.following.traces }

// Follow has the line follow traces from nowNS on, in place of those before; see Set for the frames that wait. A frame
// has the rate and the delay of the moment at which the serializer starts sending it, as if Set were called at each
// time of the trace and before any frame that starts then: so changes take effect at their times, however late frames
// are offered. Until StartNS, and with no traces, the parameters hold. Parameters and traces must have passed Check.
func (l *Line) Follow(nowNS int64, traces Traces) { l.change(nowNS, l.configured, traces) }

// begin is when the serializer starts sending a frame that came at cameNS, if it finds room.
func (l *Line) begin(cameNS int64) (startNS int64) {
	startNS = max(cameNS, l.depart.ceil())
	f := &l.following
	switch {
	case f.traces.Rate == nil || startNS < f.traces.StartNS:
	case f.isOpportunities():
		f.ahead = f.rate.opportunity(cameNS, startNS)
		startNS = f.ahead.atNS()
	default:
		f.ahead = f.rate
		startNS = f.ahead.moving(startNS)
	}
	return startNS
}

// transmit advances the departure by the transmission time of a frame that starts at startNS.
func (l *Line) transmit(startNS int64, bytes int) {
	f := &l.following
	traced := f.traces.Rate != nil && startNS >= f.traces.StartNS
	rate := int64(l.params.RateBPS)
	if traced {
		f.rate = f.ahead
	}
	switch {
	case traced && f.isOpportunities():
		counted := max(1, int64(bytes)-uncountedBytes+l.params.Overhead)
		l.depart = moment{ns: f.rate.deliver(counted)}
		rate = 0
	case startNS >= never:
		rate = 0
	case traced:
		rate = f.rate.value()
	}
	if rate != l.rate { // the fractions were in units of the old one
		l.depart, l.last = moment{ns: l.depart.ceil()}, moment{ns: l.last.ceil()}
		l.rate = rate
	}
	if rate != 0 {
		work := (int64(bytes) + l.params.Overhead) * 8 * 1e9
		l.depart = l.add(l.depart, moment{work / rate, work % rate})
	}
}

// tracedDelayNS is by how much the delay of a frame that starts at startNS differs from the configured one.
func (l *Line) tracedDelayNS(startNS int64) int64 {
	f := &l.following
	if f.traces.Delay == nil || startNS < f.traces.StartNS {
		return 0
	}
	f.delay.seek(startNS)
	return f.delay.value() - l.params.DelayNS
}
