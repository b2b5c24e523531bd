// Package history keeps what each operation of a load did and was told, as compressed JSON lines, and reads it back.
package history

import (
	"strconv"

	"containernet-env/benchmark_image/internal/keys"
)

// Version is that of the form of the files.
const Version = 1

// Outcome is how an operation ended.
type Outcome uint8

// The outcomes.
const (
	OK      Outcome = iota // answered well
	Wrong                  // answered, and the answer was not what it must be
	Failed                 // it did not happen
	Unknown                // it may have happened, at any time after it was invoked
)

var outcomeNames = [...]string{"ok", "wrong", "failed", "unknown"}

// String names the outcome.
func (o Outcome) String() string { return outcomeNames[o] }

// Op is what an operation does.
type Op uint8

// The operations.
const (
	Put Op = iota
	Get
	SerializableGet
	Txn // writes the key if it exists
)

var opNames = [...]string{"put", "get", "serializable get", "txn"}

// String names the operation.
func (o Op) String() string { return opNames[o] }

// Content is what a read found.
type Content uint8

// The contents.
const (
	Nothing Content = iota // no answer that tells
	Absent                 // no such key
	Written                // what Value names
	Foreign                // what no writer makes
)

// Operation is one operation of a load. Times are in ns since the history began.
type Operation struct {
	Client  int
	Op      Op
	Key     string  // without the prefix
	Content Content // of a read
	Value   keys.ID // that was written or found

	ModRevision int64  // of a read: at which the key was last written
	Revision    int64  // of the store, when it answered; 0: no answer
	Member      uint64 // that answered

	Invoked   int64
	Completed int64 // when its outcome was known
	Outcome   Outcome
}

// names of what a read found that was no value.
const (
	absent  = "-"
	foreign = "?"
)

// value is what the line has of it; empty for nothing.
func (o *Operation) value() string {
	if o.Op == Put || o.Op == Txn {
		return o.Value.String()
	}
	return [...]string{"", absent, o.Value.String(), foreign}[o.Content]
}

// append appends the line of an operation; none of its texts needs an escape.
func (o *Operation) append(b []byte) []byte {
	number := func(name string, n int64) {
		b = strconv.AppendInt(append(append(append(b, ',', '"'), name...), '"', ':'), n, 10)
	}
	text := func(name, value string) {
		b = append(append(append(append(b, ',', '"'), name...), '"', ':', '"'), value...)
		b = append(b, '"')
	}
	b = strconv.AppendInt(append(b, `{"client":`...), int64(o.Client), 10)
	text("op", o.Op.String())
	text("key", o.Key)
	if value := o.value(); value != "" {
		text("value", value)
	}
	if o.ModRevision != 0 {
		number("mod_revision", o.ModRevision)
	}
	if o.Revision != 0 {
		number("revision", o.Revision)
	}
	if o.Member != 0 {
		text("member", strconv.FormatUint(o.Member, 16))
	}
	number("invoked", o.Invoked)
	number("completed", o.Completed)
	text("outcome", o.Outcome.String())
	return append(b, '}', '\n')
}

// Header is the first line of a history.
type Header struct {
	Version int    `json:"history"`
	BeganNs int64  `json:"began_ns"` // on CLOCK_MONOTONIC
	Prefix  string `json:"prefix"`   // of every key
}

// Footer is the last line.
type Footer struct {
	Operations int `json:"operations"` // that the history holds
	Lost       int `json:"lost"`       // that it does not, because they could not be written fast enough
}
