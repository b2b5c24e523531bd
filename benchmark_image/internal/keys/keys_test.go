package keys

import (
	"bytes"
	"compress/flate"
	"errors"
	"math"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

func TestRoomAndMinSizeAgree(t *testing.T) {
	for _, c := range []struct{ size, room int }{{1, 62}, {2, 3844}, {4, 14776336}, {8, 218340105584896}} {
		got := Room(c.size)
		assert.That(t, got == c.room, "Room(%d) = %d, want %d", c.size, got, c.room)
		assert.Equal(t, MinSize(c.room), c.size, "MinSize(%d)", c.room)
		assert.Equal(t, MinSize(c.room+1), c.size+1, "MinSize(%d)", c.room+1)
	}
	assert.That(t, Room(1024) > 0 && Room(11) > 0, "Room overflows for large sizes")
}

// TestNumbersOfKeys: keys are of their size and sorted, whatever a buffer held before; Number undoes Append, and knows
// no other key.
func TestNumbersOfKeys(t *testing.T) {
	for _, c := range []struct{ space, size int }{{1, 1}, {62, 1}, {3844, 2}, {5000, 3}, {300, 12}, {300, 1024}} {
		previous, buffer := "", Append(nil, 61, c.size+2)
		for i := range c.space {
			key := Append(append(buffer[:0], "p/"...), uint64(i), c.size)
			if text := string(key); len(text) != 2+c.size || text <= previous {
				t.Fatalf("key %d of size %d is %q, after %q", i, c.size, text, previous)
			}
			previous = string(key)
			n, ok := Number(key, "p/", c.size)
			assert.Must(t, ok && n == uint64(i), "%q is number %d, %v; want %d", key, n, ok, i)
			before := Before(key, "p/", c.size, c.space)
			assert.Must(t, before == uint64(i), "%d of %d keys sort before %q, want %d", before, c.space, key, i)
			if before := Before(append(key, 0), "p/", c.size, c.space); before != uint64(i)+1 {
				t.Fatalf("%d of %d keys sort before what follows on %q, want %d", before, c.space, key, i+1)
			}
		}
		none, all := Before(nil, "p/", c.size, c.space), Before([]byte("p0"), "p/", c.size, c.space)
		assert.That(t, none == 0 && all == uint64(c.space), "%d of %d keys sort before all keys, %d before a later prefix",
			none, c.space, all)
	}
	for _, key := range []string{"", "p", "p/", "p/0", "p/000", "q/00", "p/0-", "p/0\x00", "p/\xff0", "P/00"} {
		n, ok := Number([]byte(key), "p/", 2)
		assert.That(t, !ok, "%q is number %d", key, n)
	}
	largest, known := Number([]byte("AzL8n0Y58m7"), "", 11)
	assert.That(t, known && largest == math.MaxInt, "the key of the largest number is number %d, %v", largest, known)
	for _, key := range []string{"AzL8n0Y58m8", "zzzzzzzzzzz", "100000000000"} {
		n, ok := Number([]byte(key), "", len(key))
		assert.That(t, !ok, "%q, beyond the largest number, is number %d", key, n)
	}
}

func TestEveryOrderUsesEachKeyOnceBeforeAnyTwice(t *testing.T) {
	for _, sequential := range []bool{true, false} {
		for _, space := range []int{1, 2, 3, 5, 64, 1000, 4097} {
			order := NewOrder(space, sequential, 7)
			for round := range 3 {
				seen := make([]bool, space)
				for i := range space {
					key := order.Key(round*space + i)
					assert.Must(t, key < uint64(space) && !seen[key],
						"sequential %v, space %d, round %d: request %d uses key %d again or outside", sequential, space, round, i,
						key)
					seen[key] = true
				}
			}
		}
	}
}

func TestRandomOrderDependsOnTheSeedOnly(t *testing.T) {
	const space = 1000
	other, inPlace := 0, 0
	a, again, b := NewOrder(space, false, 1), NewOrder(space, false, 1), NewOrder(space, false, 2)
	for i := range space {
		assert.Must(t, a.Key(i) == again.Key(i), "the same seed gives different keys")
		if a.Key(i) == b.Key(i) {
			other++
		}
		if a.Key(i) == uint64(i) {
			inPlace++
		}
	}
	assert.That(t, other <= space/50 && inPlace <= space/50,
		"of %d keys, %d are the same for another seed and %d stay in order", space, other, inPlace)
}

func TestValues(t *testing.T) {
	for _, size := range []int{0, 1, 64, 256, 1 << 20} {
		values := NewValues(size, 3)
		got := len(values.At(12345))
		assert.That(t, got == size, "a value of size %d has %d bytes", size, got)
		assert.That(t, bytes.Equal(values.At(5), NewValues(size, 3).At(5)), "values of size %d are not repeatable", size)
		assert.That(t, size < 64 || !bytes.Equal(values.At(5), values.At(6)), "neighbouring values of size %d are equal",
			size)
	}
}

func TestValuesResistCompression(t *testing.T) {
	const size = 100_000
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	_, written := w.Write(NewValues(size, 1).At(0))
	// 62 letters carry 5.95 bits of each byte's 8.
	if err := errors.Join(err, written, w.Close()); err != nil || packed.Len() < size*70/100 {
		t.Errorf("%d bytes were compressed to %d: %v", size, packed.Len(), err)
	}
}

func TestDrawsAreUniformAndDependOnSeedAndStreamOnly(t *testing.T) {
	const n = 100_000
	a, again, stream, seed := NewDraw(1, StreamKeys), NewDraw(1, StreamKeys), NewDraw(1, StreamArrival),
		NewDraw(2, StreamKeys)
	sum, squares := 0.0, 0.0
	for i := range uint64(n) {
		x := a.At(i)
		assert.Must(t, x > 0 && x < 1 && x == again.At(i) && x != stream.At(i) && x != seed.At(i), "draw %d is %v", i, x)
		sum += x
		squares += x * x
	}
	mean, square := sum/n, squares/n
	assert.That(t, math.Abs(mean-0.5) <= 0.005 && math.Abs(square-1./3) <= 0.005, "mean %v, mean square %v", mean, square)
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
			again := order
			if exponent > 0 {
				again = NewZipfian(space, exponent, 3)
			}
			counts := make([]int, space)
			for i := range n {
				if key := order.Key(i); key != again.Key(i) {
					t.Fatalf("space %d, exponent %v: request %d uses key %d and %d", space, exponent, i, key, again.Key(i))
				}
				counts[order.Key(i)]++
			}
			for k, count := range counts {
				p := weight[k] / total
				want, deviation := n*p, math.Sqrt(n*p*(1-p))
				assert.That(t, math.Abs(float64(count)-want) <= 5*deviation+1,
					"space %d, exponent %v: key %d was drawn %d times, want %.0f +- %.0f", space, exponent, k, count, want,
					5*deviation)
			}
		}
	}
}

