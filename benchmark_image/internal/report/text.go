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
	var b strings.Builder
	r.Figures.text(&b, options)
	if w := r.Warmup; w != nil && w.Failed+w.Unknown > 0 {
		fmt.Fprintf(&b, "\nWarm-up: %d ok, %d failed, %d unknown (%d of these cut off by the end)\n", w.OK, w.Failed,
			w.Unknown, w.Abandoned)
	}
	if r.Operation == "put" {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Figures) text(b *strings.Builder, options TextOptions) {
	number := "%4.4f"
	if options.Precise {
		number = "%g"
	}
	if r.OK > 0 {
		r.writeSummary(b, number)
		r.writeHistogram(b, number)
		r.writePercentiles(b, number)
		if options.Sample {
			r.writeSeries(b)
		}
	}
	r.writeLeftOut(b)
	if r.SecondTries > 0 {
		fmt.Fprintf(b, "\nSecond tries: %d writes took two round trips, because of whether their key existed\n",
			r.SecondTries)
	}
	if len(r.Errors) > 0 {
		r.writeErrors(b)
	}
	if r.Schedule != nil {
		r.writeSchedule(b, number)
	} else {
		writeDistribution(b, "Response time", r.ResponseTime, number)
	}
	if r.TotalS > 0 {
		r.writeGenerator(b, number)
	}
	for _, name := range slices.Sorted(maps.Keys(r.ByOperation)) {
		kind := r.ByOperation[name]
		fmt.Fprintf(b, "\nOf these, %s: %d ok, %d failed, %d unknown, %d never sent\n", name, kind.OK, kind.Failed,
			kind.Unknown, kind.Unsent)
		writeDistribution(b, "Response time", kind.ResponseTime, number)
	}
}

// writeGenerator prints what the generator itself had to do, and what kept it from that.
func (r *Figures) writeGenerator(b *strings.Builder, number string) {
	b.WriteString("\nGenerator:\n")
	if r.DrainS != nil {
		fmt.Fprintf(b, "  Drain:\t"+number+" secs. after the end of the duration\n", *r.DrainS)
	}
	if r.BusyRatio != nil {
		fmt.Fprintf(b, "  Busy:\t%.1f%% of the time\n", *r.BusyRatio*100)
	}
	fmt.Fprintf(b, "  Paused:\t%d times, "+number+" secs. in all, "+number+" secs. at the longest\n", r.Pauses,
		r.PausedS, r.PauseS)
	if r.RunDelayS != nil {
		fmt.Fprintf(b, "  Waited:\t"+number+" secs. for a core, all threads together\n", *r.RunDelayS)
	}
}

// writeLeftOut prints how many requests the latencies above leave out; nothing if every request was answered well.
func (r *Figures) writeLeftOut(b *strings.Builder) {
	o := r.Outcomes
	if o.Failed+o.Unknown+o.Unsent == 0 {
		return
	}
	fmt.Fprintf(b, "\nLeft out: %d failed, %d unknown (%d of these cut off by the end), %d never sent; %d are ok\n",
		o.Failed, o.Unknown, r.Abandoned, o.Unsent, o.OK)
}

// writeSchedule prints how an open loop kept its schedule.
func (r *Figures) writeSchedule(b *strings.Builder, number string) {
	b.WriteString("\nSchedule:\n")
	fmt.Fprintf(b, "  Offered:\t"+number+" requests/sec\n", *r.RateOffered)
	fmt.Fprintf(b, "  Achieved:\t"+number+" requests/sec\n", *r.RateAchieved)
	fmt.Fprintf(b, "  Worst lag:\t"+number+" secs.\n", r.Schedule.WorstLagS)
	fmt.Fprintf(b, "  Late:\t%d, of these by the generator itself: %d\n", r.Schedule.Late, r.Schedule.GeneratorLate)
	fmt.Fprintf(b, "  Never sent:\t%d\n", r.Schedule.Unsent)
	writeDistribution(b, "Response time, from the intended start", r.ResponseTime, number)
	writeDistribution(b, "Service time, from the actual start", r.ServiceTime, number)
}

