// Package load runs a load: a targeter sets what each request does, a pacer when it starts, a
// transport sends it, and every outcome becomes a record that all figures are computed from.
package load

import (
	"context"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/store"
)

// Kind is the call that a request makes.
type Kind uint8

// The kinds of requests.
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
