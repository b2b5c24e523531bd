package model

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
)

func newTrace(t testing.TB, kind TraceKind, repeatNS int64, times, values []int64) *Trace {
	t.Helper()
	trace, err := NewTrace("t", kind, repeatNS)
	assert.OK(t, err)
	assert.OK(t, trace.Add(times, values))
	assert.OK(t, trace.End())
	return trace
}

// follow is a line that follows from the time 0 on.
func follow(p Params, traces Traces) *Line {
	line := newLine(p)
	line.Follow(0, traces)
	return line
}

// exactRates are those at which frames of multiples of 125 bytes take whole nanoseconds, so that no rounding differs.
var exactRates = []int64{1e6, 2e6, 5e6, 1e7, 1e8, 1e9}

// steps draws times from 0 on, some of them close to each other, with values.
func steps(random *rand.Rand, count int, draw func() int64) (times, values []int64) {
	ns := int64(0)
	for range count {
		times, values = append(times, ns), append(values, draw())
		ns += 1 + random.Int64N([]int64{10, 10_000, 5 * ms}[random.IntN(3)])
	}
	return times, values
}

// TestTraceIsAChangeAtEachOfItsTimes compares with a line that is changed at each time of two traces: right before it,
// after the frames that came by then.
func TestTraceIsAChangeAtEachOfItsTimes(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 21))
		base := Params{DelayNS: random.Int64N(5 * ms), RateBPS: 1e7, QueueFrames: 5}
		rates := func() int64 { return exactRates[random.IntN(len(exactRates))] }
		rateTimes, rateValues := steps(random, 1+random.IntN(50), rates)
		delayTimes, delayValues := steps(random, 1+random.IntN(50), func() int64 { return random.Int64N(5 * ms) })
		startNS, repeatNS := 1+random.Int64N(10*ms), int64(0)
		if random.IntN(2) == 0 {
			repeatNS = max(rateTimes[len(rateTimes)-1], delayTimes[len(delayTimes)-1]) + ms + random.Int64N(ms)
		}
		traced, changed := newLine(base), newLine(base)
		traced.Follow(0, Traces{Rate: newTrace(t, RateTrace, repeatNS, rateTimes, rateValues),
			Delay: newTrace(t, DelayTrace, repeatNS, delayTimes, delayValues), StartNS: startNS})
		endNS := startNS + 50*ms
		type change struct{ ns, rate, delay int64 }
		var changes []change
		for cycleNS := startNS; cycleNS == startNS || cycleNS < endNS+100*ms; cycleNS += max(repeatNS, 1) {
			for i, ns := range rateTimes {
				changes = append(changes, change{cycleNS + ns, rateValues[i], -1})
			}
			for i, ns := range delayTimes {
				changes = append(changes, change{cycleNS + ns, -1, delayValues[i]})
			}
			if repeatNS == 0 {
				break
			}
		}
		slices.SortStableFunc(changes, func(a, b change) int { return int(a.ns - b.ns) })
		params, due := base, []int64{}
		apply := func(c change) {
			if c.rate >= 0 {
				params.RateBPS = input.Limit(c.rate)
			}
			if c.delay >= 0 {
				params.DelayNS = c.delay
			}
			changed.Set(c.ns-1, params)
		}
		pop := func(untilNS int64) {
			for next, ok := changed.Next(); ok && next <= untilNS; next, ok = changed.Next() {
				due = append(due, changed.Pop().DueNS)
			}
		}
		verdicts, got := []Verdict{}, []Verdict{}
		var comes []int64
		var sizes []int
		gapNS := 1 + random.Int64N(400_000)
		for ns := int64(0); ns < endNS; ns += random.Int64N(gapNS) {
			bytes := 125 * (1 + random.IntN(12))
			comes, sizes = append(comes, ns), append(sizes, bytes)
			for len(changes) > 0 && changes[0].ns <= ns {
				pop(changes[0].ns - 1)
				apply(changes[0])
				changes = changes[1:]
			}
			pop(ns)
			verdicts = append(verdicts, changed.Offer(ns, 0, bytes))
		}
		for ; len(changes) > 0; changes = changes[1:] {
			pop(changes[0].ns - 1)
			apply(changes[0])
		}
		pop(never)
		// The traced line is called at the end, when all is over: nothing depends on when it is called.
		var found []int64
		for i, ns := range comes {
			got = append(got, traced.Offer(ns, 0, sizes[i]))
		}
		for traced.Len() > 0 {
			found = append(found, traced.Pop().DueNS)
		}
		assert.Must(t, slices.Equal(got, verdicts), "seed %d: other frames found room", seed)
		for i := range found {
			assert.Must(t, found[i] == due[i], "seed %d: frame %d of %d is due at %d, want %d", seed, i, len(found),
				found[i], due[i])
		}
	}
}

