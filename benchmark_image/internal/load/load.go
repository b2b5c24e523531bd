// Package load runs a load: a targeter says what each request asks for, a pacer when it starts, a
// transport carries it, and every outcome becomes a record that all figures are computed from.
package load

import (
	"context"
	"errors"
	"time"
)

// Kind tells which call a request makes.
type Kind uint8

// The kinds of requests.
const (
	Put Kind = iota
	Range
)

// Request is one call to the store. Its slices belong to the feed until the request is done: a transport
// reads them, and neither changes nor keeps them.
type Request struct {
	Number int // 0-based, unique within the run
	Kind   Kind

	Key   []byte
	Value []byte // of a put

	End          []byte // of a range: the key after the last one; empty: only Key
	Limit        int64  // 0: no limit
	Serializable bool
	CountOnly    bool
	KeysOnly     bool

	start time.Duration
}

// Targeter fills in what a request asks for. It is called by many goroutines at once.
type Targeter interface {
	// Target sets every field of r but Number, which it reads. It may reuse the arrays behind the slices
	// that its own earlier call left in r.
	Target(r *Request)
}

// Pacer decides when requests start; it is a pure function, so that schedules are tested without a clock.
type Pacer interface {
	// Pace tells whether a request is part of the run, and its intended start since the start of the run.
	// elapsed is when a client became free for it: an intended start before that is a request that is late,
	// and its latency counts from the intended start all the same.
	Pace(number int, elapsed time.Duration) (start time.Duration, more bool)
}

// ClosedLoop starts each of its requests as soon as a client is free.
type ClosedLoop struct{ Total int }

// Pace implements Pacer.
func (c ClosedLoop) Pace(number int, elapsed time.Duration) (time.Duration, bool) {
	return elapsed, number < c.Total
}

// Transport carries requests to the store. It pulls them from the run, one at a time for each client, so
// that it alone decides how many goroutines serve the clients.
//
// An implementation must call Done exactly once for each request that Next gave it, try each request
// once, put a deadline on each, return from Drive soon after the context has ended, and report requests
// that this cuts off as ErrAbandoned.
type Transport interface {
	// Drive serves clients 0..clients-1 and returns when Next has refused each of them.
	Drive(ctx context.Context, clients int, run *Run)
}

// ErrAbandoned is the outcome of a request that was under way when the run was ended early.
var ErrAbandoned = errors.New("abandoned at the end of the run")

// ErrNotFound is the outcome of a read that found no key although one was required.
var ErrNotFound = errors.New("no key found")

// Record is the outcome of one request; the record of request i is element i of a run's records.
type Record struct {
	Start time.Duration // since the start of the run
	took  time.Duration // 0: not done; negative: it failed after so long
}

// Done tells whether the request has an outcome.
func (r Record) Done() bool { return r.took != 0 }

// OK tells whether the request succeeded.
func (r Record) OK() bool { return r.took > 0 }

// Latency is the time from the start to the outcome, at least 1 ns for a request that is done.
func (r Record) Latency() time.Duration { return max(r.took, -r.took) }
