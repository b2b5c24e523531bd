package report

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// exactSamples is up to how many latencies each one is kept, so that percentiles are exact; above, they come from the
// histogram.
const exactSamples = 1_000_000

// MaxKept is how many requests of a run have latencies that are kept at most: those of two kinds.
const MaxKept = 2 * exactSamples

// Samples are allocated in chunks, when they are needed.
const (
	chunkBits = 14
	chunkMask = 1<<chunkBits - 1
)

// series are latencies as they come. Its memory is bounded, whatever their number.
type series struct {
	count        int
	min, max     time.Duration
	sum, squares wide       // of their nanoseconds
	counts       []uint64   // by slot; nil: there are none yet
	low, high    int        // the first and the last slot that is used
	samples      [][]uint64 // chunks; nil once there are more than exactSamples
}

// add takes one latency, 0 or more.
func (s *series) add(latency time.Duration) {
	at := clampedSlot(latency)
	if s.count == 0 {
		if s.counts == nil {
			s.counts = make([]uint64, clampedSlot(math.MaxInt64)+1)
		}
		s.min, s.max, s.low, s.high = latency, latency, at, at
	}
	if i := s.count; i < exactSamples {
		if i>>chunkBits == len(s.samples) {
			s.samples = append(s.samples, make([]uint64, 1<<chunkBits))
		}
		s.samples[i>>chunkBits][i&chunkMask] = uint64(latency)
	} else if s.samples != nil {
		s.samples = nil
	}
	s.count++
	s.min, s.max = min(s.min, latency), max(s.max, latency)
	s.low, s.high = min(s.low, at), max(s.high, at)
	s.counts[at]++
	s.sum.add(0, uint64(latency))
	s.squares.add(bits.Mul64(uint64(latency), uint64(latency)))
}

// reset forgets all latencies and keeps the memory.
func (s *series) reset() {
	if s.count > 0 {
		clear(s.counts[s.low : s.high+1])
	}
	*s = series{counts: s.counts, samples: s.samples}
}

// wide is an integer of 128 bits: the squares of 86.4 billion latencies fit, of up to 17 hours each.
type wide struct{ high, low uint64 }

func (w *wide) add(high, low uint64) {
	var carry uint64
	w.low, carry = bits.Add64(w.low, low, 0)
	w.high, _ = bits.Add64(w.high, high, carry)
}

func (w wide) int() *big.Int {
	n := new(big.Int).SetUint64(w.high)
	return n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(w.low))
}

// latencies are the samples of several series together.
type latencies []*series

func (l latencies) count() (n int) {
	for _, s := range l {
		n += s.count
	}
	return n
}

// exact tells whether percentiles are; otherwise they are within 0.1 %.
func (l latencies) exact() bool { return l.count() <= exactSamples }

// bounds gives the fastest and the slowest; there must be one.
func (l latencies) bounds() (fastest, slowest time.Duration) {
	fastest = math.MaxInt64
	for _, s := range l {
		if s.count > 0 {
			fastest, slowest = min(fastest, s.min), max(slowest, s.max)
		}
	}
	return fastest, slowest
}

// slots gives the first and the last slot that is used; there must be one.
func (l latencies) slots() (low, high int) {
	low = math.MaxInt
	for _, s := range l {
		if s.count > 0 {
			low, high = min(low, s.low), max(high, s.high)
		}
	}
	return low, high
}

func (l latencies) countAt(slot int) (n int) {
	for _, s := range l {
		if s.counts != nil {
			n += int(s.counts[slot])
		}
	}
	return n
}

// each visits every latency, in no order, or where they are not kept every slot with its largest value.
func (l latencies) each(visit func(latency time.Duration, count int)) {
	if l.exact() {
		for _, s := range l {
			for i := range s.count {
				visit(time.Duration(s.samples[i>>chunkBits][i&chunkMask]), 1)
			}
		}
		return
	}
	low, high := l.slots()
	_, slowest := l.bounds()
	for at := low; at <= high; at++ {
		if n := l.countAt(at); n > 0 {
			visit(min(slotEnd(at), slowest), n)
		}
	}
}

// moments gives the mean and the standard deviation of the population in seconds, computed from exact sums.
func (l latencies) moments() (average, stddev float64) {
	var sum, squares big.Int
	for _, s := range l {
		sum.Add(&sum, s.sum.int())
		squares.Add(&squares, s.squares.int())
	}
	n := big.NewInt(int64(l.count()))
	perSecond := new(big.Int).Mul(n, big.NewInt(int64(time.Second)))
	average, _ = new(big.Rat).SetFrac(&sum, perSecond).Float64()
	// n * squares - sum^2 is n^2 times the variance, without a rounding error.
	squares.Sub(squares.Mul(&squares, n), sum.Mul(&sum, &sum))
	const precision = 128 // bits
	root := new(big.Float).SetPrec(precision).SetInt(&squares)
	root.Sqrt(root)
	stddev, _ = root.Quo(root, new(big.Float).SetInt(perSecond)).Float64()
	return average, stddev
}

// selector finds latencies by their rank. It keeps its memory for the next time.
type selector struct {
	group  []uint8 // by slot, from the first used one: which of the groups its latencies belong to, from 1 on
	groups [][]time.Duration
}

