package model

import (
	"math/rand/v2"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
)

// record is what a property run knows of one accepted frame.
type record struct {
	handle           uint32
	bytes            int
	offeredNS, dueNS int64
	lost             bool
}

func byHandle(a, b record) int { return int(a.handle) - int(b.handle) }

// run is a line that is driven in simulated time.
type run struct {
	*Line
	now      int64
	accepted []record // in the order of the offers
	popped   []record // in the order in which they came off
}

// advance pops what is due.
func (r *run) advance() {
	for due, ok := r.Next(); ok && due <= r.now; due, ok = r.Next() {
		f := r.Pop()
		r.popped = append(r.popped, record{handle: f.Handle, bytes: int(f.Bytes), dueNS: f.DueNS, lost: f.Lost})
	}
}

func (r *run) offer(bytes int) Verdict {
	handle := uint32(len(r.accepted))
	verdict := r.Offer(r.now, handle, bytes)
	if verdict == Accepted {
		r.accepted = append(r.accepted, record{handle: handle, bytes: bytes, offeredNS: r.now})
	}
	return verdict
}

func (r *run) drain() {
	r.now = 1 << 61
	r.advance()
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
		r := &run{Line: newLine(params)}
		var least []int64
		ahead := int64(0) // latest due time of what was on the wire at the last change
		reordered := params.Jitter.Reorder
		for range 2000 {
			r.now += random.Int64N(30_000)
			r.advance()
			if random.IntN(50) == 0 {
				waiting, _ := r.Waiting(r.now)
				params = randomParams(random)
				reordered = reordered || params.Jitter.Reorder
				for i := r.head; i < r.tail-uint64(waiting); i++ {
					ahead = max(ahead, r.at(i).DueNS)
				}
				r.Set(r.now, params)
				for i := range waiting { // these follow the new delay, from now on at the earliest
					least[r.at(r.tail-1-uint64(i)).Handle] = r.now + params.DelayNS - params.Jitter.ReachNS()
				}
			}
			if r.offer(60+random.IntN(1455)) == Accepted {
				least = append(least, r.depart.ceil()+params.DelayNS-params.Jitter.ReachNS())
				due, most := r.at(r.tail-1).DueNS, max(ahead, r.depart.ceil()+params.DelayNS+params.Jitter.ReachNS())
				assert.Must(t, due <= most, "seed %d: a frame is due at %d, the delay says %d at most", seed, due, most)
			}
		}
		r.drain()
		waiting, bytes := r.Waiting(r.now)
		assert.Must(t, len(r.popped) == len(least) && r.Len() == 0 && waiting == 0 && bytes == 0,
			"seed %d: %d accepted, %d delivered, %d with %d bytes wait", seed, len(least), len(r.popped), waiting, bytes)
		seen := make([]bool, len(least))
		for i, out := range r.popped {
			assert.Must(t, !seen[out.handle] && out.bytes == r.accepted[out.handle].bytes,
				"seed %d: frame %d came off twice or changed", seed, out.handle)
			seen[out.handle] = true
			assert.Must(t, out.dueNS >= least[out.handle] && (i <= 0 || out.dueNS >= r.popped[i-1].dueNS),
				"seed %d: frame %d is due at %d, not before %d", seed, out.handle, out.dueNS, least[out.handle])
			assert.Must(t, reordered || int(out.handle) == i, "seed %d: frame %d overtakes", seed, out.handle)
		}
	}
}
