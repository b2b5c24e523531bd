package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

type Options struct {
	*spec.Spec
	Targeter Targeter
	// Warmup is the load ahead of the measurement, nil: there is none. It passes into that without a gap: requests are
	// numbered on, and no client waits for the answers to the last ones. They are in no figure but the throughput within a
	// duration. Where starts are planned, Pacer has the rest of its schedule.
	Warmup *Pacer
	Pacer  Pacer
	Sink   Sink // gets every outcome

	ID       uint64          // the run that values name as their writer's
	Promises *Promises       // what was acknowledged before; nil: nothing
	History  *history.Writer // keeps each operation, those of the warm-up too; nil: nothing does
	World    world.World
}

// Run is a load under way. Ask and Done are for transports; Progress and Stop may be called at any time.
type Run struct {
	options Options
	world   world.World
	epoch   time.Time
	began   atomic.Int64 // ns on the world's clock; 0: not yet
	adding  sync.Mutex
	lastEnd time.Duration // when the last outcome of the measurement came, since epoch; 0: none has come
	slots   []slot
	tally   tally
	quit    context.Context // ends when the run is to end early; its cause is why
	stop    context.CancelCauseFunc
	plan    plan
	lanes   lanes
	clock   func() time.Duration // elapsed as a func value, allocated once
	paused  Pauses
	before  account      // of the measurement
	idle    atomic.Int64 // ns in which the transport was, since the start; only where it tells
	tells   atomic.Bool

	done    atomic.Int64
	failed  atomic.Int64
	empty   atomic.Int64
	second  atomic.Int64                // second tries
	warm    [Abandoned + 1]atomic.Int64 // requests of the warm-up, by outcome
	inTime  atomic.Int64                // of these, successes within the measurement's duration
	lastOK  atomic.Int64                // ns since epoch
	streaks [Kinds]streak
	stopped atomic.Bool
}

// slot is the state of one client between its requests. The padding keeps neighbours, which other cores
// write to, out of its cache lines (false sharing).
type slot struct {
	request Request
	claimed bool // request waits for its intended start
	_       [64]byte
}

// Result is the result of a run. All times but the warm-up's are since the start of the measurement.
type Result struct {
	Warmup   *WarmupResult // nil: there was none
	Measured bool          // the measurement began; nothing of what follows is valid otherwise, but for Reason

	First  int           // the number of its first request
	Took   time.Duration // from the start to the last outcome, or to the early end
	Failed int           // requests with another outcome than OK, abandoned ones not counted
	Empty  int
	Second int // writes that took a second round trip, because of whether their key existed
	Due    int // requests whose intended start was in the run; 0 where starts are not planned
	Errors map[string]int
	Reason string // why it ended early; empty if it did not
	Pauses Pauses
	CPU    time.Duration   // CPU time of the process from the start to the last outcome
	Delay  *world.RunDelay // nil where the kernel does not say
	// how long the transport had nothing to do but to wait for the members; nil where it does not say
	Idle    *time.Duration
	Epoch   time.Time
	BeganNs int64 // Epoch on CLOCK_MONOTONIC, which all programs of a machine share
}

// NewRun prepares a run. The clock starts with Attack.
func NewRun(options Options) *Run {
	if options.Promises == nil {
		options.Promises = NewPromises(0)
	}
	members := 1 // the transport sends request k to member k mod so many
	if !options.TargetLeader {
		members = max(len(options.Members()), 1)
	}
	r := &Run{
		options: options,
		world:   options.World,
		slots:   make([]slot, options.Clients),
	}
	// Each member has clients of its own, so that one that stalls keeps no client from the others, unless there are fewer
	// clients than members.
	if r.lanes.init(members); options.Clients < members {
		r.lanes.init(1)
	}
	r.plan.init(options.Warmup, options.Pacer, members, options.Clients)
	r.quit, r.stop = context.WithCancelCause(context.Background())
	r.clock = r.elapsed
	return r
}