// find gives, for each rank (1..count, ascending, at most 255), the latency that has it. The slot of a rank follows
// from the histogram, so only the latencies of a few slots have to be sorted.
func (f *selector) find(of latencies, ranks []int) []time.Duration {
	found := make([]time.Duration, len(ranks))
	if len(ranks) == 0 {
		return found
	}
	low, high := of.slots()
	_, slowest := of.bounds()
	f.group = slices.Grow(f.group[:0], high-low+1)[:high-low+1]
	clear(f.group)
	type place struct{ group, before int }
	places := make([]place, len(ranks))
	groups, before := 0, 0
	for at, next := low, 0; next < len(ranks); at++ {
		n := of.countAt(at)
		for first := true; next < len(ranks) && ranks[next] <= before+n; next++ {
			if first {
				f.group[at-low], first = uint8(groups+1), false
				groups++
			}
			places[next] = place{groups - 1, before}
			found[next] = min(slotEnd(at), slowest)
		}
		before += n
	}
	if !of.exact() {
		return found
	}
	for len(f.groups) < groups {
		f.groups = append(f.groups, nil)
	}
	for i := range groups {
		f.groups[i] = f.groups[i][:0]
	}
	of.each(func(latency time.Duration, _ int) {
		if g := f.group[clampedSlot(latency)-low]; g > 0 {
			f.groups[g-1] = append(f.groups[g-1], latency)
		}
	})
	for i := range groups {
		slices.Sort(f.groups[i])
	}
	for i, p := range places {
		found[i] = f.groups[p.group][ranks[i]-p.before-1]
	}
	return found
}

// A histogram is in the form of HdrHistogram (https://hdrhistogram.org), its V2 encoding, compressed: that is what its
// libraries in all languages add up. It is written here and not by one of them so that the counts of several series are
// added up while they are encoded, and a percentile finds the latencies of its slot. Values up to 2^11 have a slot
// each; each further power of two is divided into 2^10 slots, which makes 3 significant digits.
const (
	histogramCookie           = 0x1c849303 | 0x10
	histogramCompressedCookie = 0x1c849304 | 0x10

	halfBits = 10 // bits of the number of slots in the upper half of a power of two
)

// Bounds of the values in a histogram, in ns; what is larger counts as the largest.
const (
	histogramMin    = 1
	histogramMax    = int64(48 * time.Hour)
	histogramDigits = 3
)

// appendCount appends a number in the V2 encoding: zigzag, 7 bits per byte, 8 in the ninth.
func appendCount(b []byte, n int64) []byte {
	rest := uint64(n<<1) ^ uint64(n>>63)
	for range 8 {
		if rest < 0x80 {
			return append(b, byte(rest))
		}
		b = append(b, byte(rest)|0x80)
		rest >>= 7
	}
	return append(b, byte(rest))
}

// slotEnd is the largest value of a slot.
func slotEnd(at int) time.Duration {
	power := max(at>>halfBits-1, 0)
	return time.Duration(at-power<<halfBits+1)<<power - 1
}

// appendCounts appends the counts up to the last that is not zero. A negative number stands for that many zeros.
func appendCounts(b []byte, of latencies) []byte {
	next := 0 // the slot after the last one that is written
	low, high := of.slots()
	for at := low; at <= high; at++ {
		count := of.countAt(at)
		if count == 0 {
			continue
		}
		switch zeros := int64(at - next); zeros {
		case 0:
		case 1:
			b = append(b, 0)
		default:
			b = appendCount(b, -zeros)
		}
		b = appendCount(b, int64(count))
		next = at + 1
	}
	return b
}

// clampedSlot is the index of a latency among the counts.
func clampedSlot(latency time.Duration) int {
	value := min(max(int64(latency), histogramMin), histogramMax)
	power := max(bits.Len64(uint64(value))-halfBits-1, 0)
	return power<<halfBits + int(value>>power)
}

// encoders are reused, because each needs more memory than the histograms of a report.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

type encoder struct {
	counts     []byte
	compressed bytes.Buffer
	zlib       *zlib.Writer
}

// encode gives the histogram of latencies, of which there is at least one.
func (e *encoder) encode(of latencies) string {
	e.counts = appendCounts(e.counts[:0], of)
	const header = 40
	b := binary.BigEndian.AppendUint32(make([]byte, 0, header+len(e.counts)), histogramCookie)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.counts)))
	b = binary.BigEndian.AppendUint32(b, 0) // offset of the counts
	b = binary.BigEndian.AppendUint32(b, histogramDigits)
	b = binary.BigEndian.AppendUint64(b, histogramMin)
	b = binary.BigEndian.AppendUint64(b, uint64(histogramMax))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(1)) // ratio of its integers to real values
	b = append(b, e.counts...)

	e.compressed.Reset()
	if e.zlib == nil {
		e.zlib = zlib.NewWriter(&e.compressed)
	} else {
		e.zlib.Reset(&e.compressed)
	}
	// Writing to memory does not fail.
	_, _ = e.zlib.Write(b)
	_ = e.zlib.Close()
	b = binary.BigEndian.AppendUint32(b[:0], histogramCompressedCookie)
	b = binary.BigEndian.AppendUint32(b, uint32(e.compressed.Len()))
	return base64.StdEncoding.EncodeToString(append(b, e.compressed.Bytes()...))
}
