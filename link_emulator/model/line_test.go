package model

import (
	"math"
	"slices"
	"testing"
)

const ms = int64(1e6)

func newLine(p Params) *Line {
	line := &Line{}
	line.Set(0, p)
	return line
}

func offer(t *testing.T, l *Line, nowNS int64, bytes int) {
	t.Helper()
	if verdict := l.Offer(nowNS, 0, bytes); verdict != Accepted {
		t.Fatalf("offer at %d: got verdict %d, want it accepted", nowNS, verdict)
	}
}

func popDue(t *testing.T, l *Line, wantNS int64) {
	t.Helper()
	due, ok := l.Next()
	if !ok || due != wantNS {
		t.Fatalf("next due: got %d (%v), want %d", due, ok, wantNS)
	}
	l.Pop()
}

func TestDelayOnly(t *testing.T) {
	line := newLine(Params{DelayNS: 3 * ms})
	offer(t, line, 100, 1514)
	offer(t, line, 100, 60)
	offer(t, line, 170, 60)
	for _, want := range []int64{3*ms + 100, 3*ms + 100, 3*ms + 170} {
		popDue(t, line, want)
	}
	if _, ok := line.Next(); ok {
		t.Error("an empty line has a next frame")
	}
}

// 1250 bytes at 1 Mbit/s are 10 ms; the second frame starts when the first has left.
func TestRateSerializes(t *testing.T) {
	line := newLine(Params{DelayNS: ms, RateBPS: 1e6})
	offer(t, line, 0, 1250)
	offer(t, line, 4*ms, 1250)
	offer(t, line, 50*ms, 1250) // the serializer is idle again: no credit for the idle time, no debt
	for _, want := range []int64{11 * ms, 21 * ms, 61 * ms} {
		popDue(t, line, want)
	}
}

// 1226 bytes and 24 of overhead at 1 Mbit/s are 10 ms; the queue limit in bytes counts the frames alone.
func TestOverheadTakesItsTimeAtTheRate(t *testing.T) {
	line := newLine(Params{RateBPS: 1e6, Overhead: 24, QueueBytes: 1226})
	offer(t, line, 0, 1226)
	offer(t, line, 0, 1226)
	popDue(t, line, 10*ms)
	popDue(t, line, 20*ms)
}

// At 3 bit/ns, so to speak, a frame of 1 byte takes 2.67 ns. Rounded each on its own, a million of them would be 0.33
// ms late.
func TestRoundingNeverAddsUp(t *testing.T) {
	line := newLine(Params{RateBPS: 3e9, QueueFrames: MaxQueueFrames})
	const frames = 1000
	for range frames {
		offer(t, line, 0, 1)
	}
	var last Frame
	for range frames {
		last = line.Pop()
	}
	if want := int64(2667); last.DueNS != want { // ceil(8000/3)
		t.Errorf("the last of %d frames: got due %d, want %d", frames, last.DueNS, want)
	}
}

func TestQueueLimitCountsFramesThatWait(t *testing.T) {
	line := newLine(Params{DelayNS: 1000 * ms, RateBPS: 1e6, QueueFrames: 2})
	for range 3 { // one in service, two waiting
		offer(t, line, 0, 1250)
	}
	if verdict := line.Offer(0, 0, 1250); verdict != QueueFull {
		t.Fatalf("the fourth frame: got verdict %d, want QueueFull", verdict)
	}
	if frames, bytes := line.HighWater(); frames != 2 || bytes != 2500 {
		t.Errorf("high water: got %d frames and %d bytes, want 2 and 2500", frames, bytes)
	}
	// At 10 ms the first has left into the delay line, which has no limit of its own, and the second is in service.
	offer(t, line, 10*ms, 1250)
	if line.Len() != 4 {
		t.Errorf("on the line: got %d, want 4", line.Len())
	}
}

func TestUnlimitedRateNeverQueues(t *testing.T) {
	line := newLine(Params{DelayNS: ms, QueueFrames: 1})
	for range 10_000 {
		offer(t, line, 5, 1514)
	}
	if frames, bytes := line.HighWater(); frames != 0 || bytes != 0 {
		t.Errorf("high water: got %d frames and %d bytes, want none", frames, bytes)
	}
}

