package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
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

// Text writes the report in the form of etcd's benchmark tool. There, percentiles that a small number of
// requests cannot tell apart are left out; here all are given.
func (r *Result) Text(w io.Writer, options TextOptions) error {
	number := "%4.4f"
	if options.Precise {
		number = "%g"
	}
	var b strings.Builder
	if r.OK > 0 {
		r.writeSummary(&b, number)
		r.writeHistogram(&b, number)
		r.writePercentiles(&b, number)
		if options.Sample {
			r.writeSeries(&b)
		}
	}
	if len(r.Errors) > 0 {
		r.writeErrors(&b)
	}
	if r.Operation == "put" {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) writeSummary(b *strings.Builder, number string) {
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
func (r *Result) writeHistogram(b *strings.Builder, number string) {
	fastest, slowest := *r.FastestS, *r.SlowestS
	var edges [buckets + 1]float64
	for i := range edges {
		edges[i] = fastest + float64(i)*((slowest-fastest)/buckets)
	}
	edges[buckets] = slowest
	var counts [buckets + 1]int
	row := 0
	for _, latency := range r.sorted {
		for row < buckets && latency.Seconds() > edges[row] {
			row++
		}
		counts[row]++
	}
	most := slices.Max(counts[:])
	b.WriteString("\nResponse time histogram:\n")
	for i, edge := range edges {
		bar := strings.Repeat(barChar, counts[i]*barWidth/most)
		fmt.Fprintf(b, "  "+number+" [%d]\t|%s\n", edge, counts[i], bar)
	}
}

func (r *Result) writePercentiles(b *strings.Builder, number string) {
	b.WriteString("\nLatency distribution:\n")
	for _, p := range Percentiles {
		name := percentileName(p)
		fmt.Fprintf(b, "  %s%% in "+number+" secs.\n", name, r.PercentilesS[name])
	}
}

func (r *Result) writeSeries(b *strings.Builder) {
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
func (r *Result) writeErrors(b *strings.Builder) {
	b.WriteString("\nError distribution:\n")
	for _, text := range r.errorsByCount() {
		fmt.Fprintf(b, "  [%d]\t%s\n", r.Errors[text], text)
	}
}

func (r *Result) errorsByCount() []string {
	return slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Errors[b], r.Errors[a]), cmp.Compare(a, b))
	})
}

// Problem says in one line why the benchmark is not what was asked for; empty if it is.
func (r *Result) Problem() string {
	var parts []string
	if r.Reason != nil {
		parts = append(parts, *r.Reason)
	}
	if r.Failed > 0 {
		most := r.errorsByCount()[0]
		parts = append(parts, fmt.Sprintf("%d of %d requests failed (%d times: %s)", r.Failed, r.Requests, r.Errors[most], most))
	}
	return strings.ReplaceAll(strings.Join(parts, "; "), "\n", "; ")
}
