package model

import "math/rand/v2"

// chance draws the fates and delays of one direction. Loss and jitter have sequences of their own, so that changing one leaves the
// other as it was. The sequences depend on the seed and on how many frames were accepted before, on nothing else.
type chance struct {
	seed   uint64
	loss   rand.PCG
	jitter rand.PCG
	random *rand.Rand // draws from jitter
	bad    bool       // the state of Gilbert-Elliott
}

// restart begins both sequences anew.
func (c *chance) restart(seed uint64) {
	c.seed, c.bad = seed, false
	c.loss.Seed(seed, 1)
	c.jitter.Seed(seed, 2)
	if c.random == nil {
		c.random = rand.New(&c.jitter)
	}
}

// lost draws the fate of the next frame.
func (c *chance) lost(l *Loss) bool {
	switch l.Model {
	case Independent:
		return c.happens(l.Ratio)
	case GilbertElliott:
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

// happens is true with a probability; 0 never, 1 always.
func (c *chance) happens(probability float64) bool {
	return float64(c.loss.Uint64()>>11)*0x1p-53 < probability
}

// delay draws the delay of the next frame.
func (c *chance) delay(p *Params) int64 {
	switch p.Jitter.Distribution {
	case Uniform:
		return p.DelayNS - p.Jitter.NS + c.random.Int64N(2*p.Jitter.NS+1)
	case Normal:
		for {
			if z := c.random.NormFloat64(); z >= -normalTail && z <= normalTail {
				return p.DelayNS + int64(z*float64(p.Jitter.NS))
			}
		}
	}
	return p.DelayNS
}