func TestVersionsTellTheirWriters(t *testing.T) {
	for _, size := range []int{VersionSize, VersionSize + 1, 256, 1 << 20} {
		values := NewValues(size, 7)
		for _, id := range []ID{{Run: 1}, {Run: MaxRun, Client: 9999, Number: 9_999_999}, {Run: 5, Client: 3, Number: 1}} {
			head, tail := values.Version(nil, 17, id)
			value := append(bytes.Clone(head), tail...)
			if got, ok := values.Writer(17, value); !ok || got != id || len(value) != size {
				t.Errorf("%d bytes: %+v, %v, want %+v", len(value), got, ok, id)
			}
			if got, err := ParseID(id.String()); err != nil || got != id || id.String() != string(value[:NameSize]) {
				t.Errorf("%q: %+v, %v", id.String(), got, err)
			}
			_, ofAnotherKey := values.Writer(18, value)
			assert.That(t, !ofAnotherKey, "%q is taken for a version of another key", value[:VersionSize])
			_, ofAnotherSeed := NewValues(size, 8).Writer(17, value)
			assert.That(t, !ofAnotherSeed, "%q is taken for a version of another seed", value[:VersionSize])
			if _, ok := values.Writer(17, value[:size-1]); ok {
				t.Error("a version that is cut off is accepted")
			}
			for at := range min(size, 300) {
				own := value[at]
				for _, c := range []byte{0, '0', 'z'} {
					value[at] = c
					got, ok := values.Writer(17, value)
					assert.That(t, !ok || c == own, "with %q at byte %d it is taken for %+v", c, at, got)
				}
				value[at] = own
			}
		}
	}
}

func TestValuesOfADataSetHaveNoWriter(t *testing.T) {
	for _, size := range []int{0, 8, VersionSize, 256} {
		values := NewValues(size, 7)
		id, ok := values.Writer(3, values.At(3))
		assert.That(t, ok && id == (ID{}) && id.String() == "=", "%d bytes: %+v, %v", size, id, ok)
	}
	if id, err := ParseID("="); err != nil || id != (ID{}) {
		t.Errorf("%+v, %v", id, err)
	}
	for _, name := range []string{"", "-", "00000000000000", "0000000000000000", "000000000000000", "00000100000000-"} {
		id, err := ParseID(name)
		assert.That(t, err != nil, "%q is %+v", name, id)
	}
}

func TestVersionsDoNotAllocate(t *testing.T) {
	values := NewValues(1000, 1)
	var room [VersionSize]byte
	value := make([]byte, 0, 1000)
	if n := testing.AllocsPerRun(1000, func() {
		head, tail := values.Version(room[:0], 5, ID{Run: 9, Client: 2, Number: 77})
		value = append(append(value[:0], head...), tail...)
		_, ok := values.Writer(5, value)
		assert.That(t, ok, "refused")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
