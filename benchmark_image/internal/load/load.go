// Package load runs a load: a targeter sets what each request does, a pacer when it starts, a
// transport sends it, and every outcome becomes a record that all figures are computed from.
package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/store"
)

// Kind is the call that a request makes.
type Kind uint8

const (
	Put Kind = iota
	Range
	Txn
	Kinds // how many there are
)

// String names the kind as etcd's tool does.
func (k Kind) String() string { return [Kinds]string{"put", "range", "txn"}[k] }

// Request is one call to the store. Its slices belong to the targeter until the request is done: a transport
// reads them, and neither changes nor keeps them.
type Request struct {
	store.Request // the Visitor is the transport's

	Number int // 0-based, unique within the run
	Kind   Kind

	expected expected // what Check compares an answer with
	end      []byte   // the buffer for End of a generated span
	head     [keys.VersionSize]byte

	run       uint64 // which its client and Number are of
	client    int
	keyNumber uint64 // of a generated key
	unique    bool   // its value names the write
	floor     int64  // the highest revision in an answer before it began
	revision  int64  // that its answer tells
	member    uint64 // that answered
	found     found  // what a read of one key found

	start  time.Duration // intended, since the start of the run
	actual time.Duration
	waited bool // its client was free before the intended start
	own    bool // if it starts late, the generator is the cause
	warmup bool // it is in no figure of the measurement
}

// found is what a read of one key found, as far as it is known.
type found struct {
	content  history.Content
	writer   keys.ID
	revision int64 // at which the key was last written
}

// Targeter fills in what a request does. It is called by many goroutines at once.
type Targeter interface {
	// Target sets every exported field of r but Number, which it reads. It may reuse the arrays behind the slices
	// that its own earlier call left in r.
	Target(r *Request)
}

// Transport carries requests to the store. It pulls them from the run, one at a time for each client, so
// that it alone decides how many goroutines serve the clients.
//
// An implementation must call Done exactly once for each request that Ask gave it, try each request once, put a
// deadline on each, return from Drive soon after the context has ended, and report requests that this cuts off as
// ErrAbandoned, or ErrNotSent, and other failures as a *store.Failure. For a range with Checked true it must pass each
// key and value of the answer to Check, in order and once, and then the numbers of keys to CheckCounts; of every answer
// it must pass what the store tells of its revision to CheckRevision. Done gets the first error of those.
type Transport interface {
	// Drive serves clients 0..clients-1 and returns when Ask has refused each of them, or ctx has ended.
	Drive(ctx context.Context, clients int, run *Run)
}

// Puts writes generated keys, each in a put or in a transaction. The value of a key is a function of the key's number,
// and if it is to be unique, also of the request.
type Puts struct {
	Prefix   string
	KeySize  int
	Order    keys.Order
	Values   *keys.Values
	Txn      bool // write a key only if it exists
	Unique   bool // no two requests write the same value
	Promises *Promises
}

func (p *Puts) Target(r *Request) {
	number, key := r.Number, r.Key
	r.clear()
	keyNumber := p.Order.Key(number)
	r.Number, r.Kind, r.Operation = number, Put, store.Put
	r.Key = keys.Append(append(key[:0], p.Prefix...), keyNumber, p.KeySize)
	r.keyNumber, r.unique = keyNumber, p.Unique
	if p.Unique {
		r.Head, r.Value = p.Values.Version(r.head[:0], keyNumber, keys.ID{Run: r.run, Client: r.client, Number: number})
		p.Promises.begin(r)
	} else {
		r.Value = p.Values.At(keyNumber)
	}
	if p.Txn {
		r.Kind, r.Operation = Txn, store.Transaction
	}
}

// Reads reads the same key or span of keys in each request or, when Order is set, one generated key, or range
// scan of such keys, after the other.
type Reads struct {
	Span store.Request // what every request has in common

	Prefix  string // of the generated keys, as in Puts
	KeySize int
	Order   keys.Order
	// with Order: range scan of this many keys from the one in order, up to the last of Space; 0: only that one
	SpanKeys int
	Space    int // how many generated keys there are

	Verify      *keys.Values // if set, answers must hold what Puts with these values wrote, and no other key
	Promises    *Promises    // with Verify: what the same load has written; nil if it writes nothing
	Complete    bool         // with Verify: Puts wrote every key that is read
	First, Last uint64       // with Verify, without Order: numbers of the first key in Span, and of the one after the last
}

func (g *Reads) Target(r *Request) {
	number, key := r.Number, r.Key
	r.clear()
	r.Number, r.Kind, r.Request = number, Range, g.Span
	first, last := g.First, g.Last
	if g.Order != nil {
		first = g.Order.Key(number)
		last = first + 1
		r.Key = keys.Append(append(key[:0], g.Prefix...), first, g.KeySize)
		if g.SpanKeys > 0 {
			last = min(first+uint64(g.SpanKeys), uint64(g.Space))
			// The span ends directly after its last key: keys of other sizes may lie before the next one.
			r.end = append(keys.Append(append(r.end[:0], g.Prefix...), last-1, g.KeySize), 0)
			r.End = r.end
		}
	}
	if r.Operation = store.Scan; len(r.End) == 0 {
		r.Operation = store.Get
	}
	r.keyNumber = first
	r.expected = expected{
		promises: g.Promises, values: g.Verify, prefix: g.Prefix, keySize: g.KeySize, first: first, next: first,
		last: last, complete: g.Complete,
	}
}

// Mixed sends puts and reads of generated keys in random order.
type Mixed struct {
	Puts  *Puts
	Reads *Reads
	Ratio float64 // share of the puts, 0..1
	Draw  func(number uint64) float64
}

// Kind is that of a request, by its number.
func (m *Mixed) Kind(number int) Kind {
	if m.Draw(uint64(number)) < m.Ratio {
		return Put
	}
	return Range
}

func (m *Mixed) Target(r *Request) {
	if m.Kind(r.Number) == Put {
		m.Puts.Target(r)
	} else {
		m.Reads.Target(r)
		r.expected.mixed = m
	}
}

func (m *Mixed) wrote(number int, key uint64) bool {
	return m.Draw(uint64(number)) < m.Ratio && m.Puts.Order.Key(number) == key
}

// clear resets what the request does, not when it starts.
func (r *Request) clear() {
	r.Request, r.expected = store.Request{}, expected{}
	r.keyNumber, r.unique, r.revision, r.member, r.found = 0, false, 0, 0, found{}
}

// Outcome is how a request ended.
type Outcome uint8

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