// Attack runs the load to its end and returns what was measured. When ctx ends it stops early; the
// text of the context's cause is then the reason in the result.
func (r *Run) Attack(ctx context.Context, transport Transport) Result {
	defer context.AfterFunc(ctx, func() { r.end(context.Cause(ctx)) })()
	began, reason := r.await()
	if reason != "" {
		return Result{Reason: reason}
	}
	r.began.Store(int64(began))
	r.epoch = r.world.Wall().Add(-r.elapsed())
	r.before = r.account()
	if r.options.Pacer.Planned() {
		r.lanes.beat(0, beatInterval) // the process may be stopped before beat runs
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { r.watchStall(over) })
	watching.Go(func() { r.beat(over) })
	if r.options.Pacer.Planned() && r.options.Warmup != nil {
		defer r.world.AfterFunc(r.plan.begin, func() { close(r.plan.begun) })()
	}
	transport.Drive(r.quit, r.options.Clients, r)
	ended, after := r.elapsed(), r.account()
	close(over)
	watching.Wait()
	if why := context.Cause(r.quit); why != nil {
		reason = why.Error()
	}
	return r.result(ended, after, reason)
}

// await waits for the configured start and returns it, without one the present time, or why the load does not begin. A
// load that is ready only after its start does not: its figures would be of another time than those of the others.
func (r *Run) await() (began time.Duration, reason string) {
	now, start := r.world.Now(), time.Duration(r.options.StartNs)
	if start == 0 {
		return now, ""
	}
	if start < now {
		return 0, fmt.Sprintf("it was ready %v after its configured start", (now - start).Round(time.Microsecond))
	}
	timer := r.world.NewTimer(start - now)
	defer timer.Stop()
	select {
	case <-timer.C:
		return start, ""
	case <-r.quit.Done():
		return 0, context.Cause(r.quit).Error()
	}
}

func (r *Run) result(ended time.Duration, after account, reason string) Result {
	begin, measured := r.plan.measuring(ended)
	result := Result{Measured: measured, Reason: reason}
	if r.options.Warmup != nil {
		count := func(outcome Outcome) int { return int(r.warm[outcome].Load()) }
		result.Warmup = &WarmupResult{OK: count(OK), Failed: count(Failed), Unknown: count(Unknown),
			Abandoned: count(Abandoned), InDuration: int(r.inTime.Load()), Took: ended}
		if measured {
			result.Warmup.Took = begin
		}
	}
	if !measured {
		return result
	}
	// Until now, and not only until the last outcome: clients may have paused from then on.
	result.Due = r.options.Pacer.Due(ended - begin)
	if reason == "" && r.lastEnd > 0 {
		ended = r.lastEnd // what is left of the warm-up may take longer
	}
	result.First, result.Took = r.plan.first, ended-begin
	result.Failed, result.Empty, result.Errors = int(r.failed.Load()), int(r.empty.Load()), r.tally.byText
	result.Second = int(r.second.Load())
	result.Pauses = r.paused
	result.CPU, result.Delay = after.Since(r.before.Processor)
	if r.tells.Load() {
		result.Idle = new(after.idle - r.before.idle)
	}
	result.Epoch, result.BeganNs = r.epoch.Add(begin), r.began.Load()+int64(begin)
	return result
}

// account is what the generator has used so far.
type account struct {
	world.Processor
	idle time.Duration
}

func (r *Run) account() account { return account{r.world.Processor(), time.Duration(r.idle.Load())} }

// BeganNs is when the measurement began, on CLOCK_MONOTONIC; 0 before. It may be called at any time.
func (r *Run) BeganNs() int64 {
	started := r.began.Load()
	if started == 0 {
		return 0
	}
	begin, begun := r.plan.measuring(r.elapsed())
	if !begun {
		return 0
	}
	return started + int64(begin)
}

// beat runs periodically, so that pauses of the process are noticed, and reads the accounts when the measurement
// begins.
func (r *Run) beat(over <-chan struct{}) {
	begun := r.plan.begun
	if r.options.Warmup == nil {
		begun = nil // they have been read
	}
	timer := r.world.NewTimer(0)
	defer timer.Stop()
	for expected := time.Duration(0); ; {
		ended := false
		select {
		case <-over:
			ended = true
		case <-begun:
			begun, r.before = nil, r.account()
			continue
		case <-timer.C:
		}
		now := r.elapsed()
		if begin, measuring := r.plan.measuring(now); measuring {
			r.paused.add(now - max(expected, begin))
		}
		if ended {
			return
		}
		expected = now + beatInterval
		if r.options.Pacer.Planned() {
			r.lanes.beat(now, expected)
		}
		timer.Reset(beatInterval)
	}
}

// NoteIdle notes that the transport was idle for the given time until now, because all requests in flight wait for the
// members. A late request is late because of the transport if that was busy for most of the request's lateness. A
// transport that calls this must also do so at its start; one that does not know its idle times never calls it.
func (r *Run) NoteIdle(d time.Duration) {
	r.idle.Add(int64(d))
	r.tells.Store(true)
	if r.options.Pacer.Planned() {
		now := r.elapsed()
		r.lanes.rest(now-d, now)
	}
}

// Stop ends the run early for the given reason; the first reason counts.
func (r *Run) Stop(reason string) { r.end(errors.New(reason)) }

func (r *Run) end(why error) {
	r.stopped.Store(true)
	r.stop(why)
}

// Progress gives the number of requests of the measurement that have an outcome and how many of them failed.
func (r *Run) Progress() (done, failed int) { return int(r.done.Load()), int(r.failed.Load()) }

// WarmedUp is the number of requests of the warm-up that have an outcome.
func (r *Run) WarmedUp() int {
	return int(r.warm[OK].Load() + r.warm[Failed].Load() + r.warm[Unknown].Load())
}

// Ask gives a client its next request, with the clock of the request started; false when there is no more. The request
// is valid until the client's next call. When its intended start is yet to come, there is none and true, and Wake has
// the client when it is time to call Ask again. In a closed loop that does not happen.
func (r *Run) Ask(client int) (request *Request, more bool) {
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
		if request.actual-request.start <= LateAfter || r.plan.open(request.Number, request.actual) {
			return request, true
		}
		// It is not sent any more, and there is no more of its phase.
	}
	if r.options.Pacer.Planned() {
		if !r.lanes.claim(&r.plan, client, request, r.clock) {
			return nil, false
		}
	} else {
		number, start, more := r.plan.claim(client, r.clock)
		if !more {
			return nil, false
		}
		request.Number, request.start, request.actual = number, start, start
	}
	request.warmup = r.plan.warming.Load() || request.Number < r.plan.first
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

// NextStart is when the first client that waits is to be woken, on the world's clock; 0: none waits.
func (r *Run) NextStart() time.Duration {
	r.lanes.mu.Lock()
	defer r.lanes.mu.Unlock()
	if head, of := r.lanes.head(); of != nil {
		return time.Duration(r.began.Load()) + head.start
	}
	return 0
}

// Wake gives the client for which NextStart has the time, at that time: Ask has its request.
func (r *Run) Wake() (client int) {
	r.lanes.mu.Lock()
	defer r.lanes.mu.Unlock()
	head, of := r.lanes.head()
	of.take()
	return head.client
}

// NoteSecondTry notes that a write that has succeeded took a second round trip, because of whether its key existed.
func (r *Run) NoteSecondTry(request *Request) {
	if !request.warmup {
		r.second.Add(1)
	}
}

// Done records the outcome of a request. found is the number of keys that a range found.
func (r *Run) Done(request *Request, found int64, err error) {
	if err == ErrNotSent {
		return // without a record, which means the same
	}
	empty := request.Kind == Range && err == nil && found == 0
	if empty && r.options.KeysRequired() {
		err = ErrNotFound
	}
	outcome, code := Abandoned, store.Unknown
	if err != ErrAbandoned {
		outcome, code = classify(err)
	}
	end := r.add(request, outcome, code)
	r.remember(request, end, err)
	if outcome == Abandoned {
		return
	}
	if err != nil {
		r.streaks[request.Kind].fail(request.actual)
	} else {
		r.lastOK.Store(int64(end))
		r.streaks[request.Kind].end()
	}
	if request.warmup {
		return
	}
	if empty {
		r.empty.Add(1)
	}
	if err != nil {
		r.tally.add(err)
		r.failed.Add(1)
	}
	r.done.Add(1)
}

// add passes an outcome of the measurement on, and counts one of the warm-up. It gives its time.
func (r *Run) add(request *Request, outcome Outcome, code store.Code) (end time.Duration) {
	if request.warmup {
		r.warm[outcome].Add(1)
		if end = r.elapsed(); outcome == OK && r.plan.inDuration(end) {
			r.inTime.Add(1)
		}
		return end
	}
	r.adding.Lock()
	defer r.adding.Unlock()
	if r.lastEnd == 0 {
		r.options.Sink.Begin(r.epoch.Add(r.plan.begin))
	}
	// Within the lock, so that outcomes are in order; 0 would say that none has come.
	end = max(r.elapsed(), 1)
	r.lastEnd = end
	r.options.Sink.Add(request.Number-r.plan.first, Record{
		Start: request.start - r.plan.begin, Lag: request.actual - request.start, Service: max(end-request.actual, 1),
		Kind: request.Kind, Outcome: outcome, Code: code, Waited: request.waited, Own: request.own,
	})
	return end
}

func (r *Run) elapsed() time.Duration { return r.world.Now() - time.Duration(r.began.Load()) }

// watchStall ends a run without successes: where each request waits for its deadline, it would go on
// for hours. Each kind of request is watched by itself: without a quorum, serializable reads are still answered, and no
// put is.
func (r *Run) watchStall(over <-chan struct{}) {
	limit := r.options.StallTimeout
	if limit <= 0 {
		limit = math.MaxInt64
	}
	look := max(limit/stallLooks, time.Millisecond)
	var all quiet
	var kinds [Kinds]quiet
	for left := look; ; {
		expected := r.elapsed() + left
		timer := r.world.NewTimer(left)
		select {
		case <-over:
			timer.Stop()
			return
		case <-timer.C:
		}
		now := r.elapsed()
		late := now - expected
		if left = limit - all.length(time.Duration(r.lastOK.Load()), now, late); left <= 0 {
			r.Stop(fmt.Sprintf("no request succeeded for %v", limit))
			return
		}
		for kind := range r.streaks {
			since, long := r.streaks[kind].since()
			if !long {
				continue
			}
			rest := limit - kinds[kind].length(since, now, late)
			if rest <= 0 {
				r.Stop(fmt.Sprintf("no %v succeeded for %v", Kind(kind), limit))
				return
			}
			left = min(left, rest)
		}
		left = min(left, look) // a streak may begin at any time, and the process may be stopped
	}
}

// quiet is a time without a success. While the process did not run, it could not take any: that does not count.
type quiet struct{ since, missed time.Duration }

// length is how long it has lasted, of which the process did not run at the end for late.
func (q *quiet) length(since, now, late time.Duration) time.Duration {
	if since != q.since {
		*q = quiet{since: since}
	}
	if late > LateAfter {
		q.missed += min(late, now-since)
	}
	return now - since - q.missed
}

// stallLooks is how often within the limit a run looks for its successes.
const stallLooks = 20

// remember adds a request that has ended with err to the history.
func (r *Run) remember(request *Request, end time.Duration, err error) {
	to := r.options.History
	if to == nil {
		return
	}
	e, began := history.Entry{KeyNumber: request.keyNumber}, r.began.Load()
	o := &e.Operation
	o.Client, o.Invoked, o.Completed = request.client, began+int64(request.actual), began+int64(end)
	o.Revision, o.Member = request.revision, request.member
	switch {
	case request.Kind != Range:
		o.Op, o.Value = history.Put, keys.ID{Run: request.run, Client: request.client, Number: request.Number}
		if request.Kind == Txn {
			o.Op = history.Txn
		}
	case request.Serializable:
		o.Op = history.SerializableGet
	default:
		o.Op = history.Get
	}
	if request.Kind == Range {
		o.Content, o.Value, o.ModRevision = request.found.content, request.found.writer, request.found.revision
	}
	switch outcome, code := classify(err); {
	case err == nil:
		o.Outcome = history.OK
	case code == store.Check && err != ErrCompareFailed:
		o.Outcome = history.Wrong
	case outcome == Failed:
		o.Outcome = history.Failed
	default:
		o.Outcome = history.Unknown
	}
	to.Add(e)
}
