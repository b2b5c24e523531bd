package report

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fixed is a result with the given latencies, as a run would leave it.
func fixed(operation string, took time.Duration, latencies []time.Duration, errs map[string]int) *Result {
	r := &Result{Schema: Schema, Operation: operation}
	r.TotalS, r.Errors, r.OK = took.Seconds(), errs, len(latencies)
	for _, n := range errs {
		r.Failed += n
	}
	r.Done = r.OK + r.Failed
	r.Requests = r.Done
	r.Outcomes = Outcomes{OK: r.OK, Failed: r.Failed}
	r.latencies = seriesOf(latencies)
	r.ResponseTime = newDistribution(r.latencies, r.Failed)
	if r.OK > 0 {
		r.summarize()
	}
	return r
}

func seriesOf(of []time.Duration) latencies {
	s := new(series)
	for _, latency := range of {
		s.add(latency)
	}
	return latencies{s}
}

// nearestRank is the definition of a percentile: the smallest latency that at least p percent (0 < p <= 100) of all do
// not exceed. sorted must not be empty.
func nearestRank(sorted []time.Duration, p float64) time.Duration {
	return sorted[rank(len(sorted), p)-1]
}

// spread gives n latencies from 1 ms up, most of them small.
func spread(n int) []time.Duration {
	var latencies []time.Duration
	for i := range n {
		x := float64(i) / float64(n-1)
		latencies = append(latencies, time.Millisecond+time.Duration(17e6*math.Pow(x, 8)))
	}
	return latencies
}

func TestTextIsThatOfEtcdsTool(t *testing.T) {
	sampled := fixed("range", 2*time.Second, spread(50), nil)
	sampled.series = []second{{1700000000, 30, 1e6, 5e6, 60e6}, {unix: 1700000001}, {1700000002, 20, 1e6, 18e6, 90e6}}
	sampled.DrainS, sampled.BusyRatio, sampled.RunDelayS = new(0.25), new(0.125), new(0.5)
	sampled.PauseS, sampled.Pauses, sampled.PausedS = 0.15, 10, 1.5
	cut := fixed("put", time.Second, spread(5), nil)
	cut.Requests, cut.Abandoned, cut.Outcomes.Unknown, cut.SecondTries = 10000, 100, 100, 3
	cut.ResponseTime.LeftOut = 100
	for name, c := range map[string]struct {
		result  *Result
		options TextOptions
	}{
		"cut-off": {cut, TextOptions{}},
		"put":     {fixed("put", 14826700*time.Microsecond, spread(10000), nil), TextOptions{}},
		"range":   {fixed("range", time.Second, spread(100), nil), TextOptions{}},
		"precise": {fixed("range", time.Second, spread(100), nil), TextOptions{Precise: true}},
		"one":     {fixed("put", 3*time.Millisecond, []time.Duration{2 * time.Millisecond}, nil), TextOptions{}},
		"errors": {fixed("put", time.Second, spread(5), map[string]int{"b: rare": 1, "a: often": 20, "a: also rare": 1}),
			TextOptions{}},
		"no-answer": {fixed("range", time.Second, nil, map[string]int{"m: Unavailable: gone": 3}), TextOptions{}},
		"sample":    {sampled, TextOptions{Sample: true}},
	} {
		var got strings.Builder
		assert.OK(t, c.result.Text(&got, c.options))
		golden(t, name+".txt", got.String())
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		assert.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	assert.That(t, err == nil && got == string(want), "%v: got\n%s\nwant\n%s", err, got, want)
}

func TestARunWithoutAnswers(t *testing.T) {
	r := &Result{Operation: "put", Endpoints: []string{"a:1"}, Figures: Figures{Requests: 5}}
	r.Complete(load.Result{Reason: "cancelled"}, nil)
	encoded := assert.Got(json.MarshalIndent(r, "", " "))(t)
	golden(t, "no-answer.json", string(encoded)+"\n")
	r.Abandoned, r.Outcomes.Unknown = 100, 100
	want := "cancelled; 100 requests were cut off by the end and may have happened"
	assert.That(t, r.Problem() == want, "problem %q, want %q", r.Problem(), want)
}

// TestRanks compares with the definition of the nearest rank: the smallest that is at least p percent of all.
func TestRanks(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 11, 99, 100, 101, 999, 1000, 1001} {
		for _, p := range append([]float64{0.001, 100}, TextPercentiles...) {
			got, share := rank(n, p), int(math.Round(p*1000))*n // in 100,000ths
			assert.That(t, got*100_000 >= share && (got-1)*100_000 < share, "%v%% of %d has the rank %d", p, n, got)
		}
	}
}

