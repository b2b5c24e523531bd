package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestPercentilesAgainstASortedReference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, count := range []int{1, 2, 3, 99, 100, 5000} {
		var h Histogram
		var all []int64
		for range count {
			ns := int64(math.Exp(random.Float64() * 25))
			h.Record(ns)
			all = append(all, ns)
		}
		slices.Sort(all)
		for _, p := range []float64{1, 50, 90, 99, 99.9, 100} {
			exact := all[max(int(math.Ceil(p/100*float64(count))), 1)-1]
			got := h.PercentileNS(p)
			if got < exact || float64(got) > float64(exact)*(1+1.0/sub)+1 {
				t.Errorf("p%v of %d: got %d, exact %d", p, count, got, exact)
			}
		}
		if h.MaxNS() != all[count-1] || h.Count() != uint64(count) {
			t.Errorf("max %d and count %d, want %d and %d", h.MaxNS(), h.Count(), all[count-1], count)
		}
	}
}

func TestEveryDurationHasABucketThatHoldsIt(t *testing.T) {
	for _, ns := range []uint64{0, 1, 15, 16, 31, 32, 33, 1000, 1 << 40, math.MaxInt64} {
		i := index(ns)
		if i < 0 || i >= buckets {
			t.Fatalf("%d: bucket %d of %d", ns, i, buckets)
		}
		if edge := upperEdge(i); edge < int64(ns) || i > 0 && upperEdge(i-1) >= int64(ns) {
			t.Errorf("%d is not within bucket %d, which ends at %d", ns, i, edge)
		}
	}
}

func TestEmptyNegativeAndSum(t *testing.T) {
	var h, other Histogram
	if h.PercentileNS(99) != 0 || h.MaxNS() != 0 {
		t.Error("an empty histogram has a percentile")
	}
	h.Record(-5)
	other.Record(7)
	h.Add(&other)
	if h.Count() != 2 || h.PercentileNS(50) != 0 || h.MaxNS() != 7 {
		t.Errorf("got count %d, median %d, max %d", h.Count(), h.PercentileNS(50), h.MaxNS())
	}
}

func TestBucketsAddUp(t *testing.T) {
	var h Histogram
	for _, ns := range []int64{3, 3, 1000, 1 << 40} {
		h.Record(ns)
	}
	var edges []int64
	var sum uint64
	for edge, count := range h.Buckets() {
		edges, sum = append(edges, edge), sum+count
	}
	if sum != 4 || len(edges) != 3 || edges[0] != 3 || edges[1] < 1000 || edges[2] < 1<<40 {
		t.Errorf("edges %v hold %d", edges, sum)
	}
}
