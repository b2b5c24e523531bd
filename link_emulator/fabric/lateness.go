package fabric

import (
	"encoding/json"
	"math/bits"
	"slices"
)

// tooEarlyNS: no frame is early; one that is by more than this is counted as well.
const tooEarlyNS = int64(20e3)

// Each power of two is divided into 16 buckets, so a percentile is at most 1/16 (6.25 %) above the exact value.
const (
	subBits = 4
	sub     = 1 << subBits
	buckets = (64 - subBits) * sub
)

// Lateness is how much after, or before, their scheduled times frames reached hosts: a log-linear histogram, in
// constant memory. The zero value is empty and ready. A copy counts into the same buckets: see snapshot.
type Lateness struct {
	Count      uint64 // of frames
	MaxNS      int64  // the most by which one was late
	EarlyMaxNS int64  // the most by which one was early
	TooEarly   uint64 // frames that were more than tooEarlyNS early

	ShowBuckets bool     // in JSON
	bucket      []uint64 // up to that of MaxNS at least; nil while nothing was recorded
}

// Record counts one frame; negative: it was early, which counts as 0 in the histogram.
func (l *Lateness) Record(lateNS int64) {
	l.EarlyMaxNS = max(l.EarlyMaxNS, -lateNS)
	if -lateNS > tooEarlyNS {
		l.TooEarly++
	}
	lateNS = max(lateNS, 0)
	l.grow()
	l.Count++
	l.MaxNS = max(l.MaxNS, lateNS)
	l.bucket[index(uint64(lateNS))]++
}

// Add counts everything that other holds.
func (l *Lateness) Add(other *Lateness) {
	l.Count += other.Count
	l.MaxNS = max(l.MaxNS, other.MaxNS)
	l.EarlyMaxNS = max(l.EarlyMaxNS, other.EarlyMaxNS)
	l.TooEarly += other.TooEarly
	l.grow()
	for i, n := range other.bucket {
		l.bucket[i] += n
	}
}

// grow makes room for any time.
func (l *Lateness) grow() {
	if len(l.bucket) < buckets {
		l.bucket = append(make([]uint64, 0, buckets), l.bucket...)[:buckets]
	}
}

// snapshot is a copy that later frames do not change. It has the buckets up to MaxNS alone: with a thousand ports, all
// of them would take the data thread milliseconds.
func (l *Lateness) snapshot() Lateness {
	copied := *l
	copied.bucket = slices.Clone(l.used())
	return copied
}

// reset forgets all frames.
func (l *Lateness) reset() {
	clear(l.used())
	*l = Lateness{bucket: l.bucket}
}

func (l *Lateness) used() []uint64 {
	if l.Count == 0 {
		return nil
	}
	return l.bucket[:index(uint64(l.MaxNS))+1]
}

// PercentileNS is the nearest-rank percentile p (0..100), rounded up to its bucket's upper edge but never above the
// maximum; 0 when nothing was recorded.
func (l *Lateness) PercentileNS(p float64) int64 {
	rank := uint64(p / 100 * float64(l.Count))
	if float64(rank) < p/100*float64(l.Count) || rank == 0 {
		rank++
	}
	var seen uint64
	for i, n := range l.bucket {
		if seen += n; n > 0 && seen >= rank {
			return min(upperEdge(i), l.MaxNS)
		}
	}
	return l.MaxNS
}

// MarshalJSON implements json.Marshaler. Buckets are those that are not empty, in order.
func (l Lateness) MarshalJSON() ([]byte, error) {
	var counted [][2]uint64
	for i, n := range l.bucket {
		if n > 0 && l.ShowBuckets {
			counted = append(counted, [2]uint64{uint64(upperEdge(i)), n})
		}
	}
	return json.Marshal(struct {
		Count      uint64      `json:"count"`
		P50NS      int64       `json:"p50_ns"`
		P99NS      int64       `json:"p99_ns"`
		MaxNS      int64       `json:"max_ns"`
		Buckets    [][2]uint64 `json:"buckets,omitempty"` // each: upper edge in ns, inclusive, and count
		EarlyMaxNS int64       `json:"early_max_ns"`
		TooEarly   uint64      `json:"too_early"`
	}{l.Count, l.PercentileNS(50), l.PercentileNS(99), l.MaxNS, counted, l.EarlyMaxNS, l.TooEarly})
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