// TestAGeneratorThatWasHeldUpSaysSo, in a closed loop too.
func TestAGeneratorThatWasHeldUpSaysSo(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Result)
	}{
		{"", func(r *Result) { r.PauseS, r.Pauses, r.PausedS = 0.09, 3, 0.2 }},
		{"the generator itself was paused 1 times, for 0.150 s in all and at worst for 0.150 s",
			func(r *Result) { r.PauseS, r.Pauses, r.PausedS = 0.15, 1, 0.15 }},
		{"the generator itself was paused 10 times, for 0.600 s in all and at worst for 0.060 s",
			func(r *Result) { r.PauseS, r.Pauses, r.PausedS = 0.06, 10, 0.6 }},
		{"the generator waited for a core for 0.600 of 10.000 s",
			func(r *Result) { r.RunDelayS = new(0.6) }},
		{"the generator was busy for 95.0 % of the time: it was the limit", func(r *Result) { r.BusyRatio = new(0.95) }},
	} {
		r := fixed("put", 10*time.Second, spread(5), nil)
		r.BusyRatio, r.RunDelayS = new(0.9), new(0.5)
		c.change(r)
		assert.Equal(t, r.Note(), c.want, "note")
	}
}

func logUniform(random *rand.Rand, n int) []time.Duration {
	latencies := make([]time.Duration, n)
	for i := range latencies {
		latencies[i] = time.Duration(math.Exp(random.Float64()*math.Log(60e9))) + 1
	}
	slices.Sort(latencies)
	return latencies
}

// TestHistogramsAreThoseOfTheLibrary compares every slot with what another implementation puts into it.
func TestHistogramsAreThoseOfTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	edges := []time.Duration{1, 1, 2, 3, 1023, 1024, 2047, 2048, 2049, 4095, 4096, 4097, 1 << 30, 47 * time.Hour}
	for name, latencies := range map[string][]time.Duration{
		"edges": edges, "one": {5 * time.Millisecond}, "many of one": slices.Repeat([]time.Duration{time.Second}, 300_000),
		"random": logUniform(random, 20_000), "out of bounds": {0, 100 * time.Hour},
	} {
		want := hdrhistogram.New(histogramMin, histogramMax, histogramDigits)
		for _, latency := range latencies {
			assert.OK(t, want.RecordValue(min(max(int64(latency), histogramMin), histogramMax)))
		}
		got, err := hdrhistogram.Decode([]byte(newDistribution(seriesOf(latencies), 0).Histogram))
		assert.Must(t, err == nil, "%s: %v", name, err)
		assert.That(t, slices.Equal(got.Distribution(), want.Distribution()) &&
			got.LowestTrackableValue() == want.LowestTrackableValue() &&
			got.HighestTrackableValue() == want.HighestTrackableValue() &&
			got.SignificantFigures() == want.SignificantFigures(), "%s: the histograms differ", name)
	}
}

