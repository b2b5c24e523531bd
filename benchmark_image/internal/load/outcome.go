package load

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

// Outcome is how a request ended.
type Outcome uint8

// The outcomes of requests.
const (
	NotSent   Outcome = iota // the run ended before it was sent
	OK                       // answered well
	Failed                   // it did not happen, or its answer does not hold what it must
	Unknown                  // no good answer came; it may have happened
	Abandoned                // the run ended while it was in flight; it may have happened
)

// ErrAbandoned is the outcome of a request that was in flight when the run was ended early.
var ErrAbandoned = errors.New("abandoned at the end of the run")

// ErrNotSent is the outcome of a request that no member can have received completely when the run was ended early: it
// counts as never started.
var ErrNotSent = errors.New("not sent before the end of the run")

// ErrNotFound is the outcome of a read that found no key although one was required.
var ErrNotFound = wrong("no key found")

// ErrCompareFailed is the outcome of a transaction that changed nothing, because the key did not exist.
var ErrCompareFailed = wrong("a transaction did not find the key that was written, and changed nothing")

// classify gives the outcome and the code of a request that ended with err. With an error of an unknown type
// the outcome is unknown.
func classify(err error) (Outcome, store.Code) {
	if err == nil {
		return OK, store.OK
	}
	failure, known := errors.AsType[*store.Failure](err)
	switch {
	case !known:
		return Unknown, store.Unknown
	case failure.Unknown:
		return Unknown, failure.Code
	}
	return Failed, failure.Code
}

// LateAfter is how late a request may start before it counts as late.
const LateAfter = 10 * time.Millisecond

// Record is the outcome of one request with its times.
type Record struct {
	Start   time.Duration // intended, since the start of the measurement
	Lag     time.Duration // from the intended to the actual start
	Service time.Duration // from the actual start to the outcome, at least 1 ns for a request that was sent
	Kind    Kind
	Outcome Outcome
	Code    store.Code
	Waited  bool // a client was free before the intended start
	// The generator itself made a late request late: a client was free, or the process did not run at the intended start,
	// or it was busy itself for most of the time since. Otherwise all clients waited for members.
	Own bool
}

// Done tells whether the request has an outcome of its own: it was sent, and not cut off by the end of the run.
func (r Record) Done() bool { return r.Outcome != NotSent && r.Outcome != Abandoned }

// Latency is the response time: from the intended start to the outcome.
func (r Record) Latency() time.Duration { return r.Lag + r.Service }

// Late tells whether the request started later than LateAfter after its intended start.
func (r Record) Late() bool { return r.Lag > LateAfter }

// End is the time of the outcome, since the start of the measurement.
func (r Record) End() time.Duration { return r.Start + r.Latency() }

// Sink takes the outcomes of a measurement while it goes on. Those of a warm-up are not among them.
type Sink interface {
	// Begin tells when the measurement began, before its first outcome; where there is none, it is not called.
	Begin(epoch time.Time)
	// Add takes the outcome of one request, whose number counts from the measurement's first one. Calls never overlap,
	// and outcomes come in the order in which they happened.
	Add(number int, outcome Record)
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

// streak counts the failures of one kind of requests since its last success. Only failures, and the success that ends
// them, take its lock.
type streak struct {
	begun    atomic.Bool
	mu       sync.Mutex
	failures int
	first    time.Duration // start of the first one
}

func (s *streak) fail(start time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures++; s.failures == 1 {
		s.first = start
		s.begun.Store(true)
	}
}

func (s *streak) end() {
	if !s.begun.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
	s.begun.Store(false)
}

// since is the start of the first request of a streak. A single failure is no streak: where requests of a kind are
// rare, the next one comes much later.
func (s *streak) since() (start time.Duration, long bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.failures > 1
}
