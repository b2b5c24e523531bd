package report

import (
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
)

func record(start, lag, service time.Duration, kind load.Kind, how load.Outcome, code store.Code) load.Record {
	return load.Record{Start: start, Lag: lag, Service: service, Kind: kind, Outcome: how, Code: code}
}

// scripted are outcomes of an open loop in the order of their ends, some of them late, failed or cut off.
func scripted(random *rand.Rand, n, kinds int, took time.Duration) []load.Record {
	records := make([]load.Record, n)
	for i := range records {
		start := time.Duration(random.Int64N(int64(took)))
		lag := time.Duration(random.Int64N(int64(took-start)+1) / 100)
		service := min(time.Duration(math.Exp(random.Float64()*math.Log(5e9))), took-start-lag)
		how := load.OK
		if random.IntN(4) == 0 {
			how = []load.Outcome{load.Failed, load.Unknown, load.Abandoned}[random.IntN(3)]
		}
		records[i] = record(start, lag, service, load.Kind(random.IntN(kinds)), how, store.Unknown)
	}
	slices.SortFunc(records, func(a, b load.Record) int { return cmp.Compare(a.End(), b.End()) })
	return records
}

func recorded(records []load.Record, plan Plan) *Recorder {
	r := NewRecorder(plan)
	r.Begin(time.Unix(1_700_000_000, 0))
	for i, record := range records {
		r.Add(i, record)
	}
	return r
}

// sortedOf gives some latencies of the requests that succeeded, ascending.
func sortedOf(records []load.Record, latency func(load.Record) time.Duration) (sorted []time.Duration) {
	for _, record := range records {
		if record.Outcome == load.OK {
			sorted = append(sorted, latency(record))
		}
	}
	slices.Sort(sorted)
	return sorted
}

// same compares a distribution with what sorting all of its latencies gives.
func same(t *testing.T, name string, d *Distribution, sorted []time.Duration, leftOut int) {
	t.Helper()
	n := len(sorted)
	if n == 0 || d == nil {
		assert.That(t, n == 0 && d == nil, "%s: %d latencies and the distribution %v", name, n, d)
		return
	}
	assert.That(t, d.Percentiles == Exact && d.Count == n && d.LeftOut == leftOut && d.MinS == sorted[0].Seconds() &&
		d.MaxS == sorted[n-1].Seconds(), "%s: %s, %d of %d, %d left out, %v..%v", name, d.Percentiles, d.Count, n,
		d.LeftOut, d.MinS, d.MaxS)
	check := func(got *float64, n int, p float64) {
		r := rank(n, p)
		assert.That(t, (got != nil) == (r < n && r <= len(sorted)) && (got == nil || *got == sorted[r-1].Seconds()),
			"%s: %v%% of %d is %v", name, p, n, got)
	}
	for _, p := range Percentiles {
		check(d.PercentilesS[percentileName(p)], n, p)
		check(d.PercentilesAllS[percentileName(p)], n+leftOut, p)
	}
}

// TestFiguresAreThoseOfAllSortedLatencies compares what is computed while outcomes come with what all of them give at
// the end, to the last bit: distributions, what etcd's tool prints, the lateness, and every row of the timeline.
func TestFiguresAreThoseOfAllSortedLatencies(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{1, 2, 3, 7, 100, 999, exactSamples} {
		for _, mixed := range []bool{false, true} {
			took := time.Duration(1+random.IntN(20)) * 731 * time.Millisecond
			step := []time.Duration{time.Second, 100 * time.Millisecond}[random.IntN(2)]
			records := scripted(random, n, map[bool]int{false: 1, true: 2}[mixed], took)
			took = records[n-1].End()
			recorder := recorded(records, Plan{Rate: 1, LastStart: took, Interval: step})
			r := &Result{Operation: map[bool]string{false: "put", true: "mixed"}[mixed]}
			r.Complete(load.Result{Measured: true, Took: took}, recorder)

			check := func(name string, response, service *Distribution, of []load.Record) (sorted []time.Duration) {
				sorted = sortedOf(of, load.Record.Latency)
				same(t, name, response, sorted, len(of)-len(sorted))
				same(t, name, service, sortedOf(of, func(r load.Record) time.Duration { return r.Service }), len(of)-len(sorted))
				return sorted
			}
			sorted := check("all", r.ResponseTime, r.ServiceTime, records)
			for p, got := range r.PercentilesS {
				var at float64
				assert.OK(t, json.Unmarshal([]byte(p), &at))
				assert.That(t, got == nearestRank(sorted, at).Seconds(), "%s%% of %d is %v", p, n, got)
			}
			for name, of := range r.ByOperation {
				check(name, of.ResponseTime, of.ServiceTime, slices.DeleteFunc(slices.Clone(records),
					func(record load.Record) bool { return record.Kind.String() != name }))
			}
			assert.Equal(t, len(r.ByOperation), map[bool]int{true: 2}[mixed], "kinds")
			sameTimeline(t, r, records, took, step)
		}
	}
}