func TestSmallerDelayKeepsOrder(t *testing.T) {
	line := newLine(Params{DelayNS: 50 * ms})
	offer(t, line, 0, 100)
	line.Set(ms, Params{DelayNS: 3 * ms})
	offer(t, line, 2*ms, 100)
	offer(t, line, 60*ms, 100)
	for _, want := range []int64{50 * ms, 50 * ms, 63 * ms} {
		popDue(t, line, want)
	}
}

// On a link that is offered exactly what it carries, a shorter delay, or less jitter, takes effect when the last frame
// that was on the longer wire has come.
func TestShorterDelayTakesEffectOnASaturatedLink(t *testing.T) {
	const rate, bytes = 100_000_000, 1250 // 100 us each
	const serialization = int64(100_000)
	for _, change := range []struct {
		name      string
		from, to  Params
		longest   int64 // that a frame takes beyond the serializer, before and after
		afterward int64
	}{
		{"delay", Params{DelayNS: 100 * ms, RateBPS: rate}, Params{DelayNS: ms, RateBPS: rate}, 100 * ms, ms},
		{"jitter", Params{DelayNS: 100 * ms, RateBPS: rate, Jitter: Jitter{Distribution: Uniform, NS: 80 * ms}},
			Params{DelayNS: 100 * ms, RateBPS: rate}, 180 * ms, 100 * ms},
		{"delay with jitter", Params{DelayNS: 100 * ms, RateBPS: rate, Jitter: Jitter{Distribution: Normal, NS: 20 * ms}},
			Params{DelayNS: 5 * ms, RateBPS: rate, Jitter: Jitter{Distribution: Uniform, NS: ms}}, 180 * ms, 6 * ms},
		{"overtaking",
			Params{DelayNS: 100 * ms, RateBPS: rate, Jitter: Jitter{Distribution: Uniform, NS: 80 * ms, Reorder: true}},
			Params{DelayNS: 100 * ms, RateBPS: rate}, 180 * ms, 100 * ms},
	} {
		r := &run{Line: newLine(change.from)}
		step := func() {
			r.advance()
			r.offer(bytes)
			r.now += serialization
		}
		for range 5000 {
			step()
		}
		changed := r.now
		r.Set(changed, change.to)
		for range 10_000 {
			step()
		}
		r.drain()
		before := int64(0)
		for i, f := range r.popped {
			offered := r.accepted[f.handle].offeredNS
			took := f.dueNS - offered - serialization
			if took > change.longest || offered >= changed+change.longest-change.afterward && took > change.afterward {
				t.Fatalf("%s: a frame offered %d ns after the change takes %d ns", change.name, offered-changed, took)
			}
			if !change.from.Jitter.Reorder && int(f.handle) != i || f.dueNS < before {
				t.Fatalf("%s: frame %d came out as number %d", change.name, f.handle, i)
			}
			before = f.dueNS
		}
		// What the longer wire held back comes together; after it, the rate holds again.
		checkRate(t, 0, change.to, r.popped[len(r.popped)-1500:])
	}
}

func TestNewRateAppliesToFramesThatWait(t *testing.T) {
	line := newLine(Params{RateBPS: 1e6})
	for range 3 { // due at 10, 20, 30 ms
		offer(t, line, 0, 1250)
	}
	line.Set(5*ms, Params{RateBPS: 10e6}) // the first is in service until 10 ms, the others take 1 ms each
	offer(t, line, 5*ms, 1250)
	for _, want := range []int64{10 * ms, 11 * ms, 12 * ms, 13 * ms} {
		popDue(t, line, want)
	}
}

func TestUnlimitingReleasesTheQueueAfterTheFrameInService(t *testing.T) {
	line := newLine(Params{RateBPS: 1e6})
	offer(t, line, 0, 1250)
	offer(t, line, 0, 1250)
	line.Set(ms, Params{})
	offer(t, line, 2*ms, 1250)
	for _, want := range []int64{10 * ms, 10 * ms, 10 * ms} {
		popDue(t, line, want)
	}
}

func TestCutLosesWhatTravelsAndFreesTheSerializer(t *testing.T) {
	line := newLine(Params{DelayNS: ms, RateBPS: 1e6, QueueFrames: 2})
	for range 3 {
		offer(t, line, 0, 1250)
	}
	lost := 0
	line.Cut(2*ms, func(Frame) { lost++ })
	if lost != 3 || line.Len() != 0 {
		t.Errorf("lost %d and %d left, want 3 and 0", lost, line.Len())
	}
	for range 3 { // the queue is empty, too
		offer(t, line, 3*ms, 1250)
	}
	popDue(t, line, 14*ms)
	line.Set(3*ms, Params{RateBPS: 1e6, QueueBytes: 2500})
	line.Cut(4*ms, func(Frame) {})
	for range 3 {
		offer(t, line, 5*ms, 1250)
	}
}

