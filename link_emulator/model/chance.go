package model

import (
	"math"
	"math/rand/v2"
)

// chance draws the losses, delays, duplicates and damages of one direction. Each has draws of its own, so that changing
// one does not affect the others.
//
// The losses of a frame, and its delay if frames may overtake each other, depend only on the seed, the line's salt and
// the frame's number among those accepted since the draws started, not on when or how often they are made. So a frame
// that waits while the line is changed keeps its draws. (The Gilbert-Elliott state also depends on the frames before.)
// Where order is kept, the delay is a path in time, which depends only on the seed, the salt, the correlation time and
// the time since the draws started: at the same time, any frame would meet the same delay.
type chance struct {
	seed    int64
	first   uint64 // position of the frame with number 0
	startNS int64  // when the draws started
	loss    uint64 // keys of the draws
	jitter  uint64
	copies  uint64
	damage  uint64
	bad     bool // the state of Gilbert-Elliott
	draws   splitmix
	random  *rand.Rand // draws from draws

	knot  int64      // number of the first of knots; -1: none drawn
	knots [2]float64 // of the path, at the ends of the current interval
}

// restart restarts all draws at nowNS with the frame at position first.
func (c *chance) restart(seed int64, salt, first uint64, nowNS int64) {
	c.seed, c.first, c.startNS, c.bad, c.knot = seed, first, nowNS, false, -1
	c.loss = scramble(scramble(uint64(seed)) ^ scramble(salt+1))
	c.jitter = scramble(c.loss)
	c.copies = scramble(c.jitter)
	c.damage = scramble(c.copies)
	if c.random == nil {
		c.random = rand.New(&c.draws)
	}
}

// lost draws whether the frame at a position is lost. Must be called once per frame, in order.
func (c *chance) lost(l *Loss, position uint64) bool {
	switch l.Model {
	case Independent:
		c.begin(c.loss, position-c.first)
		return c.happens(l.Ratio)
	case GilbertElliott:
		c.begin(c.loss, position-c.first)
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

// twice draws whether the frame at a position arrives twice.
func (c *chance) twice(ratio float64, position uint64) bool {
	c.begin(c.copies, position-c.first)
	return c.happens(ratio)
}

// flip draws whether a bit of the frame at a position is flipped, and which; 0: none. See Corrupt.
func (c *chance) flip(ratio float64, position uint64) uint16 {
	c.begin(c.damage, position-c.first)
	if !c.happens(ratio) {
		return 0
	}
	return 1 + uint16(c.draws.Uint64()%0xffff)
}

// happens is true with the given probability: 0 never, 1 always.
func (c *chance) happens(probability float64) bool {
	return float64(c.draws.Uint64()>>11)*0x1p-53 < probability
}

// delay draws the delay of the frame at a position, which leaves the serializer at departNS.
func (c *chance) delay(p *Params, position uint64, departNS int64) int64 {
	j := &p.Jitter
	switch {
	case j.Distribution == NoJitter:
		return p.DelayNS
	case !j.Reorder:
		return p.DelayNS + int64(float64(j.NS)*quantile(j.Distribution, c.path(departNS, int64(j.CorrelationNS))))
	}
	c.begin(c.jitter, position-c.first)
	if j.Distribution == Uniform {
		return p.DelayNS - j.NS + c.random.Int64N(2*j.NS+1)
	}
	for {
		if z := c.random.NormFloat64(); z >= -normalTail && z <= normalTail {
			return p.DelayNS + int64(z*float64(j.NS))
		}
	}
}

// path is the value at departNS of a stationary Gaussian process of mean 0 and variance 1. Independent normal draws,
// the knots, stand one correlation time apart, the first at a random phase. A fraction u of the way from a knot a to
// the next one, b, the path is cos(pi u / 2) a + sin(pi u / 2) b: its variance is exactly 1 everywhere, so a function
// of it has exactly the configured distribution. (Interpolated linearly it would be as low as 1/2.) Its slope is
// normal too, with the standard deviation pi/2 per correlation time, which is what keeps frames in order; see
// leastCorrelation.
//
// Two values that are s correlation times apart have the correlation (1 - s/2) cos(pi s / 2) + sin(pi s / 2) / pi: 1/pi
// after one, 0 from two on.
func (c *chance) path(departNS, correlationNS int64) float64 {
	sinceNS := max(0, departNS-c.startNS) + int64(scramble(c.jitter)%uint64(correlationNS))
	knot := sinceNS / correlationNS
	if knot != c.knot {
		c.knot = knot
		for i := range c.knots {
			c.begin(c.jitter, uint64(knot)+uint64(i))
			c.knots[i] = c.random.NormFloat64()
		}
	}
	sin, cos := math.Sincos(math.Pi / 2 * float64(sinceNS%correlationNS) / float64(correlationNS))
	return cos*c.knots[0] + sin*c.knots[1]
}

var insideTail = math.Erf(normalTail / math.Sqrt2) // probability of the normal distribution within its tails

// quantile turns a value of the standard normal distribution into one of the configured, of scale 1. Its slope is
// nowhere above 1.
func quantile(d Distribution, z float64) float64 {
	inside := math.Erf(z / math.Sqrt2)
	if d == Uniform {
		return inside
	}
	return math.Sqrt2 * math.Erfinv(insideTail*inside)
}

func (c *chance) begin(key, number uint64) {
	c.draws.state = scramble(key + number*golden)
}

// splitmix is SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). Unlike
// most generators it can start at any point of its sequence, so every frame has a sequence of its own.
type splitmix struct{ state uint64 }

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, as there

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
