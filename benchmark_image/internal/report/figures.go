package report

import (
	"maps"
	"math"
	"slices"
	"time"

	"containernet-env/benchmark_image/internal/load"
)

// Figures are what was measured. The latency fields are response times, over the requests that succeeded, and null in JSON
// when none did.
type Figures struct {
	Requests  int      `json:"requests"` // configured
	Done      int      `json:"done"`     // ok + failed
	OK        int      `json:"ok"`
	Failed    int      `json:"failed"`    // every other outcome, also of requests that may have happened
	Empty     int      `json:"empty"`     // answers to reads that held no key
	Abandoned int      `json:"abandoned"` // in flight when the run ended early
	Outcomes  Outcomes `json:"outcomes"`

	TotalS       float64  `json:"total_s"`     // from the first start to the last outcome
	DrainS       *float64 `json:"drain_s"`     // of that, after the end of the configured duration; null: there was none
	PauseS       float64  `json:"pause_s"`     // longest time in which the client did not run although it had something to do
	Pauses       int      `json:"pauses"`      // how often that was longer than load.LateAfter
	PausedS      float64  `json:"paused_s"`    // and for how long in all
	BusyRatio    *float64 `json:"busy_ratio"`  // share of the time in which the loop did not wait for members; null: unknown
	CPUS         float64  `json:"cpu_s"`       // CPU time of the client in that time
	RunDelayS    *float64 `json:"run_delay_s"` // how long its threads waited for a core, all together; null: unknown
	SlowestS     *float64 `json:"slowest_s"`
	FastestS     *float64 `json:"fastest_s"`
	AverageS     *float64 `json:"average_s"`
	StddevS      *float64 `json:"stddev_s"`       // of the population, as in etcd's tool
	RequestsPerS float64  `json:"requests_per_s"` // with a configured duration: within it

	// PercentilesS has one entry for each of TextPercentiles, by its shortest decimal text.
	PercentilesS map[string]float64 `json:"percentiles_s"`

	Errors map[string]int `json:"errors"` // requests that failed by the text of their error
	Codes  map[string]int `json:"codes"`  // and by the name of their gRPC code

	RateOffered  *float64                `json:"rate_offered_per_s"`  // null: a closed loop
	RateAchieved *float64                `json:"rate_achieved_per_s"` // started within the schedule; null: a closed loop
	Schedule     *Schedule               `json:"schedule"`            // null: a closed loop
	ResponseTime *Distribution           `json:"response_time"`       // from the intended start
	ServiceTime  *Distribution           `json:"service_time"`        // from the actual start
	ByOperation  map[string]*ByOperation `json:"by_operation"`        // null: all requests are of one kind

	TimelineIntervalS int   `json:"timeline_interval_s"`
	Timeline          []Row `json:"timeline"`

	sorted []time.Duration // response times of the requests that succeeded
	series []second
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
	FellBehind    bool        `json:"fell_behind"` // some requests were late or never sent
	WorstLagS     float64     `json:"worst_lag_s"`
	Late          int         `json:"late"`           // requests that started more than load.LateAfter after their intended start
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
	OK           int           `json:"ok"`
	Failed       int           `json:"failed"` // as in Outcomes
	Unknown      int           `json:"unknown"`
	Unsent       int           `json:"unsent"`
	ResponseTime *Distribution `json:"response_time"`
	ServiceTime  *Distribution `json:"service_time"`
}

// newFigures computes the figures of a run; requests is how many were configured.
func newFigures(run *load.Result, requests int, setting *Setting) Figures {
	f := Figures{
		Requests: requests,
		Failed:   run.Failed,
		Empty:    run.Empty,
		TotalS:   run.Took.Seconds(),
		PauseS:   run.Pauses.Longest.Seconds(),
		Pauses:   run.Pauses.Count,
		PausedS:  run.Pauses.Sum.Seconds(),
		CPUS:     run.CPU.Seconds(),
		Errors:   map[string]int{},
		Codes:    map[string]int{},
		series:   seconds(run.Epoch, run.Records),
	}
	maps.Copy(f.Errors, run.Errors)
	if run.Delay != nil {
		delay := run.Delay.Seconds()
		f.RunDelayS = &delay
	}
	if run.Idle != nil && run.Took > 0 {
		busy := min(max(1-run.Idle.Seconds()/f.TotalS, 0), 1)
		f.BusyRatio = &busy
	}
	all := newSamples(len(run.Records))
	kinds := map[load.Kind]*samples{load.Put: newSamples(0), load.Range: newSamples(0)}
	for _, record := range run.Records {
		if record.Outcome() == load.NotSent {
			continue
		}
		all.add(record)
		if setting.Kind != nil {
			kinds[record.Kind()].add(record)
		}
		if record.Done() && !record.OK() {
			f.Codes[record.Code().String()]++
		}
	}
	all.sort()
	f.sorted = all.response
	f.OK, f.Abandoned = len(all.response), all.abandoned
	f.Done = f.OK + f.Failed
	f.Outcomes = Outcomes{OK: f.OK, Failed: all.failed, Unknown: all.unknown}
	if setting.Rate > 0 {
		f.setSchedule(run, setting.Rate, all)
	}
	f.Requests = max(f.Requests, f.Done+f.Abandoned+f.Outcomes.Unsent)
	if f.OK > 0 {
		f.summarize()
	}
	if setting.Duration > 0 && run.Took > 0 {
		f.setDrain(run, setting.Duration)
	}
	bad := all.failed + all.unknown + f.Outcomes.Unsent
	f.ResponseTime, f.ServiceTime = newDistribution(all.response, bad), newDistribution(all.service, bad)
	if setting.Kind != nil {
		due := map[load.Kind]int{}
		if f.Outcomes.Unsent > 0 {
			for number := range run.Due {
				due[setting.Kind(run.First+number)]++
			}
		}
		f.ByOperation = map[string]*ByOperation{
			"put": kinds[load.Put].figures(due[load.Put]), "range": kinds[load.Range].figures(due[load.Range]),
		}
	}
	f.TimelineIntervalS, f.Timeline = timeline(run)
	return f
}

