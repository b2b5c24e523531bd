// Package histogram is a log-linear histogram of durations in constant memory.
package histogram

import (
	"iter"
	"math/bits"
)

// Each power of two is divided into 16 buckets, so a percentile is at most 1/16 (6.25 %) above the exact value.
const (
	subBits = 4
	sub     = 1 << subBits
	buckets = (64 - subBits) * sub
)

// Histogram of non-negative nanoseconds. The zero value is empty and ready. Not safe for concurrent use.
type Histogram struct {
	count  uint64
	maxNS  int64
	bucket [buckets]uint64
}

// Record counts one duration; a negative one counts as 0.
func (h *Histogram) Record(ns int64) {
	ns = max(ns, 0)
	h.count++
	h.maxNS = max(h.maxNS, ns)
	h.bucket[index(uint64(ns))]++
}

// Count is the number of durations recorded.
func (h *Histogram) Count() uint64 { return h.count }

// MaxNS is the longest duration recorded, exact; 0 when there is none.
func (h *Histogram) MaxNS() int64 { return h.maxNS }

// PercentileNS is the nearest-rank percentile p (0..100), rounded up to its bucket's upper edge but never above the
// maximum; 0 when nothing was recorded.
func (h *Histogram) PercentileNS(p float64) int64 {
	rank := uint64(p / 100 * float64(h.count))
	if float64(rank) < p/100*float64(h.count) || rank == 0 {
		rank++
	}
	var seen uint64
	for i, n := range h.bucket {
		if seen += n; n > 0 && seen >= rank {
			return min(upperEdge(i), h.maxNS)
		}
	}
	return h.maxNS
}

// Buckets are the non-empty buckets in order: the upper edge, inclusive, and the count.
func (h *Histogram) Buckets() iter.Seq2[int64, uint64] {
	return func(yield func(int64, uint64) bool) {
		for i, n := range h.bucket {
			if n > 0 && !yield(upperEdge(i), n) {
				return
			}
		}
	}
}

// Add adds the counts of other.
func (h *Histogram) Add(other *Histogram) {
	h.count += other.count
	h.maxNS = max(h.maxNS, other.maxNS)
	for i, n := range other.bucket {
		h.bucket[i] += n
	}
}

// index: below 16 a bucket per nanosecond, above it the exponent and the four bits after the leading one.
func index(ns uint64) int {
	if ns < sub {
		return int(ns)
	}
	exponent := bits.Len64(ns) - subBits - 1
	return exponent<<subBits + int(ns>>exponent)
}

func upperEdge(i int) int64 {
	if i < 2*sub {
		return int64(i)
	}
	exponent := i>>subBits - 1
	mantissa := int64(i&(sub-1) + sub)
	return (mantissa+1)<<exponent - 1
}
