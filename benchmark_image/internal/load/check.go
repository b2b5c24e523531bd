package load

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/store"
)

// expected is what an answer to a range is compared with: generated keys, known by their numbers, and their values.
type expected struct {
	values      *keys.Values // nil: nothing is checked
	promises    *Promises    // of the writes of the same load; nil: it has none
	mixed       *Mixed       // which writes those are; nil: that is not known
	prefix      string
	keySize     int
	first, last uint64 // numbers of the first key in the range, and of the one after the last
	next        uint64 // the lowest number that the next key of the answer may have
	complete    bool   // all of them were written
}

// wrong is the failure of a request whose answer does not hold what was written.
func wrong(format string, values ...any) *store.Failure {
	return &store.Failure{Code: store.Check, Text: fmt.Sprintf(format, values...)}
}

// What can be wrong with a key or a value. The texts are the same for all keys.
var (
	errOtherKey   = wrong("an answer held another key than the requested one")
	errOutside    = wrong("an answer held a key outside of the requested span")
	errNotWritten = wrong("an answer held a key that is none of those that were written")
	errOrder      = wrong("an answer held a key twice, or keys out of order")
	errLeftOut    = wrong("an answer left out a key that was written")
	errOtherValue = wrong("an answer held another value than the one that was written")
	errAnyValue   = wrong("an answer held a value, although only keys were requested")
)

// Checked tells whether keys and values of the answer must be passed to Check.
func (r *Request) Checked() bool { return r.expected.values != nil }

// CheckCounts checks the numbers of keys in an answer to a range: keys is how many it holds, count how many it says
// there are in the span, including those that a limit leaves out, and more whether it says that it leaves out some.
// Where the keys that were written are known, count must be their number. The error is a *store.Failure of the code
// Check.
func (r *Request) CheckCounts(keys, count int64, more bool) error {
	if r.Kind != Range {
		return nil
	}
	want := count
	switch {
	case r.CountOnly:
		want = 0
	case r.Limit > 0:
		want = min(count, r.Limit)
	}
	if count < 0 || keys != want || len(r.End) == 0 && count > 1 {
		return wrong("an answer held %d keys of %d, expected were %d", keys, count, want)
	}
	if more != (!r.CountOnly && count > keys) {
		return wrong("an answer with %d keys of %d said of more: %v", keys, count, more)
	}
	if e := &r.expected; e.values != nil {
		written := int64(e.last - e.first)
		if count == 0 && len(r.End) == 0 && !r.CountOnly {
			r.found.content = history.Absent
			if !r.Serializable && e.promises.known(r, e.first).revision > 0 {
				return errLost
			}
		}
		// Whether an answer without a key is right otherwise, the run decides.
		if count > written || e.complete && count > 0 && count < written {
			return wrong("an answer counted %d keys, written were %d", count, written)
		}
	}
	return nil
}

// CheckRevision takes the revision that the store tells in an answer, 0 where it tells none, and the member that
// answered; written tells whether the answer acknowledges a write. A linearizable read must not be answered at a
// revision below that of an answer before it began. The error is a *store.Failure of the code Check.
func (r *Run) CheckRevision(request *Request, revision int64, member uint64, written bool) error {
	request.revision, request.member = revision, member
	return r.options.Promises.take(request, r.elapsed(), written)
}

// Check compares the next key of the answer, its value, and the revision at which it was last written, with what a
// writer of the same seed, key size and value size writes: each key lies in the requested span, sorts after the one
// before, and was written; where all were written, none is left out. A value is that of the data set, or a version of
// that key: of the same load one that was sent, and in a linearizable read none that is older than what was
// acknowledged before. The error is a *store.Failure of the code Check.
func (r *Request) Check(key, value []byte, revision int64) error {
	e := &r.expected
	number, known := keys.Number(key, e.prefix, e.keySize)
	switch {
	case len(r.End) == 0 && !bytes.Equal(key, r.Key):
		return errOtherKey
	case len(r.End) > 0 && !within(key, r.Key, r.End):
		return errOutside
	case !known || number < e.first || number >= e.last:
		return errNotWritten
	case number < e.next:
		return errOrder
	case number > e.next && e.complete:
		return errLeftOut
	}
	e.next = number + 1
	return r.checkValue(number, value, revision)
}

func (r *Request) checkValue(number uint64, value []byte, revision int64) error {
	if r.KeysOnly {
		if len(value) > 0 {
			return errAnyValue
		}
		return nil
	}
	e := &r.expected
	id, ok := e.values.Writer(number, value)
	r.found = found{content: history.Written, writer: id, revision: revision}
	switch {
	case !ok:
		r.found.content = history.Foreign
		if want := len(e.values.At(number)); len(value) != want {
			return wrong("an answer held a value of %d bytes, written were %d", len(value), want)
		}
		return errOtherValue
	case e.promises == nil:
		return nil
	case e.mixed != nil && id.Run == r.run && !(e.mixed.wrote(id.Number, number) && e.promises.hasBegun(id)):
		return errNoWriter
	}
	return e.promises.check(r, number, id, revision)
}

// within tells whether a key lies in a span of etcd's API, whose end is exclusive; an end of one zero byte is
// beyond all keys.
func within(key, from, end []byte) bool {
	return bytes.Compare(key, from) >= 0 && (len(end) == 1 && end[0] == 0 || bytes.Compare(key, end) < 0)
}

// maxTracked is how many keys at most have their last acknowledged write tracked.
const maxTracked = 1 << 20

// What can be wrong with an answer when it is held against what the store has acknowledged before.
var (
	errBehind = wrong("a linearizable read was answered at a revision below one reported " +
		"before it began")
	errSameAgain = wrong("a write was acknowledged at a revision that was reported before it began")
	errStale     = wrong("a linearizable read held an older version than one that was acknowledged " +
		"before it began")
	errLost = wrong("a linearizable read did not find a key whose write was acknowledged " +
		"before it began")
	errOtherWriter = wrong("an answer held another version than the one that was acknowledged at its revision")
	errNoWriter    = wrong("an answer held a version that was never written")
)

// Promises is what a store has acknowledged so far. A warm-up and its measurement share it.
type Promises struct {
	seen atomic.Int64 // the highest revision of any answer

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

// take notes the revision that an answer tells, and the write that it acknowledges. The error is a *store.Failure of
// the code Check.
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
