package client

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
)

// progress follows the steps of a benchmark.
type progress struct {
	mu     sync.Mutex
	total  int       // requests in all steps; 0: not known
	before [2]int    // done and failed in the steps that are over
	run    *load.Run // the step under way; nil: none
}

// expect tells how many requests all steps will have; 0 if that is not known.
func (p *progress) expect(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
}

// start tells that a step begins, after the end of the one before it.
func (p *progress) start(run *load.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		done, failed := p.run.Progress()
		p.before[0] += done
		p.before[1] += failed
	}
	p.run = run
}

func (p *progress) now() report.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := report.Progress{Done: p.before[0], Total: p.total, Errors: p.before[1]}
	if p.run != nil {
		done, failed := p.run.Progress()
		now.Done += done
		now.Errors += failed
	}
	return now
}

const progressInterval = 100 * time.Millisecond

// showProgress writes a report.Progress line for each interval, and a last one when the returned function is
// called, which waits for it.
func showProgress(p *progress, stderr io.Writer) (stop func()) {
	encoder := json.NewEncoder(stderr)
	show := func() {
		// Nobody may be reading: progress is not worth failing a measurement for.
		_ = encoder.Encode(p.now())
	}
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				show()
				return
			case <-ticker.C:
				show()
			}
		}
	}()
	return func() {
		close(over)
		<-stopped
	}
}
