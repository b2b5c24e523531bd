package report

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// TextPercentiles are those of etcd's tool.
var TextPercentiles = []float64{10, 25, 50, 75, 90, 95, 99, 99.9}

// Percentiles are those of a Distribution.
var Percentiles = append(TextPercentiles[:len(TextPercentiles):len(TextPercentiles)], 99.99)

// Where percentiles come from.
const (
	Exact       = "exact"     // from each single latency
	InHistogram = "histogram" // from the histogram, for there are more than exactSamples latencies
)

// Distribution describes the latencies of the requests that succeeded. All its figures are exact; only Histogram is
// rounded, and serves to merge several runs, and so are percentiles that are taken from it.
type Distribution struct {
	Count   int     `json:"count"`
	LeftOut int     `json:"left_out"` // requests without a good answer, which have no latency here
	MinS    float64 `json:"min_s"`
	MeanS   float64 `json:"mean_s"`
	StddevS float64 `json:"stddev_s"`
	MaxS    float64 `json:"max_s"`

	Percentiles string `json:"percentiles"` // Exact or InHistogram

	// PercentilesS has one entry for each of Percentiles, null where there are too few requests to tell it from the
	// maximum.
	PercentilesS map[string]*float64 `json:"percentiles_s"`
	// PercentilesAllS is the same over all requests, with those left out slower than all others; null also where the
	// rank falls on one of those.
	PercentilesAllS map[string]*float64 `json:"percentiles_all_s"`

	// Histogram is a HdrHistogram with 3 significant digits in ns, in its compressed V2 encoding, base64.
	Histogram string `json:"histogram"`
}

// newDistribution returns nil if there are no latencies.
func newDistribution(of latencies, leftOut int) *Distribution {
	n := of.count()
	if n == 0 {
		return nil
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	fastest, slowest := of.bounds()
	d := &Distribution{
		Count:           n,
		LeftOut:         leftOut,
		MinS:            fastest.Seconds(),
		MaxS:            slowest.Seconds(),
		Percentiles:     of.origin(),
		PercentilesS:    make(map[string]*float64, len(Percentiles)),
		PercentilesAllS: make(map[string]*float64, len(Percentiles)),
		Histogram:       e.encode(of),
	}
	d.MeanS, d.StddevS = of.moments()
	values := of.byRank(append(ranks(n, Percentiles), ranks(n+leftOut, Percentiles)...))
	// A percentile that could not be told from the maximum is not known, nor one among requests without a latency.
	known := func(n int, p float64) *float64 {
		if r := rank(n, p); r < n && r <= d.Count {
			value := values[r].Seconds()
			return &value
		}
		return nil
	}
	for _, p := range Percentiles {
		d.PercentilesS[percentileName(p)] = known(n, p)
		d.PercentilesAllS[percentileName(p)] = known(n+leftOut, p)
	}
	return d
}

// origin tells where percentiles come from.
func (l latencies) origin() string {
	if l.exact() {
		return Exact
	}
	return InHistogram
}

// byRank gives the latencies that have the given ranks; of those that none has, nothing.
func (l latencies) byRank(wanted []int) map[int]time.Duration {
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	if beyond, _ := slices.BinarySearch(wanted, l.count()+1); beyond < len(wanted) {
		wanted = wanted[:beyond]
	}
	var s selector
	values := make(map[int]time.Duration, len(wanted))
	for i, value := range s.find(l, wanted) {
		values[wanted[i]] = value
	}
	return values
}

// ranks of percentiles among n latencies.
func ranks(n int, percentiles []float64) []int {
	all := make([]int, len(percentiles))
	for i, p := range percentiles {
		all[i] = rank(n, p)
	}
	return all
}

// rank of the percentile among n latencies, 1..n: the smallest that at least p percent (0 < p <= 100) of all do not
// exceed.
func rank(n int, p float64) int {
	// In thousandths of a percent, so that 99.9 % of 1000 is 999 and not a rounding error more.
	thousandths := int(math.Round(p * 1000))
	return max((n*thousandths+100_000-1)/100_000, 1)
}

func percentileName(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }
