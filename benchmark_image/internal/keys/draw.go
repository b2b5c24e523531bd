package keys

import "math"

// Draw gives random numbers as a pure function of their index: streams of the same seed differ by their
// name.
type Draw struct{ seed uint64 }

// The streams of random numbers that a load draws from.
const (
	StreamKeys    = 1
	StreamArrival = 2
	StreamKinds   = 3
)

// NewDraw gives a stream of random numbers.
func NewDraw(seed int64, stream uint64) Draw { return Draw{mix(mix(uint64(seed)) + stream)} }

// bits53 is 2 to the power of a float64's precision in bits.
const bits53 = 1 << 53

// At gives number index of the stream, in (0, 1).
func (d Draw) At(index uint64) float64 {
	return (float64(mix(d.seed+mix(index))>>11) + 0.5) / bits53
}

// NewUniform gives an order in which every request uses a key drawn from the space, each with the same probability.
// space must be positive.
func NewUniform(space int, seed int64) Order {
	return &uniform{float64(space), uint64(space), NewDraw(seed, StreamKeys)}
}

type uniform struct {
	space float64
	count uint64
	draw  Draw
}

func (u *uniform) Key(request int) uint64 {
	return min(uint64(u.draw.At(uint64(request))*u.space), u.count-1)
}

// zipfian draws key k with a probability proportional to 1/(k+1)^exponent, by rejection-inversion: Hormann and
// Derflinger, 'Rejection-Inversion to Generate Variates from Monotone Discrete Distributions', ACM TOMACS 6 (1996).
// It needs no table and, on average, fewer than two draws.
type zipfian struct {
	space    float64
	exponent float64
	draw     Draw

	integralFirst, integralLast, shortcut float64
}

// NewZipfian gives an order in which every request uses a key drawn from the space: key 0 is the most frequent one,
// and key k comes (k+1)^exponent times less often. space and exponent must be positive.
func NewZipfian(space int, exponent float64, seed int64) Order {
	z := &zipfian{space: float64(space), exponent: exponent, draw: NewDraw(seed, StreamKeys)}
	z.integralFirst = z.integral(1.5) - 1
	z.integralLast = z.integral(z.space + 0.5)
	z.shortcut = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z
}

// attempts is how many draws are reserved for each request; that many consecutive rejections do not happen.
const attempts = 64

func (z *zipfian) Key(request int) uint64 {
	for i := range uint64(attempts) {
		u := z.integralLast + z.draw.At(uint64(request)*attempts+i)*(z.integralFirst-z.integralLast)
		x := z.inverse(u)
		k := min(max(math.Round(x), 1), z.space)
		if k-x <= z.shortcut || u >= z.integral(k+0.5)-z.density(k) {
			return uint64(k) - 1
		}
	}
	return 0
}

func (z *zipfian) density(x float64) float64 { return math.Exp(-z.exponent * math.Log(x)) }

// integral is the integral of the density, also where the exponent is 1 and the usual formula divides by zero.
func (z *zipfian) integral(x float64) float64 {
	logarithm := math.Log(x)
	return expRatio((1-z.exponent)*logarithm) * logarithm
}

func (z *zipfian) inverse(x float64) float64 {
	return math.Exp(logRatio(max(x*(1-z.exponent), -1)) * x)
}

// expRatio is (e^x - 1) / x, which is 1 at 0.
func expRatio(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 + x/2
	}
	return math.Expm1(x) / x
}

// logRatio is log(1 + x) / x, which is 1 at 0.
func logRatio(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 - x/2
	}
	return math.Log1p(x) / x
}
