package model

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
)

const ms = int64(1e6)

func newLine(p Params) *Line {
	line := &Line{}
	line.Set(0, p)
	return line
}

func offer(t *testing.T, l *Line, nowNS int64, bytes int) {
	t.Helper()
	assert.Equal(t, l.Offer(nowNS, 0, bytes), Accepted, "offer at %d", nowNS)
}

// reference is the same line without jitter, in fractions, that looks at all frames each time.
type reference struct {
	params         Params
	offeredNS      int64
	depart, last   *big.Rat // of the last accepted frame
	frames         []timed  // since the last cut
	out            int      // of them came out
	most, mostSize int      // that waited at once
}

type timed struct {
	startNS, dueNS int64
	bytes          int
}

func ceil(r *big.Rat) int64 {
	up := new(big.Int).Add(r.Num(), r.Denom())
	return up.Sub(up, big.NewInt(1)).Div(up, r.Denom()).Int64()
}

func whole(ns int64) *big.Rat { return new(big.Rat).SetInt64(ns) }

// waiting are the frames that have not started by a time, the last ones of all.
func (r *reference) waiting(nowNS int64) (frames []timed, bytes int) {
	first := len(r.frames)
	for ; first > 0 && r.frames[first-1].startNS > nowNS; first-- {
		bytes += r.frames[first-1].bytes
	}
	return r.frames[first:], bytes
}

func (r *reference) offer(nowNS int64, bytes int) Verdict {
	r.offeredNS = max(r.offeredNS, nowNS)
	f := timed{r.offeredNS, 0, bytes}
	if busyNS := ceil(r.depart); busyNS > r.offeredNS {
		f.startNS = busyNS
		frames, size := r.waiting(r.offeredNS)
		if r.params.QueueFrames > 0 && len(frames) >= int(r.params.QueueFrames) ||
			r.params.QueueBytes > 0 && size+bytes > int(r.params.QueueBytes) {
			return QueueFull
		}
		r.most, r.mostSize = max(r.most, len(frames)+1), max(r.mostSize, size+bytes)
	} else {
		r.depart = whole(r.offeredNS)
	}
	r.time(&f)
	r.frames = append(r.frames, f)
	return Accepted
}

// time says when a frame is due that departs next.
func (r *reference) time(f *timed) {
	if r.params.RateBPS > 0 {
		bits := big.NewRat((int64(f.bytes)+r.params.Overhead)*8e9, int64(r.params.RateBPS))
		r.depart = bits.Add(bits, r.depart)
	}
	if due := new(big.Rat).Add(r.depart, whole(r.params.DelayNS)); due.Cmp(r.last) > 0 {
		r.last = due
	}
	f.dueNS = ceil(r.last)
}

// set has the frames that wait follow the new rate and delay, after the one in service.
func (r *reference) set(nowNS int64, p Params) {
	r.params = p
	r.depart, r.last = whole(ceil(r.depart)), whole(ceil(r.last))
	waiting, _ := r.waiting(nowNS)
	for i := range waiting {
		if i == 0 {
			r.depart, r.last = whole(waiting[0].startNS), whole(0)
			if started := len(r.frames) - len(waiting); started > 0 {
				r.last = whole(r.frames[started-1].dueNS)
			}
		}
		waiting[i].startNS = ceil(r.depart)
		r.time(&waiting[i])
	}
}

