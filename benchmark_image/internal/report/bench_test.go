package report

import (
	"fmt"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/load"
)

// BenchmarkRecorder is one outcome; BenchmarkReport is everything after the last one.
func BenchmarkRecorder(b *testing.B) {
	for _, open := range []bool{false, true} {
		b.Run(fmt.Sprintf("open=%v", open), func(b *testing.B) {
			r, at := NewRecorder(Plan{Open: open}), time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				at += 20 * time.Microsecond
				r.Add(0, load.NewRecord(at, 0, time.Millisecond+at%time.Millisecond, load.Range, load.OK, load.CodeOK))
			}
		})
	}
}

func BenchmarkReport(b *testing.B) {
	for _, n := range []int{40_000, exactSamples} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r, at := NewRecorder(Plan{Open: true}), time.Duration(0)
				for range n {
					at += 20 * time.Microsecond
					r.Add(0, load.NewRecord(at, 0, time.Millisecond+at*7919%(50*time.Millisecond), load.Range, load.OK, load.CodeOK))
				}
				b.StartTimer()
				New(Setting{Operation: "range", Rate: 50_000, Run: &load.Result{Took: at}, Recorder: r})
			}
		})
	}
}
