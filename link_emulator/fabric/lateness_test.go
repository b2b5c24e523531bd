package fabric

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"containernet-env/link_emulator/assert"
)

func TestHistogramsAgainstASortedReference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, count := range []int{1, 2, 3, 99, 100, 5000} {
		h, all := Lateness{ShowBuckets: true}, []int64{0, 1, 15, 16, 31, 32, 33, 1000, 1 << 40, math.MaxInt64}
		for len(all) < count {
			all = append(all, int64(math.Exp(random.Float64()*44))-1) // of every size
		}
		all = all[:count]
		for _, ns := range all {
			h.Record(ns)
		}
		slices.Sort(all)
		for _, p := range []float64{1, 50, 90, 99, 99.9, 100} {
			exact := all[max(int(math.Ceil(p/100*float64(count))), 1)-1]
			got := h.PercentileNS(p)
			assert.That(t, got >= exact && float64(got) <= float64(exact)*(1+1.0/sub)+1, "p%v of %d: got %d, exact %d", p,
				count, got, exact)
		}
		assert.That(t, h.MaxNS == all[count-1] && h.Count == uint64(count), "max %d and count %d, want %d and %d", h.MaxNS,
			h.Count, all[count-1], count)
		var shown struct{ Buckets [][2]int64 }
		text, err := json.Marshal(h)
		assert.OK(t, err, json.Unmarshal(text, &shown))
		for _, bucket := range shown.Buckets {
			// What lies below an edge has been counted, at most a sixteenth below.
			for edge := bucket[0]; bucket[1] > 0; bucket[1]-- {
				assert.That(t, all[0] <= edge && all[0] >= edge-edge/sub-1, "%d is in the bucket until %d", all[0], edge)
				all = all[1:]
			}
		}
		assert.Equal(t, len(all), 0, "values beyond the buckets")
	}
}

func TestASnapshotStaysAndAResetForgets(t *testing.T) {
	n := star(t, ms, ms)
	direction := n.links["l0"].directions[1]
	direction.Lateness.Record(50_000)
	before := n.State()
	direction.Lateness.Record(3)
	direction.Lateness.Record(70_000)
	for _, held := range []Lateness{before.Links["l0"].BToA.Lateness, before.Ports["h0"].Lateness} {
		assert.That(t, held.Count == 1 && held.PercentileNS(50) == 50_000 && held.MaxNS == 50_000,
			"a snapshot changed: %v", held)
	}
	n.Reset(0)
	direction.Lateness.Record(5)
	now := n.State().Links["l0"].BToA.Lateness
	assert.That(t, now.Count == 1 && now.PercentileNS(99) == 5 && len(now.bucket) == 6, "after a reset: %v", now)
	sum := Lateness{}
	assert.Equal(t, sum.PercentileNS(99), 0, "percentile of nothing")
	sum.Add(&now)
	sum.Record(1 << 50)
	assert.That(t, sum.Count == 2 && sum.PercentileNS(50) == 5 && now.Count == 1, "a sum: %v", sum)
}
