package keys

import (
	"bytes"
	"compress/flate"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestRoomAndMinSizeAgree(t *testing.T) {
	for _, c := range []struct{ size, room int }{{1, 62}, {2, 3844}, {4, 14776336}, {8, 218340105584896}} {
		if got := Room(c.size); got != c.room {
			t.Errorf("Room(%d) = %d, want %d", c.size, got, c.room)
		}
		if got := MinSize(c.room); got != c.size {
			t.Errorf("MinSize(%d) = %d, want %d", c.room, got, c.size)
		}
		if got := MinSize(c.room + 1); got != c.size+1 {
			t.Errorf("MinSize(%d) = %d, want %d", c.room+1, got, c.size+1)
		}
	}
	if Room(1024) <= 0 || Room(11) <= 0 {
		t.Error("Room overflows for large sizes")
	}
}

func TestKeysAreDistinctSortedAndOfTheirSize(t *testing.T) {
	for _, c := range []struct{ space, size int }{{1, 1}, {62, 1}, {3844, 2}, {5000, 3}, {20000, 8}} {
		previous := ""
		for i := range c.space {
			key := string(Append([]byte("p/"), uint64(i), c.size))
			if len(key) != 2+c.size || !strings.HasPrefix(key, "p/") {
				t.Fatalf("key %d of size %d is %q", i, c.size, key)
			}
			if key <= previous {
				t.Fatalf("key %d is %q, not after %q", i, key, previous)
			}
			previous = key
		}
	}
}

// TestNumbersOfKeys holds that Number undoes Append, and knows no other key.
func TestNumbersOfKeys(t *testing.T) {
	for _, c := range []struct{ space, size int }{{62, 1}, {3844, 2}, {5000, 3}, {300, 12}, {300, 1024}} {
		for i := range c.space {
			key := Append([]byte("p/"), uint64(i), c.size)
			if n, ok := Number(key, "p/", c.size); !ok || n != uint64(i) {
				t.Fatalf("%q is number %d, %v; want %d", key, n, ok, i)
			}
			if before := Before(key, "p/", c.size, c.space); before != uint64(i) {
				t.Fatalf("%d of %d keys sort before %q, want %d", before, c.space, key, i)
			}
			if before := Before(append(key, 0), "p/", c.size, c.space); before != uint64(i)+1 {
				t.Fatalf("%d of %d keys sort before what follows on %q, want %d", before, c.space, key, i+1)
			}
		}
		if none, all := Before(nil, "p/", c.size, c.space), Before([]byte("p0"), "p/", c.size, c.space); none != 0 ||
			all != uint64(c.space) {
			t.Errorf("%d of %d keys sort before all keys, %d before a later prefix", none, c.space, all)
		}
	}
	for _, key := range []string{"", "p", "p/", "p/0", "p/000", "q/00", "p/0-", "p/0\x00", "p/\xff0", "P/00"} {
		if n, ok := Number([]byte(key), "p/", 2); ok {
			t.Errorf("%q is number %d", key, n)
		}
	}
	if n, ok := Number([]byte("AzL8n0Y58m7"), "", 11); !ok || n != math.MaxInt {
		t.Errorf("the key of the largest number is number %d, %v", n, ok)
	}
	for _, key := range []string{"AzL8n0Y58m8", "zzzzzzzzzzz", "100000000000"} {
		if n, ok := Number([]byte(key), "", len(key)); ok {
			t.Errorf("%q, beyond the largest number, is number %d", key, n)
		}
	}
}

func TestKeysDoNotDependOnWhatTheBufferHeld(t *testing.T) {
	buffer := Append(nil, 61*62*62, 8)
	if got := string(Append(buffer[:0], 1, 8)); got != "00000001" {
		t.Errorf("key 1 in a used buffer is %q", got)
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
					if key >= uint64(space) || seen[key] {
						t.Fatalf("sequential %v, space %d, round %d: request %d uses key %d again or outside",
							sequential, space, round, i, key)
					}
					seen[key] = true
				}
			}
		}
	}
}

func TestRandomOrderDependsOnTheSeedOnly(t *testing.T) {
	const space = 1000
	same, other, inPlace := 0, 0, 0
	a, again, b := NewOrder(space, false, 1), NewOrder(space, false, 1), NewOrder(space, false, 2)
	for i := range space {
		if a.Key(i) == again.Key(i) {
			same++
		}
		if a.Key(i) == b.Key(i) {
			other++
		}
		if a.Key(i) == uint64(i) {
			inPlace++
		}
	}
	if same != space {
		t.Errorf("the same seed gives %d different keys", space-same)
	}
	if other > space/50 || inPlace > space/50 {
		t.Errorf("of %d keys, %d are the same for another seed and %d stay in order", space, other, inPlace)
	}
}

func TestValues(t *testing.T) {
	for _, size := range []int{0, 1, 64, 256, 1 << 20} {
		values := NewValues(size, 3)
		if got := len(values.At(12345)); got != size {
			t.Errorf("a value of size %d has %d bytes", size, got)
		}
		if !bytes.Equal(values.At(5), NewValues(size, 3).At(5)) {
			t.Errorf("values of size %d are not repeatable", size)
		}
		if size >= 64 && bytes.Equal(values.At(5), values.At(6)) {
			t.Errorf("neighbouring values of size %d are equal", size)
		}
	}
}

func TestValuesResistCompression(t *testing.T) {
	const size = 100_000
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(NewValues(size, 1).At(0)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// 62 letters carry 5.95 bits of each byte's 8.
	if packed.Len() < size*70/100 {
		t.Errorf("%d bytes were compressed to %d", size, packed.Len())
	}
}

func BenchmarkKey(b *testing.B) {
	order := NewOrder(100_000, false, 1)
	buffer := make([]byte, 0, 8)
	for b.Loop() {
		buffer = Append(buffer[:0], order.Key(rand.IntN(1_000_000)), 8)
	}
}