// TestRateOfZeroWithAFullQueue compares with a plain search of the values for traces that are 0 at times: a frame that
// finds no room leaves nothing behind, however far ahead it would have started.
func TestRateOfZeroWithAFullQueue(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 25))
		times, values := steps(random, 2+random.IntN(6), func() int64 {
			return []int64{0, exactRates[random.IntN(len(exactRates))]}[random.IntN(2)]
		})
		values[random.IntN(len(values))] = exactRates[random.IntN(len(exactRates))]
		repeatNS := times[len(times)-1] + 1 + random.Int64N(10*ms)
		rateAt := func(ns int64) (rate int64) {
			for i := range times {
				if times[i] <= ns%repeatNS {
					rate = values[i]
				}
			}
			return rate
		}
		limit := 1 + random.IntN(5)
		line := follow(Params{RateBPS: 1e7, QueueFrames: input.Limit(limit)},
			Traces{Rate: newTrace(t, RateTrace, repeatNS, times, values)})
		var starts, due []int64
		departNS := int64(0)
		for ns := int64(0); ns < 100*ms; ns += random.Int64N(ms) {
			bytes := 125 * (1 + random.IntN(12))
			startNS := max(ns, departNS)
			for rateAt(startNS) == 0 {
				cycleNS := startNS / repeatNS * repeatNS
				at, found := slices.BinarySearch(times, startNS-cycleNS)
				if found {
					at++
				}
				if startNS = cycleNS + repeatNS; at < len(times) {
					startNS = cycleNS + times[at]
				}
			}
			waiting := 0
			for _, start := range starts {
				if start > ns {
					waiting++
				}
			}
			want := QueueFull
			if startNS == ns || waiting < limit {
				want, departNS = Accepted, startNS+int64(bytes)*8e9/rateAt(startNS)
				starts, due = append(starts, startNS), append(due, departNS)
			}
			assert.Must(t, line.Offer(ns, 0, bytes) == want, "seed %d: a frame at %d", seed, ns)
		}
		for i, ns := range due {
			got := line.Pop().DueNS
			assert.Must(t, got == ns, "seed %d: frame %d is due at %d, want %d", seed, i, got, ns)
		}
	}
}

// mahimahi is its LinkQueue behind a drop-tail queue, in ns: opportunities are burnt one by one.
type mahimahi struct {
	schedule        []int64
	baseNS          int64
	next            int
	queue           []int // numbers of frames
	sizes           map[int]int
	mostFrames      int
	transit, unsent int // the frame that was sent in part, and its bytes that were not
	departs         map[int]int64
}

func (m *mahimahi) burn(untilNS int64) {
	for m.baseNS+m.schedule[m.next] <= untilNS {
		atNS := m.baseNS + m.schedule[m.next]
		if m.next = (m.next + 1) % len(m.schedule); m.next == 0 {
			m.baseNS += m.schedule[len(m.schedule)-1]
		}
		for left := 1504; left > 0; {
			if m.unsent == 0 {
				if len(m.queue) == 0 {
					break
				}
				m.transit, m.queue = m.queue[0], m.queue[1:]
				m.unsent = m.sizes[m.transit]
			}
			sent := min(left, m.unsent)
			left, m.unsent = left-sent, m.unsent-sent
			if m.unsent == 0 {
				m.departs[m.transit] = atNS
			}
		}
	}
}

