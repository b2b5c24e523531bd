package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
)

// shelf is a store of test frames, by handle; it notes what was dropped.
type shelf struct {
	frames  [][]byte
	dropped []fate
}

// fate is what became of a frame.
type fate struct {
	handle uint32
	what   string
	dueNS  int64
}

func (s *shelf) Content(handle uint32, bytes int) []byte { return s.frames[handle][:bytes] }

func (s *shelf) Dropped(handle uint32, full bool) {
	what := "dropped"
	if full {
		what = "overflow"
	}
	s.dropped = append(s.dropped, fate{handle, what, 0})
}

// bench is a line that is driven as the fabric drives it.
type bench struct {
	shelf
	Line
	out []fate
}

func newBench(p Params) *bench {
	b := &bench{}
	b.Line.Store = &b.shelf
	b.Set(0, p)
	return b
}

// until carries out all that is due by a time.
func (b *bench) until(nowNS int64) {
	for due, some := b.Next(); some && due <= nowNS; due, some = b.Next() {
		if b.Decide(due) {
			continue
		}
		f := b.Pop()
		what := "sent"
		if f.Marked {
			what = "marked"
		} else if f.Lost {
			what = "lost"
		}
		b.out = append(b.out, fate{f.Handle, what, f.DueNS})
	}
}

// put offers a frame with the next handle.
func (b *bench) put(nowNS int64, frame []byte) Verdict {
	b.frames = append(b.frames, frame)
	handle := uint32(len(b.frames) - 1)
	verdict := b.Offer(nowNS, handle, len(frame))
	if verdict == QueueFull {
		b.Dropped(handle, true)
	}
	return verdict
}

// udp is a frame of a flow, with or without ECT(0).
func udp(bytes, flow int, ect bool) []byte {
	frame := make([]byte, max(bytes, 42))
	copy(frame[12:], []byte{8, 0, 0x45, 0})
	frame[16], frame[17] = byte((len(frame)-14)>>8), byte(len(frame)-14)
	frame[23] = 17
	frame[34], frame[35] = byte(flow>>8), byte(flow)
	if ect {
		frame[15] = 2
	}
	return frame
}

var codel = AQM{Kind: CoDel, TargetNS: 5 * ms, IntervalNS: 100 * ms}

func (f fate) String() string { return fmt.Sprintf("%d %s@%d", f.handle, f.what, f.dueNS) }

// TestWithALongTargetCoDelIsAFIFO: the same frames find room and arrive at the same times, to the nanosecond, with the
// same losses and jitter, whatever changes meanwhile.
func TestWithALongTargetCoDelIsAFIFO(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 8))
		fifo := randomParams(random)
		never := fifo
		never.AQM = AQM{Kind: CoDel, TargetNS: MaxDelayNS, IntervalNS: MaxDelayNS}
		lines := []*bench{newBench(fifo), newBench(never)}
		if seed%2 == 1 {
			times, delays := steps(random, 50, func() int64 { return fifo.Jitter.ReachNS() + random.Int64N(4*ms) })
			for _, b := range lines {
				b.Follow(0, Traces{Delay: newTrace(t, DelayTrace, 0, times, delays)})
			}
		}
		nowNS, gapNS := int64(0), 1+random.Int64N(40_000)
		for range 1000 {
			nowNS += random.Int64N(gapNS)
			atNS, frame := max(0, nowNS-random.Int64N(1000)), udp(42+random.IntN(1472), 0, false)
			for _, b := range lines {
				b.until(nowNS)
				b.put(atNS, frame)
			}
		}
		frames, bytes := lines[0].HighWater()
		got, size := lines[1].HighWater()
		assert.Equal(t, [2]int64{int64(got), size}, [2]int64{int64(frames), bytes}, "seed %d: high water", seed)
		for _, b := range lines {
			b.until(1 << 61)
		}
		assert.Must(t, slices.Equal(lines[0].dropped, lines[1].dropped) && slices.Equal(lines[0].out, lines[1].out),
			"seed %d: %+v: not as without CoDel", seed, fifo)
	}
}

// rfc is a queue with CoDel or FQ-CoDel in the words of the RFCs: lists of frames, and time that goes from departure to
// departure.
type rfc struct {
	AQM
	limit    int
	byteNS   int64
	arrivals []arrival
	flows    map[int]*rfcFlow
	newFlows []*rfcFlow
	oldFlows []*rfcFlow
	drops    []fate
}