func TestEveryRequestIsCountedOnce(t *testing.T) {
	const ms, unavailable, late = time.Millisecond, store.Code(14), store.Code(4)
	kinds := []struct {
		how  load.Outcome
		code store.Code
	}{
		{load.OK, store.OK}, {load.Unknown, late}, {load.Failed, unavailable}, {load.Failed, store.Check},
		{load.Unknown, unavailable}, {load.Abandoned, store.OK}, {load.OK, store.OK},
	}
	kindOf := func(number int) load.Kind {
		return map[bool]load.Kind{true: load.Put, false: load.Range}[number%3 == 0]
	}
	// Of 110 ten were never sent: each of them is counted as what it would have been.
	idle := 5 * ms
	run := load.Result{Measured: true, Took: 20 * ms, Due: 110, Failed: 57, BeganNs: 5, Idle: &idle,
		Delay:  &world.RunDelay{Sum: 2 * ms, Mean: ms},
		Errors: map[string]int{"late": 15, "refused": 14, "no key found": 14, "lost": 14}}
	var records []load.Record
	for i := range 100 {
		kind := kinds[i%len(kinds)]
		records = append(records, record(time.Duration(i)*ms/10, 0, ms, kindOf(i), kind.how, kind.code))
	}
	leader := "a:1"
	r := &Result{Operation: "mixed", Endpoints: []string{"a:1"}, Leader: &leader, Clients: 1,
		Configured: json.RawMessage(`{"endpoints":"a:1"}`), Figures: Figures{Requests: 110}}
	r.Complete(run, recorded(records, Plan{Rate: 10_000, LastStart: 109 * ms / 10, Seconds: true, Kind: kindOf}))
	put, get := r.ByOperation["put"], r.ByOperation["range"]
	seconds, sum := 0, Row{}
	for _, s := range r.series {
		seconds += s.count
	}
	for _, row := range r.Timeline {
		sum.OK, sum.Failed, sum.Unknown = sum.OK+row.OK, sum.Failed+row.Failed, sum.Unknown+row.Unknown
	}
	for what, c := range map[string][2]any{
		"problem": {r.Problem(), "57 of 110 requests failed (15 times: late), of which 29 may have happened; " +
			"14 requests were cut off by the end and may have happened"},
		// 100 = 14*7 + 2: two more of the first two.
		"outcomes":  {r.Outcomes, Outcomes{OK: 29, Failed: 28, Unknown: 15 + 14 + 14, Unsent: 10}},
		"counts":    {[]int{r.Requests, r.Done, r.Failed, r.Abandoned}, []int{110, 86, 57, 14}},
		"codes":     {r.Codes, map[string]int{"DeadlineExceeded": 15, "Unavailable": 28, "Check": 14}},
		"timeline":  {sum, Row{OK: 29, Failed: 28, Unknown: 43}},
		"seconds":   {seconds, 29},
		"latencies": {[]int{r.ResponseTime.Count, r.ResponseTime.LeftOut}, []int{29, 81}},
		"kinds": {[]int{put.OK, put.Unsent, put.ResponseTime.LeftOut, get.OK, get.Unsent, get.ServiceTime.LeftOut},
			[]int{10, 3, 27, 19, 7, 54}},
		"percentiles": {[]bool{r.ResponseTime.PercentilesAllS["25"] != nil, r.ResponseTime.PercentilesAllS["50"] != nil},
			[]bool{true, false}},
		"leader, beginning": {fmt.Sprintf("%s at %d", *r.Leader, *r.BeganNs), "a:1 at 5"},
		"machine":           {[]float64{*r.BusyRatio, *r.RunDelayS, *r.MeanRunDelayS}, []float64{0.75, 0.002, 0.001}},
	} {
		assert.That(t, reflect.DeepEqual(c[0], c[1]), "%s: got %+v, want %+v", what, c[0], c[1])
	}
	encoded := assert.Got(json.Marshal(r))(t)
	reporttest.Check(t, encoded)
}

// TestTheRateThatWasAchieved: it is about the starts, and a single answer that takes long does not change it.
func TestTheRateThatWasAchieved(t *testing.T) {
	const requests, rate, every = 200, 2000, 500 * time.Microsecond
	for name, c := range map[string]struct {
		service, last time.Duration
		unsent        int
		want          float64
	}{
		"at once":                 {1, 1, 0, 2000},
		"the last takes long":     {1, 300 * time.Millisecond, 0, 2000},
		"half of them never sent": {1, 1, 200, 1000},
		// The last was due at 99.5 ms; 10 ms later 55 have been sent.
		"each takes 2 ms": {2 * time.Millisecond, 2 * time.Millisecond, 0, 550},
	} {
		var records []load.Record
		var free time.Duration // when the one client may send again
		for i := range requests {
			start, service := time.Duration(i)*every, c.service
			if i == requests-1 {
				service = c.last
			}
			lag := max(free-start, 0)
			free = start + lag + service
			records = append(records, record(start, lag, service, load.Range, load.OK, store.OK))
		}
		var r Result
		r.Complete(load.Result{Measured: true, Due: requests + c.unsent, Took: free},
			recorded(records, Plan{Rate: rate, LastStart: (requests - 1) * every}))
		assert.That(t, math.Abs(*r.RateAchieved-c.want) <= 1e-6, "%s: %v/s, want %v", name, *r.RateAchieved, c.want)
	}
}

// TestTheDrainIsNoPartOfTheThroughput: the last request takes three times as long as the load.
func TestTheDrainIsNoPartOfTheThroughput(t *testing.T) {
	const duration = 100 * time.Millisecond
	run := load.Result{Measured: true, Took: 4 * duration}
	var records []load.Record
	for i := range 40 {
		records = append(records, record(time.Duration(i)*time.Millisecond, 0, time.Millisecond, load.Range,
			load.OK, store.OK))
	}
	records = append(records, record(duration, 0, 3*duration, load.Range, load.OK, store.OK))
	for _, c := range []struct {
		duration time.Duration
		reason   string
		perS     float64
		drainS   *float64
	}{
		{duration, "", 400, new((3 * duration).Seconds())},
		{0, "", 102.5, nil},                    // a number of requests: 41 in 0.4 s
		{time.Hour, "enough", 102.5, new(0.0)}, // ended early, after the last answer
	} {
		var r Result
		run.Reason = c.reason
		r.Complete(run, recorded(records, Plan{Duration: c.duration}))
		assert.That(t, r.OK == 41 && r.RequestsPerS == c.perS, "%v: %d, %v/s", c.duration, r.OK, r.RequestsPerS)
		assert.Equal(t, r.DrainS, c.drainS, "%v: drain", c.duration)
	}
}