func TestOpportunitiesAreThoseOfMahimahi(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 22))
		var times []int64
		ns := random.Int64N(3) * ms
		for range 1 + random.IntN(60) {
			times = append(times, ns)
			ns += []int64{0, 1, 1, 2, 30}[random.IntN(5)] * ms
		}
		if times[len(times)-1] == 0 {
			times = append(times, ms)
		}
		startNS, limit := random.Int64N(5*ms), 1+random.IntN(20)
		line := newLine(Params{RateBPS: 1e9, DelayNS: 2 * ms, QueueFrames: input.Limit(limit)})
		trace := newTrace(t, OpportunityTrace, 0, times, nil)
		line.Follow(startNS, Traces{Rate: trace, StartNS: startNS})
		want := &mahimahi{schedule: times, baseNS: startNS, sizes: map[int]int{}, departs: map[int]int64{}}
		var accepted []int
		gapNS, number := 1+random.Int64N(5*ms), 0
		for ns := startNS; ns < startNS+300*ms; ns += random.Int64N(gapNS) {
			if random.IntN(5) == 0 {
				ns = startNS + (ns-startNS)/ms*ms // at the time of an opportunity, perhaps
			}
			ns = max(ns, line.offeredNS)
			bytes := 14 + random.IntN(1501)
			want.burn(ns)
			room := len(want.queue) < limit
			verdict := line.Offer(ns, uint32(number), bytes)
			assert.Must(t, (verdict == Accepted) == room, "seed %d: frame %d finds room: %v, got %d", seed, number, room,
				verdict)
			if number++; room {
				want.sizes[number-1] = bytes - 14 + 4
				want.queue = append(want.queue, number-1)
				accepted = append(accepted, number-1)
			}
			if random.IntN(20) == 0 { // frames in the queue keep their opportunities
				line.Set(ns, line.Configured())
			}
		}
		for len(want.departs) < len(accepted) {
			want.burn(want.baseNS + want.schedule[want.next])
		}
		for _, number := range accepted {
			frame := line.Pop()
			assert.Must(t, int(frame.Handle) == number && frame.DueNS == want.departs[number]+2*ms,
				"seed %d: frame %d is due at %d, want %d", seed, number, frame.DueNS, want.departs[number]+2*ms)
		}
	}
}

func TestBaseValuesReturn(t *testing.T) {
	trace := newTrace(t, RateTrace, 0, []int64{0, 5 * ms}, []int64{8e6, 0})
	line := follow(Params{RateBPS: 80e6, DelayNS: ms}, Traces{Rate: trace})
	offer(t, line, 4*ms, 1500) // in service until 5.5 ms
	offer(t, line, 4*ms, 1000)
	offer(t, line, 7*ms, 1000)
	assert.Equal(t, line.Pop().DueNS, 6_500_000, "frame in service")
	due, _ := line.Next()
	assert.That(t, due >= never, "due at %d: nothing is sent after the end", due)
	line.Follow(5_200_000+3*ms, Traces{})
	assert.Equal(t, line.Pop().DueNS, 9_300_000, "frame that waited")
	assert.Equal(t, line.Pop().DueNS, 9_400_000, "frame behind it")
	// The serializer is still busy when the trace ends.
	line = follow(Params{RateBPS: 80e6, DelayNS: ms}, Traces{Rate: trace})
	offer(t, line, 4*ms, 1500)
	offer(t, line, 4*ms, 1000)
	line.Follow(5_200_000, Traces{})
	assert.Equal(t, line.Pop().DueNS, 6_500_000, "frame in service")
	assert.Equal(t, line.Pop().DueNS, 6_600_000, "frame behind it")
	line.Follow(20*ms, Traces{Rate: newTrace(t, OpportunityTrace, 0, []int64{1 * ms, 30 * ms}, nil), StartNS: 20 * ms})
	offer(t, line, 20*ms, 1514)
	offer(t, line, 20*ms, 1000)
	line.Follow(21*ms, Traces{})
	assert.Equal(t, line.Pop().DueNS, 22*ms, "frame of the first opportunity")
	assert.Equal(t, line.Pop().DueNS, 22_100_000, "frame that waited for the second one")
}

