package keys

import (
	"math"
	"testing"
)

func TestDrawsAreUniformAndDependOnSeedAndStreamOnly(t *testing.T) {
	const n = 100_000
	a, again, stream, seed := NewDraw(1, StreamKeys), NewDraw(1, StreamKeys), NewDraw(1, StreamArrival),
		NewDraw(2, StreamKeys)
	sum, squares := 0.0, 0.0
	for i := range uint64(n) {
		x := a.At(i)
		if x <= 0 || x >= 1 || x != again.At(i) || x == stream.At(i) || x == seed.At(i) {
			t.Fatalf("draw %d is %v", i, x)
		}
		sum += x
		squares += x * x
	}
	if mean, square := sum/n, squares/n; math.Abs(mean-0.5) > 0.005 || math.Abs(square-1./3) > 0.005 {
		t.Errorf("mean %v, mean square %v", mean, square)
	}
}

// TestDistributions compares how often each key is drawn with the probability that the definition gives it, within
// five standard deviations.
func TestDistributions(t *testing.T) {
	const n = 100_000
	for _, space := range []int{1, 2, 10, 1000} {
		for _, exponent := range []float64{0, 0.5, 0.99, 1, 1.2, 3} {
			order, weight, total := NewUniform(space, 3), make([]float64, space), 0.0
			if exponent > 0 {
				order = NewZipfian(space, exponent, 3)
			}
			for k := range weight {
				weight[k] = math.Pow(float64(k+1), -exponent)
				total += weight[k]
			}
			counts := make([]int, space)
			for i := range n {
				counts[order.Key(i)]++
			}
			for k, count := range counts {
				p := weight[k] / total
				want, deviation := n*p, math.Sqrt(n*p*(1-p))
				if math.Abs(float64(count)-want) > 5*deviation+1 {
					t.Errorf("space %d, exponent %v: key %d was drawn %d times, want %.0f +- %.0f", space, exponent, k,
						count, want, 5*deviation)
				}
			}
		}
	}
}

func TestDrawnOrdersAreRepeatableAndInTheSpace(t *testing.T) {
	const space = 1_000_000_000
	for name, pair := range map[string][2]Order{
		"uniform": {NewUniform(space, 1), NewUniform(space, 1)},
		"zipfian": {NewZipfian(space, 0.99, 1), NewZipfian(space, 0.99, 1)},
	} {
		for i := range 10_000 {
			if a, b := pair[0].Key(i), pair[1].Key(i); a != b || a >= space {
				t.Fatalf("%s: request %d uses key %d and %d", name, i, a, b)
			}
		}
	}
}

func BenchmarkZipfian(b *testing.B) {
	order, i := NewZipfian(1_000_000, 0.99, 1), 0
	b.ReportAllocs()
	for b.Loop() {
		order.Key(i)
		i++
	}
}
