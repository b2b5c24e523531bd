package load

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/history"
)

// Options describes a run.
type Options struct {
	Total        int // how many records there is room for; the pacer must stop before it
	Clients      int
	Targeter     Targeter
	Pacer        Pacer
	RequireFound bool          // a range whose answer holds no key has failed
	Stall        time.Duration // end the run when no request has succeeded for this long

	ID       uint64          // the run that values name as their writer's
	Promises *Promises       // what was acknowledged before; nil: nothing
	History  *history.Writer // keeps each operation; nil: nothing does
}

// Run is a load under way. Next, Ask and Done are for transports; Progress and Stop may be called at any time.
type Run struct {
	options Options
	epoch   time.Time
	beganNs int64
	records records
	slots   []slot
	tally   tally
	quit    context.Context // ends with Stop
	stop    context.CancelFunc
	waiting waiting
	clock   func() time.Duration // elapsed and wake as func values, allocated once
	waker   func(client int)
	pause   time.Duration // the longest that beat has noticed

	next    atomic.Int64 // number of the next request of a closed loop
	done    atomic.Int64
	failed  atomic.Int64
	empty   atomic.Int64
	lastOK  atomic.Int64 // ns since epoch
	streaks [Kinds]streak
	stopped atomic.Bool

	reasonOnce sync.Once
	reason     string
}

// slot is the state of one client between its requests. The padding keeps neighbours, which other cores
// write to, out of its cache lines (false sharing).
type slot struct {
	request Request
	claimed bool          // request waits for its intended start
	woken   chan struct{} // of a client that blocks in Next; capacity 1
	_       [64]byte
}

// Result is the result of a run.
type Result struct {
	Records []Record
	Took    time.Duration // from the start to the last outcome, or to the early end
	Failed  int           // requests with another outcome than OK, abandoned ones not counted
	Empty   int
	Due     int           // requests whose intended start was in the run; 0 where starts are not planned
	LastDue time.Duration // intended start of the last of those
	Errors  map[string]int
	Reason  string         // why it ended early; empty if it did not
	Pause   time.Duration  // the longest time in which the process did not run although it had something to do
	CPU     time.Duration  // CPU time of the process from the start to the last outcome
	Delay   *time.Duration // how long its threads were runnable and did not run, all together; nil where the kernel does not say
	Epoch   time.Time
	BeganNs int64 // Epoch on CLOCK_MONOTONIC, which all programs of a machine share
}

// NewRun prepares a run. The clock starts with Attack.
func NewRun(options Options) *Run {
	if options.Promises == nil {
		options.Promises = NewPromises(0)
	}
	r := &Run{
		options: options,
		records: newRecords(options.Total),
		slots:   make([]slot, options.Clients),
		waiting: waiting{arrived: make(chan struct{}, 1)},
	}
	r.quit, r.stop = context.WithCancel(context.Background())
	r.clock, r.waker = r.elapsed, r.wake
	for i := range r.slots {
		r.slots[i].woken = make(chan struct{}, 1)
	}
	return r
}

// Attack runs the load to its end and returns what was measured. When ctx ends it stops early; the
// text of the context's cause is then the reason in the result.
func (r *Run) Attack(ctx context.Context, transport Transport) Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.quit, cancel)()
	r.epoch, r.beganNs = time.Now(), monotonicNs()
	defer context.AfterFunc(ctx, func() {
		r.setReason(fmt.Sprint(context.Cause(ctx)))
		r.stopped.Store(true)
	})()
	before := processorNow()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { r.watchStall(over) })
	watching.Go(func() { r.beat(over) })
	endPace := func() {}
	if r.options.Pacer.Planned() {
		var err error
		if endPace, err = r.pace(ctx); err != nil {
			r.Stop(err.Error())
		}
	}
	transport.Drive(ctx, r.options.Clients, r)
	took := r.elapsed()
	used, delay := processorNow().since(before)
	endPace()
	close(over)
	watching.Wait()
	if ctx.Err() == nil {
		r.setReason("")
	} else {
		r.setReason(fmt.Sprint(context.Cause(ctx)))
	}
	due, lastDue := r.options.Pacer.Due(took), time.Duration(0)
	if due > 0 {
		lastDue, _ = r.options.Pacer.Pace(due-1, 0)
	}
	return Result{
		Records: r.records.all(),
		Took:    took,
		LastDue: lastDue,
		Failed:  int(r.failed.Load()),
		Empty:   int(r.empty.Load()),
		Due:     due,
		Errors:  r.tally.counts(),
		Reason:  r.reason,
		Pause:   r.pause,
		CPU:     used,
		Delay:   delay,
		Epoch:   r.epoch,
		BeganNs: r.beganNs,
	}
}

// pace wakes the clients that wait for their intended starts until end is called or ctx ends.
func (r *Run) pace(ctx context.Context) (end func(), err error) {
	a, err := newAlarm()
	if err != nil {
		return func() {}, err
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.waiting.serve(a, r.clock); err != nil {
			r.Stop(fmt.Sprintf("the clock of the schedule failed: %v", err))
		}
	})
	interrupt := func() {
		left := r.waiting.end()
		// The only error is that the timer is closed already.
		_ = a.interrupt()
		for _, w := range left {
			w.wake(w.client)
		}
	}
	forget := context.AfterFunc(ctx, interrupt)
	return func() {
		if forget() {
			interrupt()
		}
		running.Wait()
		_ = a.close()
	}, nil
}

