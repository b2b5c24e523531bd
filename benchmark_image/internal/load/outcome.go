package load

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

// Code is the reason for which a request failed.
type Code = store.Code

// The codes that are named in this package.
const (
	CodeOK      = store.OK
	CodeUnknown = store.Unknown
	CodeCheck   = store.Check
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
func classify(err error) (Outcome, Code) {
	if err == nil {
		return OK, CodeOK
	}
	var failure *store.Failure
	switch {
	case !errors.As(err, &failure):
		return Unknown, CodeUnknown
	case failure.Unknown:
		return Unknown, failure.Code
	}
	return Failed, failure.Code
}

// Record is the outcome of one request with its times, which are packed so that a record takes 24 bytes.
type Record struct {
	Start time.Duration // intended, since the start of the measurement
	lag   time.Duration // from the intended to the actual start
	bits  uint64
}

// The fields of Record.bits: the time from the actual start to the outcome, of which 52 bits hold 52 days,
// and above it the kind of outcome.
const (
	serviceBits  = 52
	codeShift    = serviceBits
	outcomeShift = codeShift + 5
	kindShift    = outcomeShift + 3
	waitedShift  = kindShift + 2
	ownShift     = waitedShift + 1
)

// LateAfter is how late a request may start before it counts as late.
const LateAfter = 10 * time.Millisecond

// NewRecord makes the record of a request that was to start at one time, started so much later, and then took so long,
// at least 1 ns.
func NewRecord(start, lag, service time.Duration, kind Kind, outcome Outcome, code Code) Record {
	bits := uint64(max(service, 1)) | uint64(code)<<codeShift | uint64(outcome)<<outcomeShift | uint64(kind)<<kindShift
	return Record{Start: start, lag: lag, bits: bits}
}

// newRecord makes the record of a request of the measurement that began at begin; both it and end are since the start
// of the run.
func newRecord(r *Request, begin, end time.Duration, outcome Outcome, code Code) Record {
	record := NewRecord(r.start-begin, r.actual-r.start, end-r.actual, r.Kind, outcome, code)
	if r.waited {
		record.bits |= 1 << waitedShift
	}
	if r.own {
		record.bits |= 1 << ownShift
	}
	return record
}

// Outcome tells how the request ended.
func (r Record) Outcome() Outcome { return Outcome(r.bits >> outcomeShift & 7) }

// Code is the code of the outcome.
func (r Record) Code() Code { return Code(r.bits >> codeShift & 31) }

// Kind tells which call the request made.
func (r Record) Kind() Kind { return Kind(r.bits >> kindShift & 3) }

// Done tells whether the request has an outcome of its own: it was sent, and not cut off by the end of the run.
func (r Record) Done() bool { o := r.Outcome(); return o == OK || o == Failed || o == Unknown }

// OK tells whether the request succeeded.
func (r Record) OK() bool { return r.Outcome() == OK }

// Service is the time from the actual start to the outcome, at least 1 ns for a request that was sent.
func (r Record) Service() time.Duration { return time.Duration(r.bits & (1<<serviceBits - 1)) }

// Latency is the response time: from the intended start to the outcome.
func (r Record) Latency() time.Duration { return r.lag + r.Service() }

// Lag is how long after its intended start the request was sent.
func (r Record) Lag() time.Duration { return r.lag }

// Late tells whether the request started later than LateAfter after its intended start.
func (r Record) Late() bool { return r.lag > LateAfter }

// Waited tells whether a client was free before the intended start.
func (r Record) Waited() bool { return r.bits>>waitedShift&1 == 1 }

// Own tells whether the generator itself made a late request late: a client was free, or the process did not run at the
// intended start, or it was busy itself for most of the time since. Otherwise all clients waited for members.
func (r Record) Own() bool { return r.bits>>ownShift&1 == 1 }

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

// counts must not be called before the transport has returned.
func (t *tally) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil {
		return map[string]int{}
	}
	return t.byText
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
