package report

import (
	"math"
	"strconv"
	"time"
)

// TextPercentiles are those of etcd's tool.
var TextPercentiles = []float64{10, 25, 50, 75, 90, 95, 99, 99.9}

// Percentiles are those of a Distribution.
var Percentiles = append(TextPercentiles[:len(TextPercentiles):len(TextPercentiles)], 99.99)

// Distribution describes the latencies of the requests that succeeded. All its figures are exact, computed from the
// single latencies; only Histogram is rounded, and serves to merge several runs.
type Distribution struct {
	Count   int     `json:"count"`
	LeftOut int     `json:"left_out"` // requests without a good answer, which have no latency here
	MinS    float64 `json:"min_s"`
	MeanS   float64 `json:"mean_s"`
	StddevS float64 `json:"stddev_s"`
	MaxS    float64 `json:"max_s"`

	// PercentilesS has one entry for each of Percentiles, null where there are too few requests to tell it from the
	// maximum.
	PercentilesS map[string]*float64 `json:"percentiles_s"`
	// PercentilesAllS is the same over all requests, with those left out slower than all others; null also where the
	// rank falls on one of those.
	PercentilesAllS map[string]*float64 `json:"percentiles_all_s"`

	// Histogram is a HdrHistogram with 3 significant digits in ns, in its compressed V2 encoding, base64.
	Histogram string `json:"histogram"`
}

// newDistribution returns nil if there are no latencies. sorted must be.
func newDistribution(sorted []time.Duration, leftOut int) *Distribution {
	n := len(sorted)
	if n == 0 {
		return nil
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	d := &Distribution{
		Count:           n,
		LeftOut:         leftOut,
		MinS:            sorted[0].Seconds(),
		MaxS:            sorted[n-1].Seconds(),
		PercentilesS:    make(map[string]*float64, len(Percentiles)),
		PercentilesAllS: make(map[string]*float64, len(Percentiles)),
		Histogram:       e.encode(sorted),
	}
	d.MeanS, d.StddevS = moments(sorted)
	for _, p := range Percentiles {
		d.PercentilesS[percentileName(p)] = known(sorted, n, p)
		d.PercentilesAllS[percentileName(p)] = known(sorted, n+leftOut, p)
	}
	return d
}

// known gives a percentile of n latencies of which only the smallest ones are known; nil if it is not known, or
// could not be told from the maximum.
func known(sorted []time.Duration, n int, p float64) *float64 {
	r := rank(n, p)
	if r == n || r > len(sorted) {
		return nil
	}
	value := sorted[r-1].Seconds()
	return &value
}

// rank of the percentile among n latencies, 1..n: the smallest that at least p percent (0 < p <= 100) of all do not
// exceed.
func rank(n int, p float64) int {
	// In thousandths of a percent, so that 99.9 % of 1000 is 999 and not a rounding error more.
	thousandths := int(math.Round(p * 1000))
	return max((n*thousandths+100_000-1)/100_000, 1)
}

// nearestRank is the smallest latency that at least p percent (0 < p <= 100) of all do not exceed.
// sorted must not be empty.
func nearestRank(sorted []time.Duration, p float64) time.Duration {
	return sorted[rank(len(sorted), p)-1]
}

func percentileName(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }
