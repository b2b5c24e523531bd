// Package report computes the figures of a run from the outcomes of its requests, and writes them as text in the form
// of etcd's benchmark tool or as JSON.
package report

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
)

// Figures are what was measured. The latency fields are response times, over the requests that succeeded, and null in
// JSON when none did.
type Figures struct {
	Requests  int `json:"requests"` // configured
	Done      int `json:"done"`     // ok + failed
	OK        int `json:"ok"`
	Failed    int `json:"failed"`    // every other outcome, also of requests that may have happened
	Empty     int `json:"empty"`     // answers to reads that held no key
	Abandoned int `json:"abandoned"` // in flight when the run ended early
	// SecondTries are writes that were answered after a second round trip, because of whether their key existed; absent
	// where there are none, as with a store that has a write for both.
	SecondTries int      `json:"second_tries,omitempty"`
	Outcomes    Outcomes `json:"outcomes"`

	TotalS float64 `json:"total_s"` // from the first start to the last outcome
	// of that, after the end of the configured duration; null: there was none
	DrainS *float64 `json:"drain_s"`
	// longest time in which the client did not run although it had something to do
	PauseS  float64 `json:"pause_s"`
	Pauses  int     `json:"pauses"`   // how often that was longer than load.LateAfter
	PausedS float64 `json:"paused_s"` // and for how long in all
	// share of the time in which the loop did not wait for members; null: unknown
	BusyRatio *float64 `json:"busy_ratio"`
	CPUS      float64  `json:"cpu_s"`       // CPU time of the client in that time
	RunDelayS *float64 `json:"run_delay_s"` // how long its threads waited for a core, all together; null: unknown
	// and in the mean of each time that it got one, of the thread that waited longest
	MeanRunDelayS *float64 `json:"mean_run_delay_s"`
	SlowestS      *float64 `json:"slowest_s"`
	FastestS      *float64 `json:"fastest_s"`
	AverageS      *float64 `json:"average_s"`
	StddevS       *float64 `json:"stddev_s"` // of the population, as in etcd's tool
	// with a configured duration: that ended within it, also of the warm-up
	RequestsPerS float64 `json:"requests_per_s"`

	// PercentilesS has one entry for each of TextPercentiles, by its shortest decimal text.
	PercentilesS map[string]float64 `json:"percentiles_s"`
	// of the response times, those of the timeline too: Exact or InHistogram
	Percentiles string `json:"percentiles"`

	LongestGapS      float64 `json:"longest_gap_s"`       // longest time without a success while requests were sent
	LongestGapStartS float64 `json:"longest_gap_start_s"` // since the start of the run

	Errors map[string]int `json:"errors"` // requests that failed by the text of their error
	Codes  map[string]int `json:"codes"`  // and by the name of their gRPC code

	RateOffered  *float64                `json:"rate_offered_per_s"`  // null: a closed loop
	RateAchieved *float64                `json:"rate_achieved_per_s"` // started within the schedule; null: a closed loop
	Schedule     *Schedule               `json:"schedule"`            // null: a closed loop
	ResponseTime *Distribution           `json:"response_time"`       // from the intended start
	ServiceTime  *Distribution           `json:"service_time"`        // from the actual start
	ByOperation  map[string]*ByOperation `json:"by_operation"`        // null: all requests are of one kind

	TimelineIntervalS float64 `json:"timeline_interval_s"`
	Timeline          []Row   `json:"timeline"`

	latencies latencies // response times of the requests that succeeded
	series    []second
}

// Outcomes counts every request of the load once.
type Outcomes struct {
	OK      int `json:"ok"`
	Failed  int `json:"failed"`  // did not happen
	Unknown int `json:"unknown"` // may have happened
	Unsent  int `json:"unsent"`  // due by the schedule, and never sent
}

// Schedule tells how an open loop kept its schedule.
type Schedule struct {
	FellBehind bool    `json:"fell_behind"` // some requests were late or never sent
	WorstLagS  float64 `json:"worst_lag_s"`
	// requests that started more than load.LateAfter after their intended start
	Late          int         `json:"late"`
	GeneratorLate int         `json:"generator_late"` // those of them of which the generator itself is the cause
	Unsent        int         `json:"unsent"`         // as in the outcomes
	OwnLateness   *OwnFigures `json:"own_lateness"`   // of the requests that had a free client; null if none had
	LateAfterS    float64     `json:"late_after_s"`   // load.LateAfter
	ClientsShort  bool        `json:"clients_short"`  // some were late because all clients waited for members
}

// OwnFigures tell how long after the intended start requests were sent although a client was free.
type OwnFigures struct {
	P50S float64 `json:"p50_s"`
	P99S float64 `json:"p99_s"`
	MaxS float64 `json:"max_s"`
}

// ByOperation are the figures of the puts or of the ranges in a mixed load.
type ByOperation struct {
	Outcomes
	ResponseTime *Distribution `json:"response_time"`
	ServiceTime  *Distribution `json:"service_time"`
}

func newFigures(run *load.Result, recorded *Recorder, requests int, mixed bool) Figures {
	sent, failed, unknown, abandoned := 0, 0, 0, 0
	var response, service latencies
	for i := range recorded.kinds {
		k := &recorded.kinds[i]
		sent, failed, unknown, abandoned = sent+k.sent(), failed+k.failed, unknown+k.unknown, abandoned+k.abandoned
		response, service = append(response, &k.response), append(service, k.serviceTimes(recorded.plan.open()))
	}
	f := Figures{
		Requests:    requests,
		Failed:      run.Failed,
		Empty:       run.Empty,
		SecondTries: run.Second,
		Abandoned:   abandoned,
		TotalS:      run.Took.Seconds(),
		PauseS:      run.Pauses.Longest.Seconds(),
		Pauses:      run.Pauses.Count,
		PausedS:     run.Pauses.Sum.Seconds(),
		CPUS:        run.CPU.Seconds(),
		Errors:      map[string]int{},
		Codes:       map[string]int{},
		Percentiles: response.origin(),
		latencies:   response,
		series:      recorded.clock.series,
	}
	maps.Copy(f.Errors, run.Errors)
	for code, n := range recorded.codes {
		if n > 0 {
			f.Codes[store.Code(code).String()] = n
		}
	}
	if run.Delay != nil {
		f.RunDelayS, f.MeanRunDelayS = new(run.Delay.Sum.Seconds()), new(run.Delay.Mean.Seconds())
	}
	if run.Idle != nil && run.Took > 0 {
		f.BusyRatio = new(min(max(1-run.Idle.Seconds()/f.TotalS, 0), 1))
	}
	f.OK = f.latencies.count()
	f.Done = f.OK + f.Failed
	f.Outcomes = Outcomes{OK: f.OK, Failed: failed, Unknown: unknown}
	if recorded.plan.open() && run.Measured {
		f.setSchedule(run, recorded, sent)
	}
	f.Requests = max(f.Requests, f.Done+f.Abandoned+f.Outcomes.Unsent)
	bad := failed + unknown + f.Outcomes.Unsent
	f.ResponseTime, f.ServiceTime = newDistribution(response, bad), newDistribution(service, bad)
	if f.OK > 0 {
		f.summarize()
	}
	if duration := recorded.plan.Duration; duration > 0 && run.Took > 0 {
		f.setDrain(run, duration, recorded.inDuration)
	}
	if mixed {
		if f.Outcomes.Unsent > 0 {
			recorded.countDue(run.Due)
		}
		f.ByOperation = map[string]*ByOperation{
			"put": recorded.kindFigures(load.Put), "range": recorded.kindFigures(load.Range),
		}
	}
	step, rows := recorded.timeline.rows(run.Took)
	f.TimelineIntervalS, f.Timeline = step.Seconds(), rows
	f.LongestGapS, f.LongestGapStartS = recorded.timeline.gap.Seconds(), recorded.timeline.gapStart.Seconds()
	return f
}

// setDrain keeps what ended after the duration out of the throughput: one request that takes long would make the time
// longer in which none were sent. ok is how many of the measurement's requests succeeded within the duration. Those of
// the warm-up that did so count, too: they stand for those that are in flight at the end.
func (f *Figures) setDrain(run *load.Result, duration time.Duration, ok int) {
	window := duration
	if run.Reason != "" {
		window = min(duration, run.Took)
	}
	if run.Warmup != nil {
		ok += run.Warmup.InDuration
	}
	f.RequestsPerS, f.DrainS = float64(ok)/window.Seconds(), new(max(run.Took-duration, 0).Seconds())
}

// setSchedule compares an open loop's schedule with its actual starts.
func (f *Figures) setSchedule(run *load.Result, recorded *Recorder, sent int) {
	rate := recorded.plan.Rate
	f.Outcomes.Unsent = max(run.Due-sent, 0)
	achieved := 0.0
	if length := recorded.plan.length(run.Due); length > 0 {
		achieved = float64(recorded.inTime) / length
	}
	f.RateOffered, f.RateAchieved = &rate, &achieved
	f.Schedule = &Schedule{
		FellBehind:    recorded.late > 0 || f.Outcomes.Unsent > 0,
		WorstLagS:     recorded.worstLag.Seconds(),
		Late:          recorded.late,
		GeneratorLate: recorded.ownLate,
		Unsent:        f.Outcomes.Unsent,
		LateAfterS:    load.LateAfter.Seconds(),
		ClientsShort:  recorded.late > recorded.ownLate,
	}
	own := latencies{&recorded.own}
	if n := own.count(); n > 0 {
		half, most := rank(n, 50), rank(n, 99)
		values := own.byRank([]int{half, most})
		f.Schedule.OwnLateness = &OwnFigures{values[half].Seconds(), values[most].Seconds(), recorded.own.max.Seconds()}
	}
}

// summarize fills in what etcd's tool prints.
func (f *Figures) summarize() {
	f.RequestsPerS = float64(f.OK) / f.TotalS
	d := f.ResponseTime
	f.FastestS, f.SlowestS, f.AverageS, f.StddevS = &d.MinS, &d.MaxS, &d.MeanS, &d.StddevS
	f.PercentilesS = make(map[string]float64, len(TextPercentiles))
	for _, p := range TextPercentiles {
		name := percentileName(p)
		f.PercentilesS[name] = d.MaxS
		if value := d.PercentilesS[name]; value != nil {
			f.PercentilesS[name] = *value
		}
	}
}

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
	// A percentile that cannot be distinguished from the maximum is not known, nor one among requests without a latency.
	known := func(n int, p float64) *float64 {
		if r := rank(n, p); r < n && r <= d.Count {
			return new(values[r].Seconds())
		}
		return nil
	}
	for _, p := range Percentiles {
		d.PercentilesS[percentileName(p)] = known(n, p)
		d.PercentilesAllS[percentileName(p)] = known(n+leftOut, p)
	}
	return d
}

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

// Schema is the version of the JSON form of Result.
const Schema = 9

// Result is the result of a benchmark.
type Result struct {
	Schema int `json:"schema"`
	// by which benchmark-server keeps the result; null in the output of the commands
	Job         *string  `json:"job"`
	Operation   string   `json:"operation"` // put, range, mixed or txn
	Connections int      `json:"connections"`
	Clients     int      `json:"clients"`
	Endpoints   []string `json:"endpoints"`
	Leader      *string  `json:"leader"` // when the connections were opened
	Reason      *string  `json:"reason"` // why the run is not as configured; null if it is
	// the start of the measurement, on CLOCK_MONOTONIC; null if nothing was measured
	BeganNs *int64 `json:"began_ns"`

	Figures

	// the body of an HTTP request for the same load, defaults filled in
	Configured    json.RawMessage `json:"configured"`
	Warmup        *Warmup         `json:"warmup"`            // null if none was configured
	LeaderChanges []LeaderChange  `json:"leader_changes"`    // moves of the load
	History       *history.Footer `json:"history,omitempty"` // absent if none was configured

	epoch time.Time // of the run
}

// Warmup is the load before the measurement; it is in no other figure but RequestsPerS, with a duration.
type Warmup struct {
	OK        int     `json:"ok"`
	Failed    int     `json:"failed"`    // did not happen
	Unknown   int     `json:"unknown"`   // may have happened
	Abandoned int     `json:"abandoned"` // of these, in flight when it ended early
	TotalS    float64 `json:"total_s"`
}

// LeaderChange is a move of the load to another leader.
type LeaderChange struct {
	AtS    float64 `json:"at_s"` // since the start
	Leader string  `json:"leader"`
}

// Progress is one line of benchmark-client --progress json, and part of what benchmark-server says.
type Progress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Errors int `json:"errors"`
	Warmup int `json:"warmup_done"` // requests of the warm-up that have an outcome
	// when the measurement began, on CLOCK_MONOTONIC; null before
	BeganNs *int64 `json:"began_ns"`
}

// Complete computes the figures of a result that says so far what was configured: of a run, and of what was recorded of
// it. The zero value of a run is of one that did not begin.
func (r *Result) Complete(run load.Result, recorded *Recorder) {
	r.Schema, r.LeaderChanges = Schema, []LeaderChange{}
	r.SetReason(run.Reason)
	if w := run.Warmup; w != nil {
		r.Warmup = &Warmup{w.OK, w.Failed, w.Unknown + w.Abandoned, w.Abandoned, w.Took.Seconds()}
	}
	if !run.Measured {
		run = load.Result{}
	}
	if recorded == nil {
		recorded = NewRecorder(Plan{})
	}
	r.epoch = run.Epoch
	if run.BeganNs > 0 {
		r.BeganNs = &run.BeganNs
	}
	r.Figures = newFigures(&run, recorded, r.Requests, r.Operation == "mixed")
}

// SetReason tells why the run is not as configured, unless it tells that already; empty: it is.
func (r *Result) SetReason(reason string) {
	if reason != "" && r.Reason == nil {
		r.Reason = &reason
	}
}

// AddLeaderChange records a move of the load at the given time; one before the measurement is ignored.
func (r *Result) AddLeaderChange(at time.Time, leader string) {
	if !r.epoch.IsZero() {
		r.LeaderChanges = append(r.LeaderChanges, LeaderChange{at.Sub(r.epoch).Seconds(), leader})
	}
}

// AddHistory tells of the history that was kept; err is why it is not whole.
func (r *Result) AddHistory(kept history.Footer, err error) {
	if r.History = &kept; err != nil {
		r.SetReason(err.Error())
	}
}
