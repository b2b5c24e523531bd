// Package verify judges the history of a load: whether the answers to clients are those of one copy of the store, which
// does one operation after the other.
package verify

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

// Verdict is what is known of a history.
type Verdict string

const (
	Holds     Verdict = "ok"
	Violated  Verdict = "violated"
	Undecided Verdict = "undecided"
)

// Compared is what the store itself had to compare with.
type Compared string

// What a history may be compared with. Parts of either are nothing.
const (
	OwnHistory Compared = "history"
	FinalState Compared = "final state"
	Nothing    Compared = "nothing"
)

// Limits bounds what a judgement takes.
type Limits struct {
	Time time.Duration
	// Found, if there is one, gets that the history is violated as soon as that is known, also before the violation
	// is made small: it then has a key and no operations. It may be called again.
	Found func(Result)
}

// tell has a copy of a result, which does not change any more, for those who wait for it.
func (l Limits) tell(result Result) {
	if l.Found != nil && result.Violation != nil {
		violation := *result.Violation
		result.Violation = &violation
		l.Found(result)
	}
}

// Result is the judgement of one history.
type Result struct {
	Verdict      Verdict      `json:"verdict"`
	Reason       string       `json:"reason"`     // why it is not ok; empty if it is
	Operations   int          `json:"operations"` // in the history
	Judged       int          `json:"judged"`     // of those; the others say nothing, as reads without an answer
	Keys         int          `json:"keys"`
	Compared     Compared     `json:"compared"`
	Unknown      int          `json:"unknown"`  // writes with an unknown outcome
	Resolved     int          `json:"resolved"` // of those, whose outcome the store itself or a read tells
	Violation    *Violation   `json:"violation"`
	Serializable Serializable `json:"serializable"`
}

// Violation is a small part of a history that is wrong by itself.
type Violation struct {
	Key        string   `json:"key"`
	Operations []string `json:"operations"` // by the times of their invocations, in words
	Store      []string `json:"store"`      // what the store's own history has of the key, where that is what is wrong
	Picture    string   `json:"picture"`    // the file with it; empty if there is none

	html func(io.Writer) error
}

// ErrNothing is the error about a history in which nothing can be judged.
var ErrNothing = errors.New("the history holds no operation that can be judged")

// operation is one of a key, as it is judged.
type operation struct {
	*history.Operation
	until   int64 // it takes effect before; math.MaxInt64: or never
	dropped bool  // it had no effect
}

func (o *operation) isWrite() bool { return o.Op == history.Put || o.Op == history.Txn }

// refused tells whether it is a transaction that found no key: a read of nothing.
func (o *operation) refused() bool {
	return o.Op == history.Txn && o.Outcome == history.Failed && o.Revision > 0
}

// all is a history, taken apart.
type all struct {
	operations []history.Operation
	byKey      map[string][]operation // but for serializable reads
	order      []string               // the keys of byKey, sorted
	writes     map[keys.ID]*history.Operation
	runs       map[uint64]bool // that write here
	prefix     string
	found      map[string]bool // keys that a read found out about
	others
}

// Judge reads a history and judges it; log is the store's own, nil where there is none. The error tells that it cannot
// be judged, as ErrNothing and history.ErrIncomplete do.
func Judge(from io.Reader, log *history.Log, limits Limits) (*Result, error) {
	deadline := time.Now().Add(limits.Time)
	a := &all{}
	header, err := history.Read(from, func(o history.Operation) { a.operations = append(a.operations, o) })
	if err != nil {
		return nil, err
	}
	a.prefix = header.Prefix
	result := &Result{Verdict: Holds, Operations: len(a.operations), Compared: Nothing}
	switch {
	case log == nil:
	case log.Whole:
		result.Compared = OwnHistory
	case log.Final && a.readAtEnd(log.Events):
		result.Compared = FinalState
	}
	if result.Compared != OwnHistory {
		log = nil
	}
	a.index()
	result.Keys = len(a.order)
	steps := []func() *finding{
		a.strangers,
		func() *finding { return a.compare(log, result) },
		func() *finding { return a.serializable(result) },
		func() *finding { return a.linearizable(result, deadline, limits) },
		a.revisions,
	}
	for _, step := range steps {
		if found := step(); found != nil && result.Violation == nil {
			result.Verdict, result.Reason, result.Violation = found.verdict, found.reason, found.violation
			limits.tell(*result)
		}
	}
	if result.Judged == 0 && result.Violation == nil {
		return nil, ErrNothing
	}
	// With the final state, a lost last write of any key is a violation. Writes without an answer that no read found
	// are left out: a history is linearizable if it is without some operations that never ended (Herlihy and Wing).
	if left := result.Unknown - result.Resolved; left > 0 && result.Verdict == Holds && result.Compared != FinalState {
		result.Verdict = Undecided
		result.Reason = fmt.Sprintf("whether %d writes without an answer were carried out is not known: there is no "+
			"whole history of the store's own, nor its whole final state", left)
	}
	return result, nil
}

// finding is why a history is not ok.
type finding struct {
	verdict   Verdict
	reason    string
	violation *Violation
}

