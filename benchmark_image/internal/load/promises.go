package load

import (
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/keys"
)

// maxTracked is how many keys at most have their last acknowledged write tracked.
const maxTracked = 1 << 20

// What can be wrong with an answer when it is held against what the store has acknowledged before.
var (
	errBehind = &WrongAnswerError{"a linearizable read was answered at a revision below one that was told " +
		"before it began"}
	errSameAgain = &WrongAnswerError{"a write was acknowledged at a revision that was told before it began"}
	errStale     = &WrongAnswerError{"a linearizable read held an older version than one that was acknowledged " +
		"before it began"}
	errLost = &WrongAnswerError{"a linearizable read did not find a key whose write was acknowledged " +
		"before it began"}
	errOtherWriter = &WrongAnswerError{"an answer held another version than the one that was acknowledged at its revision"}
	errNoWriter    = &WrongAnswerError{"an answer held a version that was never written"}
)

// Promises is what a store has acknowledged so far. A warm-up and its measurement share it.
type Promises struct {
	seen atomic.Int64 // the highest revision that any answer told

	mu      sync.Mutex
	run     uint64 // whose writes have begun up to number begun
	begun   int
	tracked []promise // by the number of the key
}

// promise is the acknowledged write of a key with the highest revision.
type promise struct {
	revision int64
	run      uint64
	number   int
	at       time.Duration // when it was acknowledged, in its run
}

// NewPromises prepares to check reads of so many keys against the writes of the same load; of 0 keys only the store's
// revision is checked. More than a million keys are not tracked one by one.
func NewPromises(keys int) *Promises {
	return &Promises{tracked: make([]promise, min(keys, maxTracked))}
}

// begin notes that a write is about to be sent.
func (p *Promises) begin(r *Request) {
	if p == nil || len(p.tracked) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != r.run {
		p.run, p.begun = r.run, 0
	}
	p.begun = max(p.begun, r.Number+1)
}

// take notes the revision that an answer tells, and the write that it acknowledges. The error is a *WrongAnswerError.
func (p *Promises) take(r *Request, now time.Duration, written bool) error {
	for seen := p.seen.Load(); r.revision > seen && !p.seen.CompareAndSwap(seen, r.revision); {
		seen = p.seen.Load()
	}
	switch {
	case r.Kind == Range && !r.Serializable && r.revision > 0 && r.revision < r.floor:
		return errBehind
	case r.Kind == Range || !written || !r.unique:
		return nil
	case r.floor > 0 && r.revision <= r.floor:
		return errSameAgain
	case r.keyNumber < uint64(len(p.tracked)):
		p.mu.Lock()
		defer p.mu.Unlock()
		if known := &p.tracked[r.keyNumber]; r.revision > known.revision {
			*known = promise{revision: r.revision, run: r.run, number: r.Number, at: now}
		}
	}
	return nil
}

// known is what was acknowledged of a key before the request began; a revision of 0: nothing.
func (p *Promises) known(r *Request, key uint64) promise {
	if p == nil || key >= uint64(len(p.tracked)) {
		return promise{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.tracked[key]; known.run != r.run || known.at < r.actual {
		return known
	}
	return promise{}
}

// check tells what is wrong with a version of a key that was read.
func (p *Promises) check(r *Request, key uint64, id keys.ID, revision int64) error {
	known := p.known(r, key)
	switch {
	case known.revision == 0:
	case revision == known.revision && (id.Run != known.run || id.Number != known.number):
		return errOtherWriter
	case revision < known.revision && !r.Serializable:
		return errStale
	}
	return nil
}

// hasBegun tells whether a write of the run under way has been sent; of other runs nothing is known.
func (p *Promises) hasBegun(id keys.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return id.Run != p.run || id.Number < p.begun
}