// beat runs periodically, so that pauses of the process are noticed.
func (r *Run) beat(over <-chan struct{}) {
	interval, planned := closedBeatInterval, r.options.Pacer.Planned()
	if planned {
		interval = beatInterval
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for expected := r.elapsed(); ; {
		ended := false
		select {
		case <-over:
			ended = true
		case <-timer.C:
		}
		now := r.elapsed()
		r.pause = max(r.pause, now-expected)
		if ended {
			return
		}
		expected = now + interval
		if planned {
			r.waiting.beat(now, expected)
		}
		timer.Reset(interval)
	}
}

// Planned tells whether starts are planned: only then does NoteIdle count.
func (r *Run) Planned() bool { return r.options.Pacer.Planned() }

// NoteIdle notes that the transport was idle for the given time until now, because all requests in flight wait for the
// members. A late request is late because of the transport if that was busy for most of the request's lateness. A transport
// that calls this must also do so at its start; one that does not know its idle times never calls it.
func (r *Run) NoteIdle(d time.Duration) {
	now := r.elapsed()
	r.waiting.rest(now-d, now)
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
// more. It blocks until the intended start of the request. The request is valid until the client's next call.
func (r *Run) Next(client int) (*Request, bool) {
	for {
		request, more := r.Ask(client, r.waker)
		if request != nil || !more {
			return request, more
		}
		<-r.slots[client].woken
	}
}

func (r *Run) wake(client int) { r.slots[client].woken <- struct{}{} }

// Ask is Next for a transport that serves many clients with one goroutine: it never blocks. When the intended start
// of the client's next request is yet to come it returns nil and true, and the run calls wake once, from another
// goroutine, when it is time to call Ask again; wake must not block. In a closed loop that does not happen.
func (r *Run) Ask(client int, wake func(client int)) (request *Request, more bool) {
	s := &r.slots[client]
	if r.stopped.Load() {
		return nil, false
	}
	request = &s.request
	request.run, request.client, request.floor = r.options.ID, client, r.options.Promises.seen.Load()
	if s.claimed {
		s.claimed = false
		if request.actual = r.elapsed(); request.actual < request.start {
			return nil, false // woken because the run ends
		}
		return request, true
	}
	if r.options.Pacer.Planned() {
		next, more := r.waiting.claim(r.options.Pacer, client, r.clock, wake)
		if !more {
			return nil, false
		}
		request.Number, request.start, request.waited = next.number, next.start, next.wait
		request.own = next.own
	} else {
		number := int(r.next.Add(1) - 1)
		start, more := r.options.Pacer.Pace(number, r.elapsed())
		if !more {
			return nil, false
		}
		request.Number, request.start, request.actual = number, start, start
	}
	r.options.Targeter.Target(request)
	if request.waited {
		s.claimed = true
		return nil, true
	}
	if r.options.Pacer.Planned() {
		request.actual = r.elapsed()
	}
	return request, true
}

// Done records the outcome of a request. found is the number of keys that a range found.
func (r *Run) Done(request *Request, found int64, err error) {
	if err == ErrNotSent {
		return // the record is empty, which means the same
	}
	end := r.elapsed()
	if err == ErrAbandoned {
		*r.records.at(request.Number) = newRecord(request, end, Abandoned, CodeUnknown)
		r.remember(request, end, err)
		return
	}
	if request.Kind == Range && err == nil && found == 0 {
		r.empty.Add(1)
		if r.options.RequireFound {
			err = ErrNotFound
		}
	}
	outcome, code := classify(err)
	if err != nil {
		r.tally.add(err)
		r.failed.Add(1)
		r.streaks[request.Kind].fail(request.actual)
	} else {
		r.lastOK.Store(int64(end))
		r.streaks[request.Kind].end()
	}
	*r.records.at(request.Number) = newRecord(request, end, outcome, code)
	r.remember(request, end, err)
	r.done.Add(1)
}

func (r *Run) elapsed() time.Duration { return time.Since(r.epoch) }

func (r *Run) setReason(reason string) { r.reasonOnce.Do(func() { r.reason = reason }) }

// watchStall ends a run without successes: where each request waits for its deadline, it would go on
// for hours. Each kind of request is watched by itself: without a quorum, serializable reads are still answered, and no
// put is.
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
		now := r.elapsed()
		if left = limit - (now - time.Duration(r.lastOK.Load())); left <= 0 {
			r.Stop(fmt.Sprintf("no request succeeded for %v", limit))
			return
		}
		for kind := range r.streaks {
			since, long := r.streaks[kind].since()
			if !long {
				continue
			}
			rest := limit - (now - since)
			if rest <= 0 {
				r.Stop(fmt.Sprintf("no %v succeeded for %v", Kind(kind), limit))
				return
			}
			left = min(left, rest)
		}
		// A streak may begin at any time.
		left = min(left, max(limit/stallLooks, time.Millisecond))
	}
}

// stallLooks is how often within the limit a run checks for streaks.
const stallLooks = 20
