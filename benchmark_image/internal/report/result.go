// Package report computes the figures of a run from its records, and writes them as text in the form of
// etcd's benchmark tool or as JSON.
package report

import (
	"math"
	"slices"
	"strconv"
	"time"

	"containernet-env/benchmark_image/internal/load"
)

// Schema is the version of the JSON form of Result.
const Schema = 1

// Result is what a benchmark measured. The latency fields are over the requests that succeeded, and null
// in JSON when none did.
type Result struct {
	Schema       int      `json:"schema"`
	Operation    string   `json:"operation"` // put or range
	Requests     int      `json:"requests"`  // asked for
	Done         int      `json:"done"`      // ok + failed
	OK           int      `json:"ok"`
	Failed       int      `json:"failed"`
	Empty        int      `json:"empty"` // answers to reads that held no key
	Connections  int      `json:"connections"`
	Clients      int      `json:"clients"`
	Endpoints    []string `json:"endpoints"`
	Leader       *string  `json:"leader"`
	TotalS       float64  `json:"total_s"` // from the first start to the last outcome
	SlowestS     *float64 `json:"slowest_s"`
	FastestS     *float64 `json:"fastest_s"`
	AverageS     *float64 `json:"average_s"`
	StddevS      *float64 `json:"stddev_s"` // of the population, as etcd's tool has it
	RequestsPerS float64  `json:"requests_per_s"`

	// PercentilesS has one entry for each of Percentiles, by its shortest decimal text.
	PercentilesS map[string]float64 `json:"percentiles_s"`

	Errors map[string]int `json:"errors"` // failed requests by the text of their error
	Reason *string        `json:"reason"` // why the run is not what was asked for; null if it is

	sorted []time.Duration // latencies of the requests that succeeded
	series []second
}

// Progress is one line of benchmark-client --progress json.
type Progress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Errors int `json:"errors"`
}

// Percentiles are those of etcd's tool.
var Percentiles = []float64{10, 25, 50, 75, 90, 95, 99, 99.9}

// Setting is what a report says about a run beside its records.
type Setting struct {
	Operation   string
	Requests    int
	Connections int
	Clients     int
	Endpoints   []string
	Leader      string
	Reason      string
}

// New computes the figures.
func New(setting Setting, run load.Result) *Result {
	r := &Result{
		Schema:      Schema,
		Operation:   setting.Operation,
		Requests:    setting.Requests,
		Failed:      run.Failed,
		Empty:       run.Empty,
		Connections: setting.Connections,
		Clients:     setting.Clients,
		Endpoints:   setting.Endpoints,
		Leader:      optional(setting.Leader),
		TotalS:      run.Took.Seconds(),
		Errors:      run.Errors,
		Reason:      optional(setting.Reason),
	}
	if r.Errors == nil {
		r.Errors = map[string]int{}
	}
	r.sorted = make([]time.Duration, 0, len(run.Records))
	for _, record := range run.Records {
		if record.OK() {
			r.sorted = append(r.sorted, record.Latency())
		}
	}
	slices.Sort(r.sorted)
	r.OK = len(r.sorted)
	r.Done = r.OK + r.Failed
	r.series = seconds(run.Epoch, run.Records)
	if r.OK > 0 {
		r.summarize()
	}
	return r
}

func (r *Result) summarize() {
	r.RequestsPerS = float64(r.OK) / r.TotalS
	var sum float64 // in seconds: the sum of many long requests does not fit into a duration
	for _, latency := range r.sorted {
		sum += latency.Seconds()
	}
	average := sum / float64(r.OK)
	var squares float64
	for _, latency := range r.sorted {
		deviation := latency.Seconds() - average
		squares += deviation * deviation
	}
	stddev := math.Sqrt(squares / float64(r.OK))
	fastest, slowest := r.sorted[0].Seconds(), r.sorted[r.OK-1].Seconds()
	r.FastestS, r.SlowestS, r.AverageS, r.StddevS = &fastest, &slowest, &average, &stddev
	r.PercentilesS = make(map[string]float64, len(Percentiles))
	for _, p := range Percentiles {
		r.PercentilesS[percentileName(p)] = nearestRank(r.sorted, p).Seconds()
	}
}

// nearestRank is the smallest latency that at least p percent (0 < p <= 100) of all do not exceed.
// sorted must not be empty.
func nearestRank(sorted []time.Duration, p float64) time.Duration {
	// In thousandths of a percent, so that 99.9 % of 1000 is 999 and not a rounding error more.
	thousandths := int(math.Round(p * 1000))
	rank := (len(sorted)*thousandths + 100_000 - 1) / 100_000
	return sorted[max(rank, 1)-1]
}

func percentileName(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// second is what succeeded among the requests that started within one second of the clock.
type second struct {
	unix          int64
	count         int
	min, max, sum time.Duration
}

// seconds gives one entry for each second from the first start of a good request to the last one.
func seconds(epoch time.Time, records []load.Record) []second {
	var series []second
	first := epoch.Unix()
	for _, record := range records {
		if !record.OK() {
			continue
		}
		at := int(epoch.Add(record.Start).Unix() - first)
		for len(series) <= at {
			series = append(series, second{unix: first + int64(len(series))})
		}
		s, latency := &series[at], record.Latency()
		if s.count == 0 || latency < s.min {
			s.min = latency
		}
		s.max = max(s.max, latency)
		s.sum += latency
		s.count++
	}
	return series
}