// TestTimesAreExact compares with the reference: what finds room and when it is due, while rates, delays and limits
// change, cables are cut, and frames are offered with earlier times than those before them.
func TestTimesAreExact(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 6))
		draw := func() Params {
			p := randomParams(random)
			p.Jitter, p.Overhead = Jitter{}, random.Int64N(2)*24
			return p
		}
		params := draw()
		line := newLine(params)
		want := &reference{params: params, depart: whole(0), last: whole(0)}
		nowNS, gapNS := int64(0), 1+random.Int64N(40_000)
		expect := func(untilNS int64) {
			t.Helper()
			for ; want.out < len(want.frames) && want.frames[want.out].dueNS <= untilNS; want.out++ {
				due, some := line.Next()
				f, w := line.Pop(), want.frames[want.out]
				assert.Must(t, some && due == w.dueNS && f.DueNS == due && int(f.Bytes) == w.bytes,
					"seed %d: a frame of %d bytes is due at %d, want %+v: %+v", seed, f.Bytes, due, w, params)
			}
			due, some := line.Next()
			assert.Must(t, (!some || due > untilNS) && line.Len() == len(want.frames)-want.out,
				"seed %d: %d frames are left, the next is due at %d, want %d", seed, line.Len(), due, len(want.frames))
		}
		for range 300 {
			nowNS += random.Int64N(gapNS)
			expect(nowNS)
			switch random.IntN(60) {
			case 0:
				params = draw()
				line.Set(nowNS, params)
				want.set(nowNS, params)
			case 1:
				line.Cut(nowNS, func(Frame) { want.out++ })
				expect(math.MaxInt64)
				want.frames, want.out, want.depart, want.last = nil, 0, whole(nowNS), whole(nowNS)
			}
			atNS, bytes := max(nowNS-random.Int64N(1000), 0), 1+random.IntN(1514)
			got, verdict := line.Offer(atNS, 0, bytes), want.offer(atNS, bytes)
			assert.Must(t, got == verdict, "seed %d: %d bytes at %d: %d, want %d: %+v", seed, bytes, atNS, got, verdict, params)
		}
		frames, bytes := line.HighWater()
		assert.Equal(t, [2]int{frames, int(bytes)}, [2]int{want.most, want.mostSize}, "seed %d: frames, bytes", seed)
		expect(math.MaxInt64)
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
	line.Set(0, line.Configured()) // they keep their times
	offer(t, line, 0, 125)         // in the place of the first, which never waited
	assert.Equal(t, line.Offer(0, 0, 125), LineFull, "one more frame at the same time")
	line.ResetCounters(MaxInFlight * 1000)
	offer(t, line, MaxInFlight/2*1000, 125)
	frames, bytes := line.HighWater()
	assert.That(t, frames == 0 && bytes == 0, "high water after a reset: %d frames and %d bytes", frames, bytes)
	assert.Equal(t, line.Pop().DueNS, MaxInFlight*1000+1000, "when it is due")
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
		assert.Equal(t, DefaultQueueFrames(c.delayNS, c.rateBPS, c.overhead), c.want, "%+v", c)
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
		{DelayNS: 4 * ms, Jitter: Jitter{Distribution: Normal, NS: ms, CorrelationNS: input.Limit(leastCorrelation*ms - 1)}},
		{DelayNS: 4 * ms, Jitter: Jitter{Distribution: Uniform, NS: ms, CorrelationNS: MaxCorrelationNS + 1}},
		{DelayNS: 4 * ms, Jitter: Jitter{Distribution: Uniform, NS: ms, CorrelationNS: 1, Reorder: true}},
		{Loss: Loss{Model: Independent, Ratio: -0.1}}, {Loss: Loss{Model: Independent, Ratio: math.NaN()}},
		{Loss: Loss{Model: GilbertElliott, GoodToBad: 1.1}}, {Loss: Loss{Model: GilbertElliott, BadLoss: 2}},
	} {
		assert.That(t, p.Check() != nil, "%+v was accepted", p)
	}
	for _, p := range []Params{
		{}, {DelayNS: MaxDelayNS, RateBPS: MaxRateBPS, QueueFrames: MaxQueueFrames},
		{RateBPS: MinRateBPS, QueueFrames: 1, QueueBytes: 1},
		{DelayNS: ms, Jitter: Jitter{Distribution: Uniform, NS: ms}},
		{DelayNS: ms, Jitter: Jitter{Distribution: Normal, NS: ms / 4}},
		{DelayNS: 4 * ms, Jitter: Jitter{Distribution: Normal, NS: ms, CorrelationNS: input.Limit(leastCorrelation * ms)}},
		{Loss: Loss{Model: Independent, Ratio: 1}},
		{Loss: Loss{Model: GilbertElliott, GoodToBad: 1, BadToGood: 0, BadLoss: 1}},
		{Seed: MaxSeed},
	} {
		assert.Equal(t, p.Check(), nil, "%+v", p)
	}
}

func randomParams(random *rand.Rand) Params {
	params := Params{DelayNS: random.Int64N(20 * ms)}
	switch random.IntN(4) {
	case 0:
		params.QueueBytes = input.Limit(2000 + random.Int64N(200_000))
	case 1:
		params.QueueBytes = input.Limit(2000 + random.Int64N(200_000))
		params.QueueFrames = input.Limit(1 + random.IntN(200))
	default:
		params.QueueFrames = input.Limit(1 + random.IntN(200))
	}
	if random.IntN(4) > 0 {
		params.RateBPS = input.Limit(MinRateBPS*1000 + random.Int64N(3e9))
	}
	switch random.IntN(3) {
	case 0:
		if params.DelayNS > 0 {
			params.Jitter = Jitter{Distribution: Uniform, NS: 1 + random.Int64N(params.DelayNS)}
		}
	case 1:
		if params.DelayNS >= normalTail {
			params.Jitter = Jitter{Distribution: Normal, NS: 1 + random.Int64N(params.DelayNS/normalTail)}
		}
	}
	params.Jitter.Reorder = params.Jitter.Distribution != NoJitter && random.IntN(2) == 0
	switch random.IntN(3) {
	case 0:
		params.Loss = Loss{Model: Independent, Ratio: random.Float64()}
	case 1:
		params.Loss = Loss{Model: GilbertElliott, GoodToBad: random.Float64(), BadToGood: random.Float64(),
			GoodLoss: random.Float64(), BadLoss: random.Float64()}
	}
	return params
}

// TestProperties changes the parameters at random moments: jitter, losses and reordering among them. Frames are
// conserved and leave in the order of their times. None is due before the delay that holds from its departure on (see
// TestTimesAreExact) less the jitter's reach, none later than with it but for the wait behind what was on the wire at a
// change, and without reordering order is kept.
func TestProperties(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		params := randomParams(random)
		b, nowNS := newBench(params), int64(0)
		least := map[uint32]int64{} // by handle
		ahead := int64(0)           // latest due time of what was on the wire at the last change
		reordered := params.Jitter.Reorder
		for range 2000 {
			nowNS += random.Int64N(30_000)
			b.until(nowNS)
			if random.IntN(50) == 0 {
				waiting, _ := b.Waiting(nowNS)
				params = randomParams(random)
				reordered = reordered || params.Jitter.Reorder
				for i := b.head; i < b.tail-uint64(waiting); i++ {
					ahead = max(ahead, b.at(i).DueNS)
				}
				b.Set(nowNS, params)
				for i := range waiting { // these follow the new delay, from now on at the earliest
					least[b.at(b.tail-1-uint64(i)).Handle] = nowNS + params.DelayNS - params.Jitter.ReachNS()
				}
			}
			if accepted := b.tail; b.put(nowNS, udp(60+random.IntN(1455), 0, false)) == Accepted {
				f, departNS := b.at(accepted), b.depart.ceil()
				least[f.Handle] = departNS + params.DelayNS - params.Jitter.ReachNS()
				most := max(ahead, departNS+params.DelayNS+params.Jitter.ReachNS())
				assert.Must(t, f.DueNS <= most, "seed %d: a frame is due at %d, the delay says %d at most", seed, f.DueNS, most)
			}
		}
		b.until(1 << 61)
		waiting, bytes := b.Waiting(1 << 61)
		assert.Must(t, len(b.out) == len(least) && b.Len() == 0 && waiting == 0 && bytes == 0,
			"seed %d: %d accepted, %d delivered, %d with %d bytes wait", seed, len(least), len(b.out), waiting, bytes)
		last := fate{}
		for i, out := range b.out {
			leastNS, expected := least[out.handle]
			delete(least, out.handle)
			assert.Must(t, expected && out.dueNS >= max(leastNS, last.dueNS),
				"seed %d: frame %d is due at %d, not before %d, or came off twice", seed, out.handle, out.dueNS, leastNS)
			assert.Must(t, reordered || i == 0 || out.handle > last.handle, "seed %d: frame %d overtakes", seed, out.handle)
			last = out
		}
	}
}
