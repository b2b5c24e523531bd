package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/load"
)

const (
	barChar  = "\u220e" // END OF PROOF, as etcd's tool draws its bars
	barWidth = 40
	buckets  = 10
)

// TextOptions are the flags of etcd's tool that change its text.
type TextOptions struct {
	Precise bool // all digits instead of four decimals
	Sample  bool // add a table with a row for each second
}

// Text writes the report in the form of etcd's benchmark tool. There, percentiles that too few
// requests cannot tell apart are left out; here all are printed. What etcd's tool does not have follows: all
// percentiles with the number of requests and '-' where that is too small, open loops and mixed loads.
func (r *Result) Text(w io.Writer, options TextOptions) error {
	p := &page{number: "%4.4f"}
	if options.Precise {
		p.number = "%g"
	}
	r.Figures.print(p, options.Sample)
	if w := r.Warmup; w != nil && w.Failed+w.Unknown > 0 {
		p.print("\nWarm-up: %d ok, %d failed, %d unknown (%d of these cut off by the end)\n", w.OK, w.Failed, w.Unknown,
			w.Abandoned)
	}
	if r.Operation == "put" {
		p.print("\n")
	}
	_, err := io.WriteString(w, p.String())
	return err
}

type page struct {
	strings.Builder
	number string // the format of every float64
}

func (p *page) print(format string, values ...any) {
	for i, value := range values {
		if number, is := value.(float64); is {
			values[i] = fmt.Sprintf(p.number, number)
		}
	}
	fmt.Fprintf(p, format, values...)
}

func (r *Figures) print(p *page, sample bool) {
	if r.OK > 0 {
		p.print("\nSummary:\n  Total:\t%v secs.\n  Slowest:\t%v secs.\n  Fastest:\t%v secs.\n  Average:\t%v secs.\n"+
			"  Stddev:\t%v secs.\n  Requests/sec:\t%v\n", r.TotalS, *r.SlowestS, *r.FastestS, *r.AverageS, *r.StddevS,
			r.RequestsPerS)
		r.printHistogram(p)
		p.print("\nLatency distribution:\n")
		for _, percentile := range TextPercentiles {
			name := percentileName(percentile)
			p.print("  %s%% in %v secs.\n", name, r.PercentilesS[name])
		}
		if sample {
			r.printSeries(p)
		}
	}
	if o := r.Outcomes; o.Failed+o.Unknown+o.Unsent > 0 {
		p.print("\nLeft out: %d failed, %d unknown (%d of these cut off by the end), %d never sent; %d are ok\n", o.Failed,
			o.Unknown, r.Abandoned, o.Unsent, o.OK)
	}
	if r.SecondTries > 0 {
		p.print("\nSecond tries: %d writes took two round trips, because of whether their key existed\n", r.SecondTries)
	}
	if len(r.Errors) > 0 {
		p.print("\nError distribution:\n")
		for _, text := range r.errorsByCount() {
			p.print("  [%d]\t%s\n", r.Errors[text], text)
		}
	}
	if s := r.Schedule; s != nil {
		p.print("\nSchedule:\n  Offered:\t%v requests/sec\n  Achieved:\t%v requests/sec\n  Worst lag:\t%v secs.\n"+
			"  Late:\t%d, of these by the generator itself: %d\n  Never sent:\t%d\n", *r.RateOffered, *r.RateAchieved,
			s.WorstLagS, s.Late, s.GeneratorLate, s.Unsent)
		r.ResponseTime.print(p, "Response time, from the intended start")
		r.ServiceTime.print(p, "Service time, from the actual start")
	} else {
		r.ResponseTime.print(p, "Response time")
	}
	if r.TotalS > 0 {
		r.printGenerator(p)
	}
	for _, name := range slices.Sorted(maps.Keys(r.ByOperation)) {
		kind := r.ByOperation[name]
		p.print("\nOf these, %s: %d ok, %d failed, %d unknown, %d never sent\n", name, kind.OK, kind.Failed, kind.Unknown,
			kind.Unsent)
		kind.ResponseTime.print(p, "Response time")
	}
}

// printGenerator prints what the generator itself had to do, and what kept it from that.
func (r *Figures) printGenerator(p *page) {
	p.print("\nGenerator:\n")
	if r.DrainS != nil {
		p.print("  Drain:\t%v secs. after the end of the duration\n", *r.DrainS)
	}
	if r.BusyRatio != nil {
		p.print("  Busy:\t%s%% of the time\n", fmt.Sprintf("%.1f", *r.BusyRatio*100))
	}
	p.print("  Paused:\t%d times, %v secs. in all, %v secs. at the longest\n", r.Pauses, r.PausedS, r.PauseS)
	if r.RunDelayS != nil {
		p.print("  Waited:\t%v secs. for a core, all threads together\n", *r.RunDelayS)
	}
}

// print prints '-' for percentiles for which there are too few requests.
func (d *Distribution) print(p *page, title string) {
	if d == nil {
		return
	}
	p.print("\n%s (%d requests, %d left out):\n", title, d.Count, d.LeftOut)
	for _, percentile := range Percentiles {
		name := percentileName(percentile)
		if value := d.PercentilesS[name]; value != nil {
			p.print("  %s%% in %v secs.\n", name, *value)
		} else {
			p.print("  %s%% in -\n", name)
		}
	}
}

// printHistogram draws how many latencies lie between one edge and the next; the first edge is the
// fastest, the last the slowest, and the distance between neighbours is the same.
func (r *Figures) printHistogram(p *page) {
	fastest, slowest := *r.FastestS, *r.SlowestS
	var edges [buckets + 1]float64
	for i := range edges {
		edges[i] = fastest + float64(i)*((slowest-fastest)/buckets)
	}
	edges[buckets] = slowest
	var counts [buckets + 1]int
	r.latencies.each(func(latency time.Duration, count int) {
		row := 0
		for row < buckets && latency.Seconds() > edges[row] {
			row++
		}
		counts[row] += count
	})
	most := slices.Max(counts[:])
	p.print("\nResponse time histogram:\n")
	for i, edge := range edges {
		p.print("  %v [%d]\t|%s\n", edge, counts[i], strings.Repeat(barChar, counts[i]*barWidth/most))
	}
}

func (r *Figures) printSeries(p *page) {
	p.print("\nSample in one second (unix latency throughput):\n" +
		"UNIX-SECOND,MIN-LATENCY-MS,AVG-LATENCY-MS,MAX-LATENCY-MS,AVG-THROUGHPUT\n")
	for _, s := range r.series {
		p.print("%d,%s,%s,%s,%d\n", s.unix, s.min, s.sum/time.Duration(max(s.count, 1)), s.max, s.count)
	}
	p.print("\n")
}

func (r *Figures) errorsByCount() []string {
	return slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Errors[b], r.Errors[a]), cmp.Compare(a, b))
	})
}

// What of the generator itself says something about the figures.
const (
	longPause      = 100 * time.Millisecond // by itself
	largeShare     = 0.05                   // of the time, in which it did not run, or waited for a core
	saturated      = 0.9                    // of the time busy: it could hardly have done more
	shareIsKnownAt = time.Second            // how long a run is of which such shares say something
)

// generatorNotes say what kept the generator itself from being in time.
func (r *Figures) generatorNotes() (parts []string) {
	known := r.TotalS >= shareIsKnownAt.Seconds()
	if r.PauseS > longPause.Seconds() || known && r.PausedS > largeShare*r.TotalS {
		parts = append(parts,
			fmt.Sprintf("the generator itself was paused %d times, for %.3f s in all and at worst for %.3f s", r.Pauses,
				r.PausedS, r.PauseS))
	}
	if known && r.RunDelayS != nil && *r.RunDelayS > largeShare*r.TotalS {
		parts = append(parts, fmt.Sprintf("the generator waited for a core for %.3f of %.3f s", *r.RunDelayS, r.TotalS))
	}
	if known && r.BusyRatio != nil && *r.BusyRatio > saturated {
		parts = append(parts, fmt.Sprintf("the generator was busy for %.1f %% of the time: it was the limit",
			*r.BusyRatio*100))
	}
	return parts
}

// Note is one line on what limits the meaning of a successful run's figures; empty if nothing does.
func (r *Result) Note() string {
	var parts []string
	if r.Schedule != nil && r.Schedule.FellBehind {
		parts = append(parts,
			fmt.Sprintf("the schedule was not kept: %d requests started more than %v late, at worst by %.3f s; "+
				"all clients were busy for %d of them, for %d the generator itself was too slow; %d were never sent",
				r.Schedule.Late, load.LateAfter, r.Schedule.WorstLagS, r.Schedule.Late-r.Schedule.GeneratorLate,
				r.Schedule.GeneratorLate, r.Schedule.Unsent))
	}
	parts = append(parts, r.generatorNotes()...)
	if w := r.Warmup; w != nil && w.Failed+w.Unknown > 0 {
		parts = append(parts, fmt.Sprintf("of %d requests of the warm-up %d failed and %d may have happened",
			w.OK+w.Failed+w.Unknown, w.Failed, w.Unknown))
	}
	return strings.Join(parts, "; ")
}

// Problem is one line on why the benchmark is not as configured; empty if it is.
func (r *Result) Problem() string {
	var parts []string
	if r.Reason != nil {
		parts = append(parts, *r.Reason)
	}
	if r.Failed > 0 {
		most := r.errorsByCount()[0]
		text := fmt.Sprintf("%d of %d requests failed (%d times: %s)", r.Failed, r.Requests, r.Errors[most], most)
		if n := r.Outcomes.Unknown - r.Abandoned; n > 0 {
			text += fmt.Sprintf(", of which %d may have happened", n)
		}
		parts = append(parts, text)
	}
	if r.Abandoned > 0 {
		parts = append(parts, fmt.Sprintf("%d requests were cut off by the end and may have happened", r.Abandoned))
	}
	return strings.ReplaceAll(strings.Join(parts, "; "), "\n", "; ")
}