// samples are the latencies of the requests that succeeded, and how many did not.
type samples struct {
	response, service          []time.Duration
	own                        []time.Duration // lateness of requests that had a free client
	failed, unknown, abandoned int
	sent, late, generatorLate  int
	worstLag                   time.Duration
}

// newSamples preallocates for the given number, so that no smaller arrays become garbage.
func newSamples(most int) *samples {
	return &samples{response: make([]time.Duration, 0, most), service: make([]time.Duration, 0, most)}
}

func (s *samples) add(record load.Record) {
	s.sent++
	switch record.Outcome() {
	case load.OK:
		s.response = append(s.response, record.Latency())
		s.service = append(s.service, record.Service())
	case load.Failed:
		s.failed++
	case load.Abandoned:
		s.abandoned++
		s.unknown++
	default:
		s.unknown++
	}
	lag := record.Lag()
	s.worstLag = max(s.worstLag, lag)
	if record.Late() {
		s.late++
		if record.Own() {
			s.generatorLate++
		}
	}
	if record.Waited() {
		s.own = append(s.own, lag)
	}
}

func (s *samples) sort() {
	slices.Sort(s.response)
	slices.Sort(s.service)
	slices.Sort(s.own)
}

// figures are those of one kind of requests, of which so many were due.
func (s *samples) figures(due int) *ByOperation {
	s.sort()
	unsent := max(due-s.sent, 0)
	bad := s.failed + s.unknown + unsent
	return &ByOperation{len(s.response), s.failed, s.unknown, unsent, newDistribution(s.response, bad), newDistribution(s.service, bad)}
}

// setDrain keeps what ended after the duration out of the throughput: one request that takes long would make the time longer in
// which none were sent.
func (f *Figures) setDrain(run *load.Result, duration time.Duration) {
	ok := 0
	for _, record := range run.Records {
		if record.OK() && record.End() <= duration {
			ok++
		}
	}
	window, drain := duration, max(run.Took-duration, 0).Seconds()
	if run.Reason != "" {
		window = min(duration, run.Took)
	}
	f.RequestsPerS, f.DrainS = float64(ok)/window.Seconds(), &drain
}

// setSchedule compares an open loop's schedule with its actual starts.
func (f *Figures) setSchedule(run *load.Result, rate float64, all *samples) {
	f.Outcomes.Unsent = max(run.Due-all.sent, 0)
	achieved := 0.0
	if run.Due > 0 {
		achieved = float64(startedInTime(run)) / (float64(run.Due) / rate)
	}
	f.RateOffered, f.RateAchieved = &rate, &achieved
	f.Schedule = &Schedule{
		FellBehind:    all.late > 0 || f.Outcomes.Unsent > 0,
		WorstLagS:     all.worstLag.Seconds(),
		Late:          all.late,
		GeneratorLate: all.generatorLate,
		Unsent:        f.Outcomes.Unsent,
		LateAfterS:    load.LateAfter.Seconds(),
		ClientsShort:  all.late > all.generatorLate,
	}
	if n := len(all.own); n > 0 {
		f.Schedule.OwnLateness = &OwnFigures{
			nearestRank(all.own, 50).Seconds(), nearestRank(all.own, 99).Seconds(), all.own[n-1].Seconds(),
		}
	}
}

// startedInTime is how many requests were started before the schedule was over. The rest is sent later or never; how long
// answers take does not matter here.
func startedInTime(run *load.Result) int {
	n := 0
	for _, record := range run.Records {
		if record.Outcome() != load.NotSent && record.Start+record.Lag() <= run.LastDue+load.LateAfter {
			n++
		}
	}
	return n
}

func (f *Figures) summarize() {
	f.RequestsPerS = float64(f.OK) / f.TotalS
	average, stddev := moments(f.sorted)
	fastest, slowest := f.sorted[0].Seconds(), f.sorted[f.OK-1].Seconds()
	f.FastestS, f.SlowestS, f.AverageS, f.StddevS = &fastest, &slowest, &average, &stddev
	f.PercentilesS = make(map[string]float64, len(TextPercentiles))
	for _, p := range TextPercentiles {
		f.PercentilesS[percentileName(p)] = nearestRank(f.sorted, p).Seconds()
	}
}

// moments gives the mean and the standard deviation of the population in seconds: the sum of many long requests does
// not fit into a duration.
func moments(latencies []time.Duration) (average, stddev float64) {
	var sum, squares float64
	for _, latency := range latencies {
		sum += latency.Seconds()
	}
	average = sum / float64(len(latencies))
	for _, latency := range latencies {
		deviation := latency.Seconds() - average
		squares += deviation * deviation
	}
	return average, math.Sqrt(squares / float64(len(latencies)))
}
