package report

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/load"
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

// seriesOf has the given latencies.
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
	drain, busy, delay := 0.25, 0.125, 0.5
	sampled.DrainS, sampled.BusyRatio, sampled.RunDelayS = &drain, &busy, &delay
	sampled.PauseS, sampled.Pauses, sampled.PausedS = 0.15, 10, 1.5
	cut := fixed("put", time.Second, spread(5), nil)
	cut.Requests, cut.Abandoned, cut.Outcomes.Unknown = 10000, 100, 100
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
		must(t, c.result.Text(&got, c.options))
		golden(t, name+".txt", got.String())
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestARunWithoutAnswers(t *testing.T) {
	r := &Result{Operation: "put", Endpoints: []string{"a:1"}, Figures: Figures{Requests: 5}}
	r.Complete(load.Result{Reason: "cancelled"}, nil)
	encoded, err := json.MarshalIndent(r, "", " ")
	must(t, err)
	golden(t, "no-answer.json", string(encoded)+"\n")
	r.Abandoned, r.Outcomes.Unknown = 100, 100
	if want := "cancelled; 100 requests were cut off by the end and may have happened"; r.Problem() != want {
		t.Errorf("problem %q, want %q", r.Problem(), want)
	}
}

// TestPercentiles compares with the definition of the nearest rank, counted out.
func TestPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 10, 11, 99, 100, 101, 999, 1000, 1001} {
		latencies := make([]time.Duration, n)
		for i := range latencies {
			latencies[i] = time.Duration(random.IntN(n)+1) * time.Microsecond
		}
		slices.Sort(latencies)
		for _, p := range append([]float64{0.001, 100}, TextPercentiles...) {
			got := nearestRank(latencies, p)
			want := slices.IndexFunc(latencies, func(candidate time.Duration) bool {
				within := 0
				for _, other := range latencies {
					if other <= candidate {
						within++
					}
				}
				return within*100_000 >= int(math.Round(p*1000))*n
			})
			if got != latencies[want] {
				t.Errorf("%v%% of %d is %v, want %v", p, n, got, latencies[want])
			}
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
		{"the generator itself stood still 1 times, for 0.150 s in all and at worst for 0.150 s",
			func(r *Result) { r.PauseS, r.Pauses, r.PausedS = 0.15, 1, 0.15 }},
		{"the generator itself stood still 10 times, for 0.600 s in all and at worst for 0.060 s",
			func(r *Result) { r.PauseS, r.Pauses, r.PausedS = 0.06, 10, 0.6 }},
		{"the generator waited for a core for 0.600 of 10.000 s",
			func(r *Result) { delay := 0.6; r.RunDelayS = &delay }},
		{"the generator was busy for 95.0 % of the time: it was the limit",
			func(r *Result) { busy := 0.95; r.BusyRatio = &busy }},
	} {
		r := fixed("put", 10*time.Second, spread(5), nil)
		busy, delay := 0.9, 0.5
		r.BusyRatio, r.RunDelayS = &busy, &delay
		if c.change(r); r.Note() != c.want {
			t.Errorf("got %q, want %q", r.Note(), c.want)
		}
	}
}