func TestACutFreesOpportunities(t *testing.T) {
	trace := newTrace(t, OpportunityTrace, 0, []int64{ms, 2 * ms, 100 * ms}, nil)
	line := follow(Params{RateBPS: 1e9}, Traces{Rate: trace})
	for range 3 {
		offer(t, line, 0, 1514)
	}
	line.Cut(500_000, func(Frame) {})
	offer(t, line, 500_000, 1514)
	assert.Equal(t, line.Pop().DueNS, ms, "the first opportunity")
	offer(t, line, 1000*ms, 1514)
	assert.Equal(t, line.Pop().DueNS, 1001*ms, "the next one, ten rounds later")
}

func TestImpossibleTracesAreRefused(t *testing.T) {
	for _, c := range []struct {
		kind          TraceKind
		repeatNS      int64
		times, values []int64
		want          string
	}{
		{"x", 0, nil, nil, `kind: got "x", allowed: rate, delay, opportunities`},
		{RateTrace, 0, nil, nil, "times_ns: got none, allowed: at least one"},
		{RateTrace, 0, []int64{1}, []int64{8e6}, "times_ns[0]: got 1, allowed: 0 for the first one"},
		{RateTrace, 0, []int64{0, 0}, []int64{8e6, 8e6}, "times_ns[1]: got 0, allowed: 1 to "},
		{RateTrace, 0, []int64{0}, []int64{999}, "values[0]: got 999, allowed: 0, or 1000 to 1000000000000"},
		{RateTrace, 0, []int64{0}, []int64{0}, "values: got none above 0, allowed: at least one"},
		{RateTrace, 0, []int64{0}, nil, "values: got 0, allowed: as many as times_ns"},
		{RateTrace, 5, []int64{0, 5}, []int64{8e6, 9e6},
			"repeat_ns: got 5, allowed: more than the last of times_ns, 5"},
		{DelayTrace, 0, []int64{0}, []int64{-1}, "values[0]: got -1, allowed: 0 to 3600000000000"},
		{OpportunityTrace, 0, []int64{2, 1}, nil, "times_ns[1]: got 1, allowed: 2 to "},
		{OpportunityTrace, 0, []int64{0, 0}, nil, "times_ns: got none above 0"},
		{OpportunityTrace, 9, []int64{1}, nil, "repeat_ns: got 9, allowed: null"},
	} {
		trace, err := NewTrace("t", c.kind, c.repeatNS)
		if err == nil {
			err = trace.Add(c.times, c.values)
		}
		if err == nil {
			err = trace.End()
		}
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), c.want), "%s: got %v", c.want, err)
	}
}

// A million points take 16 bytes each, and a frame looks up its place without memory, wherever it is.
func TestAMillionPoints(t *testing.T) {
	const count = 1_000_000
	trace, err := NewTrace("t", DelayTrace, 0)
	assert.OK(t, err)
	for part := range 100 {
		var times, values []int64
		for i := part * count / 100; i < (part+1)*count/100; i++ {
			times, values = append(times, int64(i)*10*ms), append(values, int64(i)%1000*1000)
		}
		assert.OK(t, trace.Add(times, values))
	}
	assert.OK(t, trace.End())
	assert.Equal(t, trace.Points(), count, "points")
	assert.That(t, cap(trace.times) <= 3*count/2 && cap(trace.values) <= 3*count/2, "room for %d and %d",
		cap(trace.times), cap(trace.values))
	line := follow(Params{}, Traces{Delay: trace})
	ns, random := int64(0), rand.New(rand.NewPCG(1, 23))
	send := func() {
		ns += random.Int64N(10_000 * ms)
		line.Offer(ns, 0, 100)
		if due := line.Pop().DueNS; due != ns+ns/(10*ms)%1000*1000 {
			t.Errorf("frame of %d is due at %d", ns, due)
		}
	}
	send()
	assert.Equal(t, testing.AllocsPerRun(1000, send), 0, "allocations of a frame")
}
