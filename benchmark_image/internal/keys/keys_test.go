package keys

import (
	"bytes"
	"compress/flate"
	"math"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

func TestRoomAndMinSizeAgree(t *testing.T) {
	for _, c := range []struct{ size, room int }{{1, 62}, {2, 3844}, {4, 14776336}, {8, 218340105584896}} {
		assert.Equal(t, [3]int{Room(c.size), MinSize(c.room), MinSize(c.room + 1)}, [3]int{c.room, c.size, c.size + 1},
			"size %d: room, its size, that of one more", c.size)
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
			assert.Must(t, len(key) == 2+c.size && string(key) > previous, "key %d is %q, after %q", i, key, previous)
			previous = string(key)
			n, ok := Number(key, "p/", c.size)
			assert.Must(t, ok && n == uint64(i), "%q is number %d, %v; want %d", key, n, ok, i)
			before, after := Before(key, "p/", c.size, c.space), Before(append(key, 0), "p/", c.size, c.space)
			assert.Must(t, before == uint64(i) && after == uint64(i)+1,
				"of %d keys, %d sort before %q and %d before what follows on it", c.space, before, key, after)
		}
		none, all := Before(nil, "p/", c.size, c.space), Before([]byte("p0"), "p/", c.size, c.space)
		assert.Equal(t, [2]uint64{none, all}, [2]uint64{0, uint64(c.space)}, "keys before all, and before a later prefix")
	}
	for _, key := range []string{"", "p", "p/", "p/0", "p/000", "q/00", "p/0-", "p/0\x00", "p/\xff0", "P/00"} {
		n, ok := Number([]byte(key), "p/", 2)
		assert.That(t, !ok, "%q is number %d", key, n)
	}
	for _, key := range []string{"AzL8n0Y58m8", "zzzzzzzzzzz", "100000000000"} { // beyond the largest number
		n, ok := Number([]byte(key), "", len(key))
		assert.That(t, !ok, "%q is number %d", key, n)
	}
	largest, known := Number([]byte("AzL8n0Y58m7"), "", 11)
	assert.That(t, known && largest == math.MaxInt, "the key of the largest number is number %d, %v", largest, known)
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
						"sequential %v, %d keys, round %d: request %d uses key %d", sequential, space, round, i, key)
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
		assert.Equal(t, len(values.At(12345)), size, "size of a value")
		assert.That(t, bytes.Equal(values.At(5), NewValues(size, 3).At(5)), "values of size %d are not repeatable", size)
		assert.That(t, size < 64 || !bytes.Equal(values.At(5), values.At(6)), "neighbours of size %d are equal", size)
	}
}

func TestValuesResistCompression(t *testing.T) {
	const size = 100_000
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	_, written := w.Write(NewValues(size, 1).At(0))
	assert.OK(t, err, written, w.Close())
	assert.That(t, packed.Len() >= size*70/100, "%d bytes became %d", size, packed.Len()) // 5.95 bits of each byte's 8
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
			order, again, weight, total := NewUniform(space, 3), NewUniform(space, 3), make([]float64, space), 0.0
			if exponent > 0 {
				order, again = NewZipfian(space, exponent, 3), NewZipfian(space, exponent, 3)
			}
			for k := range weight {
				weight[k] = math.Pow(float64(k+1), -exponent)
				total += weight[k]
			}
			counts := make([]int, space)
			for i := range n {
				key := order.Key(i)
				assert.Must(t, key == again.Key(i), "space %d, exponent %v: request %d is not the same again", space, exponent, i)
				counts[key]++
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
			got, ok := values.Writer(17, value)
			assert.That(t, ok && got == id && len(value) == size, "%d bytes: %+v, %v, want %+v", len(value), got, ok, id)
			named, err := ParseID(id.String())
			assert.That(t, err == nil && named == id && id.String() == string(value[:NameSize]), "%q: %+v, %v", id, named, err)
			_, ofAnotherKey := values.Writer(18, value)
			_, ofAnotherSeed := NewValues(size, 8).Writer(17, value)
			_, cutOff := values.Writer(17, value[:size-1])
			assert.That(t, !ofAnotherKey && !ofAnotherSeed && !cutOff,
				"%q is taken for one of another key: %v, of another seed: %v, or cut off: %v", value[:VersionSize], ofAnotherKey,
				ofAnotherSeed, cutOff)
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
	none, err := ParseID("=")
	assert.That(t, err == nil && none == (ID{}), "%+v, %v", none, err)
	for _, name := range []string{"", "-", "00000000000000", "0000000000000000", "000000000000000", "00000100000000-"} {
		id, err := ParseID(name)
		assert.That(t, err != nil, "%q is %+v", name, id)
	}
}

func TestVersionsDoNotAllocate(t *testing.T) {
	values := NewValues(1000, 1)
	var room [VersionSize]byte
	value := make([]byte, 0, 1000)
	assert.Equal(t, testing.AllocsPerRun(1000, func() {
		head, tail := values.Version(room[:0], 5, ID{Run: 9, Client: 2, Number: 77})
		value = append(append(value[:0], head...), tail...)
		_, ok := values.Writer(5, value)
		assert.That(t, ok, "refused")
	}), 0, "allocations")
}
