package report

import (
	"slices"
	"time"

	"containernet-env/benchmark_image/internal/load"
)

// maxRows is how many rows a timeline may have; longer runs get longer intervals.
const maxRows = 3600

// Row describes the requests that ended within one interval of a run.
type Row struct {
	Second       int      `json:"second"` // start of the interval since the start of the run
	OK           int      `json:"ok"`
	Failed       int      `json:"failed"`  // did not happen
	Unknown      int      `json:"unknown"` // may have happened, including those that the end of the run cut off
	RequestsPerS float64  `json:"requests_per_s"`
	P50S         *float64 `json:"p50_s"` // of the response times; null where there are too few
	P99S         *float64 `json:"p99_s"`
	MaxS         *float64 `json:"max_s"`
}

// timeline gives a row for each interval from the start of the run to its end, also where no request ended.
func timeline(run *load.Result) (intervalS int, timeline []Row) {
	const widest = maxRows * time.Second
	whole := run.Took
	intervalS = max(int((whole+widest-1)/widest), 1)
	interval := time.Duration(intervalS) * time.Second
	n := int((whole + interval - 1) / interval)
	timeline = make([]Row, n)
	counts := make([]int, n)
	eachSent(run, interval, n, func(at int, record load.Record) {
		switch record.Outcome() {
		case load.OK:
			counts[at]++
		case load.Failed:
			timeline[at].Failed++
		default:
			timeline[at].Unknown++
		}
	})
	latencies := make([][]time.Duration, n)
	for i, count := range counts {
		latencies[i] = make([]time.Duration, 0, count)
	}
	eachSent(run, interval, n, func(at int, record load.Record) {
		if record.OK() {
			latencies[at] = append(latencies[at], record.Latency())
		}
	})
	for i := range timeline {
		row, sorted := &timeline[i], latencies[i]
		slices.Sort(sorted)
		row.Second, row.OK = i*intervalS, len(sorted)
		width := min(interval, whole-time.Duration(i)*interval)
		row.RequestsPerS = float64(row.OK) / width.Seconds()
		if len(sorted) > 0 {
			slowest := sorted[len(sorted)-1].Seconds()
			row.P50S, row.P99S, row.MaxS = known(sorted, len(sorted), 50), known(sorted, len(sorted), 99), &slowest
		}
	}
	return intervalS, timeline
}

// eachSent calls visit for each request that was sent, with the number of the interval, below n, in which it ended or was
// cut off.
func eachSent(run *load.Result, interval time.Duration, n int, visit func(at int, record load.Record)) {
	for _, record := range run.Records {
		if record.Outcome() != load.NotSent {
			visit(min(int(record.End()/interval), n-1), record)
		}
	}
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
