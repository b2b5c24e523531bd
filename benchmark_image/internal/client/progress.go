package client

import (
	"encoding/json"
	"io"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/world"
)

// progress is that of the measurement.
type progress struct {
	total atomic.Int64             // requests; 0: not known
	run   atomic.Pointer[load.Run] // nil: it has not started
}

func (p *progress) now() report.Progress {
	now := report.Progress{Total: int(p.total.Load())}
	if run := p.run.Load(); run != nil {
		now.Done, now.Errors = run.Progress()
		now.Warmup = run.WarmedUp()
		if began := run.BeganNs(); began > 0 {
			now.BeganNs = &began
		}
	}
	return now
}

const progressInterval = 100 * time.Millisecond

// showProgress writes a report.Progress line for each interval, and a last one when the returned function is
// called, which waits for it.
func showProgress(w world.World, p *progress, stderr io.Writer) (stop func()) {
	encoder := json.NewEncoder(stderr)
	show := func() {
		// There may be no reader: a measurement must not fail for its progress.
		_ = encoder.Encode(p.now())
	}
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		timer := w.NewTimer(progressInterval)
		defer timer.Stop()
		for {
			select {
			case <-over:
				show()
				return
			case <-timer.C():
				timer.Reset(progressInterval)
				show()
			}
		}
	}()
	return func() {
		close(over)
		<-stopped
	}
}