type arrival struct {
	atNS        int64
	handle      uint32
	bytes, flow int
	ect         bool
}

type rfcFlow struct {
	packets          []arrival
	credits          int
	listed           bool
	dropping         bool
	count, lastCount int
	firstAbove       int64
	dropNext         int64
}

func (r *rfc) backlog() (packets, bytes int) {
	for _, f := range r.flows {
		for _, p := range f.packets {
			packets, bytes = packets+1, bytes+p.bytes
		}
	}
	return packets, bytes
}

func (r *rfc) enqueue(p arrival, idle bool) {
	packets, _ := r.backlog()
	if r.Kind == CoDel && packets >= r.limit && !idle {
		r.drops = append(r.drops, fate{p.handle, "overflow", 0})
		return
	}
	f := r.flows[p.flow]
	if f == nil {
		f = &rfcFlow{}
		r.flows[p.flow] = f
	}
	f.packets = append(f.packets, p)
	if !f.listed {
		f.listed, f.credits = true, int(r.Quantum)
		r.newFlows = append(r.newFlows, f)
	}
	if packets+1 > r.limit && !idle {
		var fat *rfcFlow
		most := 0
		for flow := range int(r.Flows) { // the first of equals
			size := 0
			if of := r.flows[flow]; of != nil {
				for _, p := range of.packets {
					size += p.bytes
				}
				if size > most {
					fat, most = of, size
				}
			}
		}
		for gone, n := 0, 0; n < 64 && (n == 0 || gone < most/2); n++ {
			gone += fat.packets[0].bytes
			r.drops = append(r.drops, fate{fat.packets[0].handle, "overflow", 0})
			fat.packets = fat.packets[1:]
			fat.count++
		}
	}
}

// dodequeue is that of RFC 8289, section 5.4.
func (r *rfc) dodequeue(f *rfcFlow, now int64) (p *arrival, okToDrop bool) {
	if len(f.packets) == 0 {
		f.firstAbove = 0
		return nil, false
	}
	first := f.packets[0]
	f.packets = f.packets[1:]
	if _, bytes := r.backlog(); now-first.atNS < r.TargetNS || bytes <= 1514 {
		f.firstAbove = 0
	} else if f.firstAbove == 0 {
		f.firstAbove = now + r.IntervalNS
	} else {
		okToDrop = now >= f.firstAbove
	}
	return &first, okToDrop
}

func (r *rfc) law(at int64, count int) int64 {
	return at + int64(float64(r.IntervalNS)/math.Sqrt(float64(count)))
}

func (r *rfc) codel(f *rfcFlow, now int64) (p *arrival, marked bool) {
	p, ok := r.dodequeue(f, now)
	if f.dropping && !ok {
		f.dropping = false
		return p, false
	}
	if f.dropping {
		for now >= f.dropNext && f.dropping {
			if f.count++; r.ECN && p.ect {
				f.dropNext = r.law(f.dropNext, f.count)
				return p, true
			}
			r.drops = append(r.drops, fate{p.handle, "dropped", 0})
			if p, ok = r.dodequeue(f, now); ok {
				f.dropNext = r.law(f.dropNext, f.count)
			} else {
				f.dropping = false
			}
		}
		return p, false
	}
	if ok {
		if marked = r.ECN && p.ect; !marked {
			r.drops = append(r.drops, fate{p.handle, "dropped", 0})
			p, _ = r.dodequeue(f, now)
		}
		delta := f.count - f.lastCount
		if f.count = 1; delta > 1 && now-f.dropNext < 16*r.IntervalNS {
			f.count = delta
		}
		f.dropping, f.lastCount, f.dropNext = true, f.count, r.law(now, f.count)
	}
	return p, marked
}

func (r *rfc) dequeue(now int64) (p *arrival, marked bool) {
	for len(r.newFlows)+len(r.oldFlows) > 0 {
		isNew := len(r.newFlows) > 0
		list := &r.oldFlows
		if isNew {
			list = &r.newFlows
		}
		f := (*list)[0]
		if r.Kind == FQCoDel && r.Flows > 1 && f.credits <= 0 {
			f.credits += int(r.Quantum)
			*list = (*list)[1:]
			r.oldFlows = append(r.oldFlows, f)
			continue
		}
		if p, marked = r.codel(f, now); p != nil {
			f.credits -= p.bytes
			return p, marked
		}
		*list = (*list)[1:]
		if isNew && len(r.oldFlows) > 0 {
			r.oldFlows = append(r.oldFlows, f)
		} else {
			f.listed = false
		}
	}
	return nil, false
}