// sameTimeline compares each row with what the outcomes within it give.
func sameTimeline(t *testing.T, r *Result, records []load.Record, took, step time.Duration) {
	t.Helper()
	expected := int((took + step - 1) / step)
	assert.Must(t, len(r.Timeline) >= expected && len(r.Timeline) <= expected+1 && r.TimelineIntervalS == step.Seconds(),
		"%d rows of %v s in %v", len(r.Timeline), r.TimelineIntervalS, took)
	before, longest, longestStart := time.Duration(0), time.Duration(0), time.Duration(0)
	for i, row := range r.Timeline {
		from, to := time.Duration(i)*step, time.Duration(i+1)*step
		want := Row{Second: from.Seconds()}
		var sorted []time.Duration
		for ; len(records) > 0 && records[0].End() < to; records = records[1:] {
			record, end := records[0], records[0].End()
			switch record.Outcome {
			case load.OK:
				if sorted = append(sorted, record.Latency()); want.FirstOKNs == nil {
					want.FirstOKNs = new(int64(end))
				}
				want.LastOKNs = new(int64(end))
				gap := end - before
				if want.GapNs == nil || gap > time.Duration(*want.GapNs) {
					want.GapNs, want.GapEndNs = new(int64(gap)), new(int64(end))
				}
				if gap > longest {
					longest, longestStart = gap, before
				}
				before = end
			case load.Failed:
				want.Failed++
			default:
				want.Unknown++
			}
		}
		if slices.Sort(sorted); len(sorted) > 0 {
			n := len(sorted)
			at := func(p float64) *float64 {
				if rank(n, p) == n {
					return nil
				}
				return orNil(nearestRank(sorted, p))
			}
			want.OK, want.P50S, want.P99S, want.MaxS = n, at(50), at(99), orNil(sorted[n-1])
		}
		want.RequestsPerS = row.RequestsPerS
		got, _ := json.Marshal(row)
		wanted, _ := json.Marshal(want)
		assert.Must(t, string(got) == string(wanted), "row %d of %d\n     %s\nwant %s", i, len(r.Timeline), got, wanted)
		width := min(step, took-from).Seconds()
		assert.That(t, width <= 0 || math.Abs(row.RequestsPerS-float64(row.OK)/width) <= 1e-9*row.RequestsPerS,
			"row %d: %d in %v s make %v/s", i, row.OK, width, row.RequestsPerS)
	}
	if took-before > longest {
		longest, longestStart = took-before, before
	}
	assert.That(t, r.LongestGapS == longest.Seconds() && r.LongestGapStartS == longestStart.Seconds(),
		"longest gap %v s from %v s, want %v from %v", r.LongestGapS, r.LongestGapStartS, longest, longestStart)
}

// TestPercentilesOfLongRuns: with one latency more than are kept, percentiles are those of the library's histogram; all
// other figures stay exact.
func TestPercentilesOfLongRuns(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	latencies := logUniform(random, exactSamples+1)
	random.Shuffle(len(latencies), func(i, j int) { latencies[i], latencies[j] = latencies[j], latencies[i] })
	assert.Equal(t, newDistribution(seriesOf(latencies[1:]), 0).Percentiles, Exact, "with one latency less")
	d := newDistribution(seriesOf(latencies), 5)
	library := hdrhistogram.New(histogramMin, histogramMax, histogramDigits)
	for _, latency := range latencies {
		assert.OK(t, library.RecordValue(int64(latency)))
	}
	sorted := slices.Sorted(slices.Values(latencies))
	assert.That(t, d.Percentiles == InHistogram && d.Count == len(sorted) && d.MinS == sorted[0].Seconds() &&
		d.MaxS == sorted[len(sorted)-1].Seconds(), "%s, %d, %v..%v", d.Percentiles, d.Count, d.MinS, d.MaxS)
	for _, p := range Percentiles {
		got, exact := *d.PercentilesS[percentileName(p)], nearestRank(sorted, p).Seconds()
		assert.That(t, got >= exact && got <= exact*1.001, "%v%% is %v, exactly %v", p, got, exact)
		want := time.Duration(library.ValueAtPercentile(p)).Seconds()
		assert.That(t, got == min(want, d.MaxS), "%v%% is %v, in the library %v", p, got, want)
	}
}

// TestMomentsAreExact: of latencies around a day that differ by 2 ns, the squares of floating-point numbers keep nothing.
func TestMomentsAreExact(t *testing.T) {
	for _, day := range []time.Duration{1 << 46, 1<<46 + 1, 1<<47 - 1} {
		d := newDistribution(seriesOf(slices.Repeat([]time.Duration{day - 1, day + 1}, exactSamples)), 0)
		assert.Equal(t, [2]float64{d.MeanS, d.StddevS}, [2]float64{day.Seconds(), 1e-9}, "mean and deviation")
	}
}

