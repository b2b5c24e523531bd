package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options describes a run.
type Options struct {
	Total        int // how many records there is room for; the pacer must stop before it
	Clients      int
	Targeter     Targeter
	Pacer        Pacer
	RequireFound bool          // a range whose answer holds no key has failed
	Stall        time.Duration // end the run when no request has succeeded for so long
}

// Run is a load under way. Next and Done are for transports; Progress and Stop may be called at any time.
type Run struct {
	options Options
	epoch   time.Time
	records []Record
	slots   []slot
	tally   tally
	stop    context.CancelFunc
	ended   <-chan struct{}

	next    atomic.Int64 // number of the next request
	done    atomic.Int64
	failed  atomic.Int64
	empty   atomic.Int64
	lastOK  atomic.Int64 // ns since epoch
	stopped atomic.Bool

	reasonOnce sync.Once
	reason     string
}

// slot is what one client keeps between its requests. The padding keeps neighbours, which other cores
// write to, out of its cache lines.
type slot struct {
	request Request
	_       [64]byte
}

// Result is what a run leaves behind.
type Result struct {
	Records []Record
	Took    time.Duration // from the start to the last outcome, or to the early end
	Failed  int
	Empty   int
	Errors  map[string]int
	Reason  string // why it ended early; empty if it did not
	Epoch   time.Time
}

// NewRun prepares a run. The clock starts with Attack.
func NewRun(options Options) *Run {
	return &Run{
		options: options,
		records: make([]Record, options.Total),
		slots:   make([]slot, options.Clients),
	}
}

// Attack runs the load to its end and returns what was measured. When ctx ends it stops early; the
// text of the context's cause is then the reason in the result.
func (r *Run) Attack(ctx context.Context, transport Transport) Result {
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	r.ended = ctx.Done()
	r.epoch = time.Now()
	defer context.AfterFunc(ctx, func() {
		r.setReason(fmt.Sprint(context.Cause(ctx)))
		r.stopped.Store(true)
	})()
	watched := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchStall(over)
	}()
	transport.Drive(ctx, r.options.Clients, r)
	took := r.elapsed()
	close(over)
	<-watched
	if ctx.Err() == nil {
		r.setReason("")
	} else {
		r.setReason(fmt.Sprint(context.Cause(ctx)))
	}
	return Result{
		Records: r.records,
		Took:    took,
		Failed:  int(r.failed.Load()),
		Empty:   int(r.empty.Load()),
		Errors:  r.tally.counts(),
		Reason:  r.reason,
		Epoch:   r.epoch,
	}
}

// Stop ends the run early for the given reason; the first reason counts.
func (r *Run) Stop(reason string) {
	r.setReason(reason)
	r.stopped.Store(true)
	r.stop()
}

// Progress gives the number of requests that have an outcome and how many of them failed.
func (r *Run) Progress() (done, failed int) { return int(r.done.Load()), int(r.failed.Load()) }

// Next gives a client its next request, with the clock of the request started; false when there is no
// more. The request is valid until the client's next call.
func (r *Run) Next(client int) (*Request, bool) {
	if r.stopped.Load() {
		return nil, false
	}
	number := int(r.next.Add(1) - 1)
	elapsed := r.elapsed()
	start, more := r.options.Pacer.Pace(number, elapsed)
	if !more || start > elapsed && !r.wait(start-elapsed) {
		return nil, false
	}
	request := &r.slots[client].request
	request.Number = number
	r.options.Targeter.Target(request)
	request.start = start
	return request, true
}

// wait returns false when the run ends first.
func (r *Run) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ended:
		return false
	}
}

// Done records the outcome of a request. found is the number of keys that a range found.
func (r *Run) Done(request *Request, found int64, err error) {
	end := r.elapsed()
	if err == ErrAbandoned {
		return
	}
	took := max(end-request.start, 1)
	if request.Kind == Range && err == nil && found == 0 {
		r.empty.Add(1)
		if r.options.RequireFound {
			err = ErrNotFound
		}
	}
	if err != nil {
		took = -took
		r.tally.add(err)
		r.failed.Add(1)
	} else {
		r.lastOK.Store(int64(end))
	}
	r.records[request.Number] = Record{Start: request.start, took: took}
	r.done.Add(1)
}

func (r *Run) elapsed() time.Duration { return time.Since(r.epoch) }

func (r *Run) setReason(reason string) { r.reasonOnce.Do(func() { r.reason = reason }) }

// watchStall ends a run that gets no good answer any more: with many requests behind each other's
// deadlines it would go on for hours.
func (r *Run) watchStall(over <-chan struct{}) {
	limit := r.options.Stall
	if limit <= 0 {
		limit = math.MaxInt64
	}
	left := limit
	for {
		timer := time.NewTimer(left)
		select {
		case <-over:
			timer.Stop()
			return
		case <-timer.C:
		}
		if left = limit - (r.elapsed() - time.Duration(r.lastOK.Load())); left <= 0 {
			r.Stop(fmt.Sprintf("no request succeeded for %v", limit))
			return
		}
	}
}

// maxErrors bounds how many different error texts a report holds.
const maxErrors = 20

const otherErrors = "other errors"

// tally counts failures by their text. Only failures take its lock.
type tally struct {
	mu     sync.Mutex
	byText map[string]int
}

func (t *tally) add(err error) {
	text := err.Error()
	if errors.Is(err, ErrNotFound) {
		text = ErrNotFound.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil {
		t.byText = make(map[string]int)
	}
	if _, known := t.byText[text]; !known && len(t.byText) >= maxErrors {
		text = otherErrors
	}
	t.byText[text]++
}

// counts must not be called before the transport has returned.
func (t *tally) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil {
		return map[string]int{}
	}
	return t.byText
}