// play returns the frames as they leave; a frame takes byteNS for each byte.
func (r *rfc) play() (out []fate) {
	r.flows = map[int]*rfcFlow{}
	free := int64(0)
	serve := func(until int64) {
		for {
			packets, _ := r.backlog()
			first := int64(math.MaxInt64)
			for _, f := range r.flows {
				for _, p := range f.packets {
					first = min(first, p.atNS)
				}
			}
			if packets == 0 || max(free, first) > until {
				return
			}
			now := max(free, first)
			if p, marked := r.dequeue(now); p != nil {
				free = now + int64(p.bytes)*r.byteNS
				what := "sent"
				if marked {
					what = "marked"
				}
				out = append(out, fate{p.handle, what, free})
			}
		}
	}
	for _, p := range r.arrivals {
		serve(p.atNS)
		packets, _ := r.backlog()
		r.enqueue(p, packets == 0 && free <= p.atNS)
	}
	serve(math.MaxInt64)
	return out
}

// TestDisciplinesAreThoseOfTheRFCs compares random loads with the reference: which frames are sent when, which are
// marked and dropped. Frames are read as late as the delay of the link, which changes nothing.
func TestDisciplinesAreThoseOfTheRFCs(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 9))
		aqm := AQM{Kind: CoDel, TargetNS: 1 + random.Int64N(ms), IntervalNS: 1 + random.Int64N(5*ms),
			ECN: random.IntN(2) == 0}
		flows := 1
		if random.IntN(3) > 0 {
			flows = 1 + random.IntN(8)
			aqm.Kind = FQCoDel
			aqm.Flows, aqm.Quantum = input.Limit(1+random.IntN(16)), input.Limit(256+random.IntN(3000))
		}
		delayNS, byteNS := random.Int64N(3*ms), 1+random.Int64N(80)
		sizes := make([]int, flows)
		for i := range sizes {
			sizes[i] = 42 + random.IntN(1473)
		}
		if seed%4 == 0 { // some drops are due right at a departure
			aqm.IntervalNS = int64(sizes[0]) * byteNS * (1 + random.Int64N(5))
		}
		limit := 1 + random.IntN(300)
		b := newBench(Params{DelayNS: delayNS, RateBPS: input.Limit(8e9 / byteNS), QueueFrames: input.Limit(limit),
			AQM: aqm})
		if 8e9/float64(byteNS) != math.Trunc(8e9/float64(byteNS)) {
			continue // of the rest, departures are whole nanoseconds
		}
		want := &rfc{AQM: aqm, limit: limit, byteNS: byteNS}
		nowNS, gapNS := int64(0), 1+random.Int64N(2*700*byteNS)
		readNS := int64(0)
		for i := range 2500 {
			nowNS += random.Int64N(gapNS)
			if random.IntN(200) == 0 {
				nowNS += random.Int64N(20 * ms)
			}
			flow, ect := random.IntN(flows), random.IntN(2) == 0
			frame := udp(sizes[flow], flow, ect)
			queue := 0
			if aqm.Kind == FQCoDel && aqm.Flows > 1 {
				queue = int(packetOf(frame).hash(b.queue.hash) % uint64(aqm.Flows))
			}
			want.arrivals = append(want.arrivals, arrival{nowNS, uint32(i), len(frame), queue, ect})
			readNS = min(max(readNS, nowNS+random.Int64N(delayNS+1)), nowNS+delayNS)
			b.until(readNS - 1)
			b.put(nowNS, frame)
		}
		b.until(1 << 61)
		out := want.play()
		for i := range out {
			out[i].dueNS += delayNS
			counts[out[i].what]++
		}
		for _, drop := range want.drops {
			counts[drop.what]++
		}
		for i := range min(len(out), len(b.out)) {
			assert.Must(t, out[i] == b.out[i], "seed %d: %+v: %d: %v, want %v", seed, aqm, i, b.out[i], out[i])
		}
		assert.Must(t, len(out) == len(b.out) && slices.Equal(want.drops, b.dropped),
			"seed %d: %+v: dropped %v, want %v", seed, aqm, b.dropped, want.drops)
		assert.That(t, b.Len() == 0 && len(b.out)+len(b.dropped) == 2500, "seed %d: frames are lost", seed)
	}
	for _, what := range []string{"sent", "marked", "dropped", "overflow"} {
		assert.That(t, counts[what] > 1000, "only %d frames were %s", counts[what], what)
	}
}