// A frame that is read late finds those that have left meanwhile. They take memory, which is bounded, and the counters
// of a later time do not know them.
func TestFramesThatLeftWaitForThoseThatCameBefore(t *testing.T) {
	line := newLine(Params{RateBPS: 1e9, QueueBytes: MaxQueueBytes})
	for line.Offer(0, 0, 125) == Accepted { // 1 us each
	}
	for line.Len() > 0 {
		line.Pop()
	}
	offer(t, line, 0, 125) // in the place of the first, which never waited
	if verdict := line.Offer(0, 0, 125); verdict != LineFull {
		t.Errorf("one more frame at the same time: got verdict %d, want LineFull", verdict)
	}
	line.ResetCounters(MaxInFlight * 1000)
	offer(t, line, MaxInFlight/2*1000, 125)
	if frames, bytes := line.HighWater(); frames != 0 || bytes != 0 {
		t.Errorf("high water after a reset: got %d frames and %d bytes, want none", frames, bytes)
	}
	popDue(t, line, MaxInFlight*1000+1000)
}

func TestDefaultQueueCoversTheBandwidthDelayProduct(t *testing.T) {
	for _, c := range []struct {
		delayNS, rateBPS int64
		overhead, want   int
	}{
		{3 * ms, 0, 0, 2000},
		{3 * ms, 1e6, 0, 200}, // 250 ms are 21 frames
		{3 * ms, 10e6, 0, 207},
		{3 * ms, 100e6, 0, 2000},
		{100 * ms, 100e6, 0, 3303}, // 400 ms
		{3 * ms, 1e9, 0, 2000},     // 250 ms are 20,641 frames
		{50 * ms, 1e9, 0, 16513},   // 200 ms at 1 Gbit/s: 25 MB
		{0, 12_112_000, 0, 250},    // exactly: 250 frames in 250 ms
		{0, 12_112_001, 0, 251},
		{1000 * ms, 1e12, 0, 1e5}, // capped
		{3600e9, MaxRateBPS, 0, 1e5},
		{0, 12_304_000, 24, 250}, // 1538 bytes each
	} {
		if got := DefaultQueueFrames(c.delayNS, c.rateBPS, c.overhead); got != c.want {
			t.Errorf("delay %d ns, rate %d, overhead %d: got %d frames, want %d", c.delayNS, c.rateBPS, c.overhead, got, c.want)
		}
	}
}