// writeDistribution prints '-' for percentiles for which there are too few requests.
func writeDistribution(b *strings.Builder, title string, d *Distribution, number string) {
	if d == nil {
		return
	}
	fmt.Fprintf(b, "\n%s (%d requests, %d left out):\n", title, d.Count, d.LeftOut)
	for _, p := range Percentiles {
		name := percentileName(p)
		if value := d.PercentilesS[name]; value != nil {
			fmt.Fprintf(b, "  %s%% in "+number+" secs.\n", name, *value)
		} else {
			fmt.Fprintf(b, "  %s%% in -\n", name)
		}
	}
}

func (r *Figures) writeSummary(b *strings.Builder, number string) {
	b.WriteString("\nSummary:\n")
	for _, line := range []struct {
		name    string
		seconds float64
	}{
		{"Total", r.TotalS},
		{"Slowest", *r.SlowestS},
		{"Fastest", *r.FastestS},
		{"Average", *r.AverageS},
		{"Stddev", *r.StddevS},
	} {
		fmt.Fprintf(b, "  %s:\t"+number+" secs.\n", line.name, line.seconds)
	}
	fmt.Fprintf(b, "  Requests/sec:\t"+number+"\n", r.RequestsPerS)
}

// writeHistogram draws how many latencies lie between one edge and the next; the first edge is the
// fastest, the last the slowest, and the distance between neighbours is the same.
func (r *Figures) writeHistogram(b *strings.Builder, number string) {
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
	b.WriteString("\nResponse time histogram:\n")
	for i, edge := range edges {
		bar := strings.Repeat(barChar, counts[i]*barWidth/most)
		fmt.Fprintf(b, "  "+number+" [%d]\t|%s\n", edge, counts[i], bar)
	}
}

func (r *Figures) writePercentiles(b *strings.Builder, number string) {
	b.WriteString("\nLatency distribution:\n")
	for _, p := range TextPercentiles {
		name := percentileName(p)
		fmt.Fprintf(b, "  %s%% in "+number+" secs.\n", name, r.PercentilesS[name])
	}
}

func (r *Figures) writeSeries(b *strings.Builder) {
	b.WriteString("\nSample in one second (unix latency throughput):\n")
	b.WriteString("UNIX-SECOND,MIN-LATENCY-MS,AVG-LATENCY-MS,MAX-LATENCY-MS,AVG-THROUGHPUT\n")
	for _, s := range r.series {
		average := s.sum
		if s.count > 0 {
			average /= time.Duration(s.count)
		}
		fmt.Fprintf(b, "%d,%s,%s,%s,%d\n", s.unix, s.min, average, s.max, s.count)
	}
	b.WriteString("\n")
}

// writeErrors lists the most frequent error first.
func (r *Figures) writeErrors(b *strings.Builder) {
	b.WriteString("\nError distribution:\n")
	for _, text := range r.errorsByCount() {
		fmt.Fprintf(b, "  [%d]\t%s\n", r.Errors[text], text)
	}
}

func (r *Figures) errorsByCount() []string {
	return slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Errors[b], r.Errors[a]), cmp.Compare(a, b))
	})
}

const (
	// toldPause is how long a pause is that says something about the figures by itself.
	toldPause = 100 * time.Millisecond
	// toldShare is the share of the time in which the generator stood still, or waited for a core, from which on that
	// does.
	toldShare = 0.05
	// toldBusy is the share of the time from which on the loop could hardly have done more.
	toldBusy = 0.9
	// toldTime is how long a run is of which these shares say something.
	toldTime = time.Second
)

// generatorNotes tell what kept the generator itself from being in time.
func (r *Figures) generatorNotes() (parts []string) {
	long := r.TotalS >= toldTime.Seconds()
	if r.PauseS > toldPause.Seconds() || long && r.PausedS > toldShare*r.TotalS {
		parts = append(parts,
			fmt.Sprintf("the generator itself stood still %d times, for %.3f s in all and at worst for %.3f s", r.Pauses,
				r.PausedS, r.PauseS))
	}
	if long && r.RunDelayS != nil && *r.RunDelayS > toldShare*r.TotalS {
		parts = append(parts, fmt.Sprintf("the generator waited for a core for %.3f of %.3f s", *r.RunDelayS, r.TotalS))
	}
	if long && r.BusyRatio != nil && *r.BusyRatio > toldBusy {
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