var fq = AQM{Kind: FQCoDel, TargetNS: MaxDelayNS, IntervalNS: MaxDelayNS, Flows: 1024, Quantum: 1514}

// TestChangesOfTheDisciplineKeepFrames: whatever changes and is cut, every frame comes off once or is dropped, and a
// change drops none.
func TestChangesOfTheDisciplineKeepFrames(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 10))
		draw := func() Params {
			p := randomParams(random)
			p.AQM = []AQM{{}, codel, fq, {Kind: FQCoDel, TargetNS: 1 + random.Int64N(ms),
				IntervalNS: 1 + random.Int64N(ms), ECN: true, Flows: input.Limit(1 + random.IntN(5)),
				Quantum: 300}}[random.IntN(4)]
			return p
		}
		b, nowNS, cut := newBench(draw()), int64(0), 0
		for range 2000 {
			nowNS += random.Int64N(30_000)
			b.until(nowNS)
			switch random.IntN(100) {
			case 0, 1, 2:
				if b.queue != nil {
					b.queue.decide(&b.Line, nowNS)
				}
				held, dropped := b.Len(), len(b.dropped)
				b.Set(nowNS, draw())
				assert.Must(t, b.Len() == held && len(b.dropped) == dropped, "seed %d: a change lost frames", seed)
			case 3:
				b.Cut(nowNS, func(Frame) { cut++ })
				assert.Must(t, b.Len() == 0, "seed %d: %d frames are left of a cut", seed, b.Len())
			case 4:
				b.ResetCounters(nowNS)
			}
			b.put(nowNS, udp(42+random.IntN(1472), random.IntN(6), random.IntN(2) == 0))
		}
		b.until(1 << 61)
		seen := map[uint32]bool{}
		for _, of := range slices.Concat(b.out, b.dropped) {
			assert.Must(t, !seen[of.handle], "seed %d: frame %d came off twice", seed, of.handle)
			seen[of.handle] = true
		}
		waiting, bytes := b.Waiting(1 << 61)
		assert.Must(t, len(seen)+cut == 2000 && waiting == 0 && bytes == 0 && b.Len() == 0,
			"seed %d: %d of 2000 frames, %d cut, %d with %d bytes wait", seed, len(seen), cut, waiting, bytes)
	}
}

// TestCopiesAndDamagesAreDrawnApart: their shares are the configured ones, and they change neither losses nor delays.
func TestCopiesAndDamagesAreDrawnApart(t *testing.T) {
	const n = 200_000
	plain := Params{DelayNS: ms, Loss: Loss{Model: Independent, Ratio: 0.3}, Seed: 3,
		Jitter: Jitter{Distribution: Uniform, NS: ms / 2, Reorder: true}}
	spiced := plain
	spiced.Duplication, spiced.Corruption = 0.1, 0.2
	one, two := newLine(plain), newLine(spiced)
	twice, damaged, both, copiesOfLost := make([]bool, n), make([]bool, n), 0, 0
	flips := map[uint16]int{}
	for i := range n {
		offer(t, one, int64(i)*10*ms, 100)
		offer(t, two, int64(i)*10*ms, 100)
		a, b := one.Pop(), two.Pop()
		assert.Must(t, a.Lost == b.Lost && a.DueNS == b.DueNS && !a.Twice && a.Flip == 0, "frame %d changed", i)
		twice[i], damaged[i] = b.Twice, b.Flip != 0
		if b.Twice && b.Flip != 0 {
			both++
		}
		if b.Twice && b.Lost {
			copiesOfLost++
		}
		flips[b.Flip>>12]++
	}
	within(t, "copies", share(twice), 0.1, math.Sqrt(0.09/n))
	within(t, "damages", share(damaged), 0.2, math.Sqrt(0.16/n))
	within(t, "both", float64(both)/n, 0.02, math.Sqrt(0.02/n))
	within(t, "copies of lost frames", float64(copiesOfLost)/n, 0.03, math.Sqrt(0.03/n))
	for part := uint16(1); part < 16; part++ {
		within(t, "flips", float64(flips[part])/n, 0.2/16, math.Sqrt(0.2/16/n))
	}
}