// TestMemoryDoesNotGrowWithTheRun measures the heap after one and after three times as many requests as are kept.
func TestMemoryDoesNotGrowWithTheRun(t *testing.T) {
	r := NewRecorder(Plan{Rate: 1})
	at := time.Duration(0)
	heap := func() int64 {
		for range exactSamples + 10 {
			at += 10 * time.Microsecond
			r.Add(0, record(at-time.Millisecond, 0, time.Millisecond+at%1000, load.Range, load.OK, store.OK))
		}
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return int64(memory.HeapAlloc)
	}
	first, _, last := heap(), heap(), heap()
	assert.That(t, last-first <= 1<<20, "%d bytes at first, %d after three times as many requests", first, last)
	assert.Equal(t, testing.AllocsPerRun(10_000, func() {
		at += 10 * time.Microsecond
		r.Add(0, record(at-time.Millisecond, 0, time.Millisecond, load.Range, load.OK, store.OK))
	}), 0, "allocations for each request")
}

func TestTimelinesAreBounded(t *testing.T) {
	for _, c := range []struct {
		step, expected, took time.Duration
		interval             float64
		rows                 int
	}{
		{0, 0, 0, 1, 0},
		{0, 0, 100 * time.Millisecond, 1, 1},
		{0, 0, 10 * time.Second, 1, 10},
		{0, 0, 10*time.Second + 1, 1, 11},
		{100 * time.Millisecond, 10 * time.Second, 10 * time.Second, 0.1, 100},
		{0, 24 * time.Hour, 24 * time.Hour, 6, 14_400},
		{0, 24 * time.Hour, time.Minute, 6, 10},
		{100 * time.Millisecond, 24 * time.Hour, 24 * time.Hour, 5.4, 16_000},
		{0, 0, maxRows*time.Second - 1, 1, maxRows},
		{0, 0, maxRows*time.Second + 1, 2, maxRows/2 + 1},
		{100 * time.Millisecond, 0, 24 * time.Hour, 6.4, 13_500},
	} {
		interval, rows := newTimeline(c.step, c.expected, 0).rows(c.took)
		assert.That(t, interval.Seconds() == c.interval && len(rows) == c.rows,
			"%v in steps of %v: %d rows of %v, want %d of %v s", c.took, c.step, len(rows), interval, c.rows, c.interval)
	}
}

// TestIntervalsThatAreJoined: a run that takes longer than anybody knew counts everything once.
func TestIntervalsThatAreJoined(t *testing.T) {
	timeline := newTimeline(0, 0, 0)
	took := (maxRows + 100) * time.Second
	for at := 500 * time.Millisecond; at < took; at += time.Second {
		second := at / time.Second
		if how := []load.Outcome{load.OK, load.OK, load.Failed, load.Unknown}[second%4]; second < 100 || second >= 110 {
			timeline.add(at, how, time.Millisecond*second)
		}
	}
	_, rows := timeline.rows(took)
	var sum Row
	before := int64(0)
	for i, row := range rows {
		sum.OK, sum.Failed, sum.Unknown = sum.OK+row.OK, sum.Failed+row.Failed, sum.Unknown+row.Unknown
		if row.OK == 0 {
			continue
		}
		first, last, gap, end := *row.FirstOKNs, *row.LastOKNs, *row.GapNs, *row.GapEndNs
		assert.Must(t, gap >= first-before && end >= first && end <= last && first/2e9 == int64(i) && last/2e9 == int64(i),
			"row %d: successes from %d to %d, the longest gap is %d to %d", i, first, last, gap, end)
		before = last
	}
	assert.Equal(t, sum, Row{OK: (maxRows+100)/2 - 6, Failed: (maxRows+100)/4 - 2, Unknown: (maxRows+100)/4 - 2}, "rows")
	assert.That(t, timeline.gap == 15*time.Second && timeline.gapStart == 97*time.Second+500*time.Millisecond,
		"the longest gap is %v from %v", timeline.gap, timeline.gapStart)
}

// TestTheLongestGapIsThatOfTheLoad: what comes after the time in which requests are sent does not count.
func TestTheLongestGapIsThatOfTheLoad(t *testing.T) {
	for _, c := range []struct {
		window     time.Duration
		successes  []time.Duration // ms
		gap, start time.Duration   // ms
	}{
		{0, nil, 9000, 0},
		{2000, nil, 2000, 0},
		{0, []time.Duration{100, 300, 1700, 1900}, 7100, 1900},
		{2000, []time.Duration{100, 300, 1700, 1900}, 1400, 300},
		{2000, []time.Duration{100, 8000}, 1900, 100},
		{2000, []time.Duration{1500, 2500, 8000}, 1500, 0},
	} {
		timeline := newTimeline(0, 0, c.window*time.Millisecond)
		for _, at := range c.successes {
			timeline.add(at*time.Millisecond, load.OK, time.Millisecond)
		}
		timeline.rows(9 * time.Second)
		assert.Equal(t, [2]time.Duration{timeline.gap, timeline.gapStart},
			[2]time.Duration{c.gap * time.Millisecond, c.start * time.Millisecond}, "successes at %v ms of %d", c.successes,
			c.window)
	}
}
