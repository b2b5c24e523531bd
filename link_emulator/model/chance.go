package model

import "math/rand/v2"

// chance draws the losses and delays of one direction. Loss and jitter have separate draws, so that changing one does
// not affect the other. The draws of a frame depend only on the seed, the line's salt and the frame's number among
// those accepted since the draws started, not on when or how often they are made. So a frame that waits while the line
// is changed keeps its draws. (The Gilbert-Elliott state also depends on the frames before.)
type chance struct {
	seed   int64
	first  uint64 // position of the frame with number 0
	loss   uint64 // keys of the draws
	jitter uint64
	bad    bool // the state of Gilbert-Elliott
	draws  splitmix
	random *rand.Rand // draws from draws
}

// restart restarts all draws with the frame at position first.
func (c *chance) restart(seed int64, salt, first uint64) {
	c.seed, c.first, c.bad = seed, first, false
	c.loss = scramble(scramble(uint64(seed)) ^ scramble(salt+1))
	c.jitter = scramble(c.loss)
	if c.random == nil {
		c.random = rand.New(&c.draws)
	}
}

// lost draws whether the frame at a position is lost. Must be called once per frame, in order.
func (c *chance) lost(l *Loss, position uint64) bool {
	switch l.Model {
	case Independent:
		c.begin(c.loss, position)
		return c.happens(l.Ratio)
	case GilbertElliott:
		c.begin(c.loss, position)
		loss, leave := l.GoodLoss, l.GoodToBad
		if c.bad {
			loss, leave = l.BadLoss, l.BadToGood
		}
		lost := c.happens(loss)
		if c.happens(leave) {
			c.bad = !c.bad
		}
		return lost
	}
	return false
}

// happens is true with the given probability: 0 never, 1 always.
func (c *chance) happens(probability float64) bool {
	return float64(c.draws.Uint64()>>11)*0x1p-53 < probability
}

// delay draws the delay of the frame at a position.
func (c *chance) delay(p *Params, position uint64) int64 {
	switch p.Jitter.Distribution {
	case Uniform:
		c.begin(c.jitter, position)
		return p.DelayNS - p.Jitter.NS + c.random.Int64N(2*p.Jitter.NS+1)
	case Normal:
		c.begin(c.jitter, position)
		for {
			if z := c.random.NormFloat64(); z >= -normalTail && z <= normalTail {
				return p.DelayNS + int64(z*float64(p.Jitter.NS))
			}
		}
	}
	return p.DelayNS
}

func (c *chance) begin(key, position uint64) {
	c.draws.state = scramble(key + (position-c.first)*golden)
}

// splitmix is SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). Unlike
// most generators it can start at any point of its sequence, so every frame has a sequence of its own.
type splitmix struct{ state uint64 }

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, as there

// Uint64 implements rand.Source.
func (s *splitmix) Uint64() uint64 {
	s.state += golden
	return scramble(s.state)
}

// scramble is the mixing function of SplitMix64 (Stafford's variant 13).
func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