// index sorts operations by key and writes by value.
func (a *all) index() {
	a.byKey, a.found = make(map[string][]operation), make(map[string]bool)
	a.writes, a.runs = make(map[keys.ID]*history.Operation), make(map[uint64]bool)
	for i := range a.operations {
		if o := &a.operations[i]; o.Op == history.Put || o.Op == history.Txn {
			a.writes[o.Value], a.runs[o.Value.Run] = o, true
		}
	}
	a.findOthers()
	for i := range a.operations {
		o := &a.operations[i]
		a.found[o.Key] = a.found[o.Key] || read(o)
		if o.Op != history.SerializableGet {
			a.byKey[o.Key] = append(a.byKey[o.Key], operation{Operation: o, until: o.Completed})
		}
	}
	for key := range a.byKey {
		a.order = append(a.order, key)
	}
	slices.Sort(a.order)
}

// other tells whether a value is a data set's, or of a run that does not write here.
func (a *all) other(id keys.ID) bool { return !a.runs[id.Run] }

// read tells whether the operation found out what a key holds.
func read(o *history.Operation) bool {
	return (o.Op == history.Get || o.Op == history.SerializableGet) && o.Content != history.Nothing
}

// strangers finds reads of what no client can have written.
func (a *all) strangers() *finding {
	for i := range a.operations {
		o := &a.operations[i]
		if !read(o) {
			continue
		}
		write := a.writes[o.Value]
		what := ""
		switch {
		case o.Content == history.Foreign:
			what = "a read found a value that no writer makes"
		case o.Content != history.Written || a.other(o.Value):
		case write == nil:
			what = "a read found a value that was never written"
		case write.Key != o.Key:
			what = "a read found a value that was written to another key"
		case write.Outcome == history.Failed:
			what = "a read found a value whose write had failed"
		case write.Invoked > o.Completed:
			what = "a read found a value before its write was invoked"
		}
		if what != "" {
			involved := []*history.Operation{o}
			if write != nil {
				involved = append(involved, write)
			}
			return a.violation(what, o.Key, involved, nil)
		}
	}
	return nil
}

// violation makes the finding about operations that are wrong by themselves.
func (a *all) violation(what, key string, involved []*history.Operation, store []string) *finding {
	slices.SortFunc(involved, func(x, y *history.Operation) int { return int(x.Invoked - y.Invoked) })
	texts := make([]string, len(involved))
	for i, o := range involved {
		texts[i] = describe(o)
	}
	return &finding{Violated, what, &Violation{Key: a.prefix + key, Operations: texts, Store: store}}
}

func describe(o *history.Operation) string {
	ms := func(ns int64) string { return fmt.Sprintf("%.3f ms", float64(ns)/1e6) }
	text := fmt.Sprintf("%s..%s client %d: %v ", ms(o.Invoked), ms(o.Completed), o.Client, o.Op)
	if atEnd(o) {
		text = "after the load, by its final state: "
	}
	switch {
	case o.Op == history.Put || o.Op == history.Txn:
		text += o.Value.String()
	case o.Content == history.Absent:
		text += "found nothing"
	case o.Content == history.Foreign:
		text += "found another value"
	case o.Value == empty:
		text += "found an empty value"
	case o.Content == history.Written:
		text += fmt.Sprintf("found %v", o.Value)
		if o.ModRevision > 0 {
			text += fmt.Sprintf(" of revision %d", o.ModRevision)
		}
	}
	text += ", " + o.Outcome.String()
	if o.Revision > 0 {
		text += fmt.Sprintf(" at revision %d", o.Revision)
	}
	return text
}

// noClient is the number of the client of reads of the final state.
const noClient = -1

// The values of a data set are digits and letters too, so they read as names of writes. These bounds are above what any
// load has in practice, and leave one of a thousand: 3 digits of 62 name a client, and 6 a request.
const (
	maxClients = 10_000
	maxNumber  = 1_000_000_000
)

// empty stands for an empty value: that of no write of any load with a history, nor of a data set that one may read.
var empty = keys.ID{Number: -1}

// atEnd tells whether an operation is a read of the final state.
func atEnd(o *history.Operation) bool { return o.Client == noClient }

// readAtEnd takes a store's final state for reads that were invoked when the load was over, one of each key that was
// written. It does nothing and returns false where one of these keys is missing. Of a value that no write of the load
// made, findOthers tells what becomes.
func (a *all) readAtEnd(state []history.Event) bool {
	held := make(map[string]history.Event, len(state))
	for _, e := range state {
		held[e.Key] = e
	}
	over := int64(math.MinInt64)
	var reads []history.Operation
	taken := make(map[string]bool, len(state))
	for i := range a.operations {
		o := &a.operations[i]
		over = max(over, o.Completed)
		if o.Op != history.Put && o.Op != history.Txn || taken[o.Key] {
			continue
		}
		e, there := held[a.prefix+o.Key]
		if !there {
			return false
		}
		taken[o.Key] = true
		reads = append(reads, finalRead(o.Key, e))
	}
	for i := range reads {
		reads[i].Invoked, reads[i].Completed = over+1, over+2
	}
	a.operations = append(a.operations, reads...)
	return true
}

func finalRead(key string, e history.Event) history.Operation {
	read := history.Operation{Client: noClient, Op: history.Get, Key: key, Content: history.Absent}
	if e.Absent {
		return read
	}
	read.Content, read.ModRevision = history.Written, e.Revision
	if e.Value == "" {
		read.Value = empty
		return read
	}
	id, err := keys.ParseID(e.Value[:min(len(e.Value), keys.NameSize)])
	if err == nil && id.Client < maxClients && id.Number < maxNumber {
		read.Value = id
	}
	return read
}