func TestCheckRefusesWhatTheModelCannotDo(t *testing.T) {
	for _, p := range []Params{
		{DelayNS: -1}, {DelayNS: MaxDelayNS + 1}, {RateBPS: -1}, {RateBPS: MinRateBPS - 1}, {RateBPS: MaxRateBPS + 1},
		{QueueFrames: -1}, {QueueFrames: MaxQueueFrames + 1}, {QueueBytes: -1}, {QueueBytes: MaxQueueBytes + 1},
		{Seed: -1}, {Seed: MaxSeed + 1}, {Overhead: -1}, {Overhead: MaxOverhead + 1},
		{DelayNS: ms, Jitter: Jitter{Distribution: Uniform}},
		{DelayNS: ms, Jitter: Jitter{Distribution: Uniform, NS: ms + 1}},
		{DelayNS: ms, Jitter: Jitter{Distribution: Normal, NS: ms/4 + 1}},
		{DelayNS: ms, Jitter: Jitter{Distribution: Normal, NS: math.MaxInt64}},
		{Loss: Loss{Model: Independent, Ratio: -0.1}}, {Loss: Loss{Model: Independent, Ratio: math.NaN()}},
		{Loss: Loss{Model: GilbertElliott, GoodToBad: 1.1}}, {Loss: Loss{Model: GilbertElliott, BadLoss: 2}},
	} {
		if p.Check() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
	for _, p := range []Params{
		{}, {DelayNS: MaxDelayNS, RateBPS: MaxRateBPS, QueueFrames: MaxQueueFrames},
		{RateBPS: MinRateBPS, QueueFrames: 1, QueueBytes: 1},
		{DelayNS: ms, Jitter: Jitter{Distribution: Uniform, NS: ms}},
		{DelayNS: ms, Jitter: Jitter{Distribution: Normal, NS: ms / 4}},
		{Loss: Loss{Model: Independent, Ratio: 1}},
		{Loss: Loss{Model: GilbertElliott, GoodToBad: 1, BadToGood: 0, BadLoss: 1}},
		{Seed: MaxSeed},
	} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for name, params := range map[string]Params{
		"plain": {DelayNS: ms, RateBPS: 1e9},
		"chance": {DelayNS: ms, RateBPS: 1e9, Jitter: Jitter{Distribution: Normal, NS: ms / 4},
			Loss: Loss{Model: GilbertElliott, GoodToBad: 0.1, BadToGood: 0.1, BadLoss: 0.5}},
		"reorder": {DelayNS: ms, Jitter: Jitter{Distribution: Uniform, NS: ms / 2, Reorder: true},
			Loss: Loss{Model: Independent, Ratio: 0.1}},
	} {
		t.Run(name, func(t *testing.T) { checkNoAllocation(t, params) })
	}
}

func checkNoAllocation(t *testing.T, params Params) {
	t.Helper()
	line := newLine(params)
	now := int64(0)
	step := func() {
		now += 12112
		line.Offer(now, 1, 1514)
		for due, ok := line.Next(); ok && due <= now; due, ok = line.Next() {
			line.Pop()
		}
	}
	for range 1000 {
		step()
	}
	if allocations := testing.AllocsPerRun(10_000, step); allocations != 0 {
		t.Errorf("got %v allocations per frame, want 0", allocations)
	}
}

func BenchmarkOfferPop(b *testing.B) { benchmark(b, Params{DelayNS: ms, RateBPS: 1e9}) }

func BenchmarkOfferPopChance(b *testing.B) {
	benchmark(b, Params{DelayNS: ms, RateBPS: 1e9, Jitter: Jitter{Distribution: Normal, NS: ms / 4},
		Loss: Loss{Model: Independent, Ratio: 0.01}})
}

func BenchmarkOfferPopReorder(b *testing.B) {
	benchmark(b, Params{DelayNS: ms, RateBPS: 1e9, Jitter: Jitter{Distribution: Uniform, NS: ms / 2, Reorder: true}})
}

func benchmark(b *testing.B, params Params) {
	line := newLine(params)
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now += 12112
		line.Offer(now, 1, 1514)
		for due, ok := line.Next(); ok && due <= now; due, ok = line.Next() {
			line.Pop()
		}
	}
}

// Frames of several hosts come to a shared line by their own times, but are offered as they were read. Without a rate
// none of them waits, and with one they wait for what was offered before.
func TestOffersWithEarlierTimes(t *testing.T) {
	unlimited := newLine(Params{DelayNS: ms, QueueFrames: 1})
	for i, atNS := range []int64{5000, 1000, 4000, 3000} {
		if verdict := unlimited.Offer(atNS, uint32(i), 100); verdict != Accepted {
			t.Fatalf("offer %d: %v", i, verdict)
		}
		if waiting, _ := unlimited.HighWater(); waiting != 0 {
			t.Errorf("offer %d: %d frames wait", i, waiting)
		}
	}
	for range 4 {
		if f := unlimited.Pop(); f.DueNS != 5000+ms {
			t.Errorf("frame %d is due at %d, want %d", f.Handle, f.DueNS, 5000+ms)
		}
	}
	// 125 bytes at 1 Mbit/s take 1 ms.
	limited := newLine(Params{RateBPS: 1e6, QueueFrames: 1})
	verdicts := []Verdict{}
	for _, atNS := range []int64{5 * ms, 1 * ms, 2 * ms, 6 * ms} {
		verdicts = append(verdicts, limited.Offer(atNS, 0, 125))
	}
	if want := []Verdict{Accepted, Accepted, QueueFull, Accepted}; !slices.Equal(verdicts, want) {
		t.Errorf("got %v, want %v", verdicts, want)
	}
	for _, want := range []int64{6 * ms, 7 * ms, 8 * ms} {
		if f := limited.Pop(); f.DueNS != want {
			t.Errorf("due at %d, want %d", f.DueNS, want)
		}
	}
}
