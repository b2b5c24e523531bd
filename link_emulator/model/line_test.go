package model

import (
	"math/rand/v2"
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

// At 3 bit/ns, so to speak, a frame of 1 byte takes 2.67 ns. Rounded each on its own, a million of them would be 0.33 ms late.
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
	if got := line.HighWater(); got != 2 {
		t.Errorf("high water: got %d, want 2", got)
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
	if line.HighWater() != 0 {
		t.Errorf("high water: got %d, want 0", line.HighWater())
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
	line := newLine(Params{DelayNS: ms, RateBPS: 1e6})
	for range 3 {
		offer(t, line, 0, 1250)
	}
	lost := 0
	line.Cut(2*ms, func(Frame) { lost++ })
	if lost != 3 || line.Len() != 0 {
		t.Errorf("lost %d and %d left, want 3 and 0", lost, line.Len())
	}
	offer(t, line, 3*ms, 1250)
	popDue(t, line, 14*ms)
}

func TestDefaultQueueCoversTheBandwidthDelayProduct(t *testing.T) {
	for _, c := range []struct {
		delayNS, rateBPS int64
		want             int
	}{
		{3 * ms, 0, 1000},
		{3 * ms, 10e6, 1000},
		{3 * ms, 1e9, 1000},    // 991 frames
		{50 * ms, 1e9, 16513},  // 200 ms at 1 Gbit/s: 25 MB
		{1000 * ms, 1e12, 1e5}, // capped
		{3600e9, MaxRateBPS, 1e5},
	} {
		if got := DefaultQueueFrames(c.delayNS, c.rateBPS); got != c.want {
			t.Errorf("delay %d ns, rate %d: got %d frames, want %d", c.delayNS, c.rateBPS, got, c.want)
		}
	}
}

func TestCheckRefusesWhatTheModelCannotDo(t *testing.T) {
	for _, p := range []Params{
		{DelayNS: -1}, {DelayNS: MaxDelayNS + 1}, {RateBPS: -1}, {RateBPS: MinRateBPS - 1}, {RateBPS: MaxRateBPS + 1},
		{QueueFrames: -1}, {QueueFrames: MaxQueueFrames + 1},
	} {
		if p.Check() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
	for _, p := range []Params{{}, {MaxDelayNS, MaxRateBPS, MaxQueueFrames}, {0, MinRateBPS, 1}} {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	line := newLine(Params{DelayNS: ms, RateBPS: 1e9})
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

// record is what a property run knows of one accepted frame.
type record struct {
	handle           uint32
	bytes            int
	offeredNS, dueNS int64
}

// TestProperties drives lines with random traffic: frames and bytes are conserved, order is kept, nothing is due before its delay and
// its own serialization, and what departs within any window never exceeds the rate by more than one frame.
func TestProperties(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		params := randomParams(random)
		line := newLine(params)
		var accepted, delivered []record
		offered, refused, now := 0, 0, int64(0)
		var bytesIn, bytesOut int64
		pop := func() {
			f := line.Pop()
			delivered = append(delivered, record{handle: f.Handle, bytes: int(f.Bytes), dueNS: f.DueNS})
			bytesOut += int64(f.Bytes)
		}
		for handle := range uint32(3000) {
			now += random.Int64N(40_000) * random.Int64N(2)
			for due, ok := line.Next(); ok && due <= now; due, ok = line.Next() {
				pop()
			}
			bytes := 60 + random.IntN(1455)
			offered++
			waiting := line.Waiting(now)
			if line.Offer(now, handle, bytes) != Accepted {
				refused++
				if waiting < line.Params().QueueFrames {
					t.Fatalf("seed %d: refused with %d of %d waiting", seed, waiting, line.Params().QueueFrames)
				}
				continue
			}
			bytesIn += int64(bytes)
			accepted = append(accepted, record{handle: handle, bytes: bytes, offeredNS: now})
		}
		if line.Len()+len(delivered)+refused != offered {
			t.Fatalf("seed %d: %d offered, but %d refused, %d delivered, %d on the line", seed, offered, refused, len(delivered), line.Len())
		}
		for line.Len() > 0 {
			pop()
		}
		if len(delivered) != len(accepted) || bytesIn != bytesOut {
			t.Fatalf("seed %d: %d frames and %d bytes in, %d and %d out", seed, len(accepted), bytesIn, len(delivered), bytesOut)
		}
		for i := range delivered {
			in, out := accepted[i], delivered[i]
			if in.handle != out.handle || in.bytes != out.bytes {
				t.Fatalf("seed %d: frame %d came out as number %d", seed, out.handle, i)
			}
			least := in.offeredNS + params.DelayNS
			if params.RateBPS > 0 {
				least += int64(in.bytes) * 8 * 1e9 / params.RateBPS
			}
			if out.dueNS < least {
				t.Fatalf("seed %d: frame %d is due %d ns early", seed, i, least-out.dueNS)
			}
			if i > 0 && out.dueNS < delivered[i-1].dueNS {
				t.Fatalf("seed %d: frame %d overtakes", seed, i)
			}
		}
		if params.RateBPS > 0 {
			checkRate(t, seed, params.RateBPS, delivered)
		}
	}
}

func randomParams(random *rand.Rand) Params {
	params := Params{DelayNS: random.Int64N(20 * ms), QueueFrames: 1 + random.IntN(200)}
	if random.IntN(4) > 0 {
		params.RateBPS = MinRateBPS*1000 + random.Int64N(3e9)
	}
	return params
}

// checkRate looks at every window that begins just after one departure and ends with another: without the first frame, no more than
// rate times its length may have departed (1 ns for rounding).
func checkRate(t *testing.T, seed uint64, rateBPS int64, frames []record) {
	t.Helper()
	for i := 0; i < len(frames); i += 7 {
		bits := int64(0)
		for _, f := range frames[i+1:] {
			bits += int64(f.bytes) * 8
			window := float64(f.dueNS-frames[i].dueNS+1) * float64(rateBPS) / 1e9
			if float64(bits) > window+1e-3 {
				t.Fatalf("seed %d: %d bits in a window for %.1f", seed, bits, window)
			}
		}
	}
}

// TestPropertiesUnderChange changes the parameters at random moments: frames are still conserved and in order, and
// none that is offered after a change is due before the new delay.
func TestPropertiesUnderChange(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		params := randomParams(random)
		line := newLine(params)
		least := map[uint32]int64{}
		now, lastDue, out := int64(0), int64(0), 0
		pop := func() {
			f := line.Pop()
			out++
			if f.DueNS < lastDue {
				t.Fatalf("seed %d: frame %d overtakes", seed, f.Handle)
			}
			if f.DueNS < least[f.Handle] {
				t.Fatalf("seed %d: frame %d is due at %d, not before %d", seed, f.Handle, f.DueNS, least[f.Handle])
			}
			lastDue = f.DueNS
		}
		for handle := range uint32(2000) {
			now += random.Int64N(30_000)
			for due, ok := line.Next(); ok && due <= now; due, ok = line.Next() {
				pop()
			}
			if random.IntN(50) == 0 {
				waiting := uint32(line.Waiting(now))
				params = randomParams(random)
				line.Set(now, params)
				for i := range waiting { // these follow the new delay, from now on at the earliest
					frame := line.at(line.tail - 1 - uint64(i))
					least[frame.Handle] = now + params.DelayNS
				}
			}
			if line.Offer(now, handle, 60+random.IntN(1455)) == Accepted {
				least[handle] = now + params.DelayNS
			}
		}
		for line.Len() > 0 {
			pop()
		}
		if out != len(least) {
			t.Fatalf("seed %d: %d accepted, %d delivered", seed, len(least), out)
		}
	}
}

func BenchmarkOfferPop(b *testing.B) {
	line := newLine(Params{DelayNS: ms, RateBPS: 1e9})
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
