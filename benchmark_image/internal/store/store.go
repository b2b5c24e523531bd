// Package store is what a load knows of the store that it measures: requests, answers, and the protocol that carries
// them over one connection. The event loop in package transport drives a protocol and knows no store; a package below
// this one implements the protocol of one store, and alone knows its API.
package store

import "hash/fnv"

// Operation is what a request asks of a store.
type Operation uint8

// The operations. A load consists of the first four; a store that lacks one of them fails it as Unimplemented.
const (
	Put         Operation = iota // write Key
	Get                          // read Key
	Scan                         // read the keys from Key on, before End
	Transaction                  // write Key if it exists, which its revision tells, and nothing otherwise
	Status                       // which member answers, and which one leads
	Locate                       // where clients reach the member Leader
	Login                        // as the protocol's user, for all its connections
)

// Request is one request. A field counts only with the operations that are named beside it. Its slices belong to the
// caller: a protocol neither changes nor keeps them, but reads them until the call is over.
type Request struct {
	Operation Operation

	Key   []byte
	Head  []byte // of Put and Transaction: the beginning of the value, which Value follows
	Value []byte // of Put and Transaction
	End   []byte // of Scan: the first key after the span; one zero byte: there is none

	Limit        int64 // of Scan: the largest number of keys in the answer; 0: no limit
	Serializable bool  // of Get and Scan: the member may answer from what it has, without asking the others
	KeysOnly     bool  // of Get and Scan: no values
	CountOnly    bool  // of Get and Scan: neither keys nor values

	Visitor Visitor // of Get and Scan: sees what is found; may be nil

	Leader uint64 // of Locate: a member, as an Answer to Status names it

	// Rehearse, of the first four: the member carries nothing out, and refuses what the user may not do. Of Key, no
	// value is needed.
	Rehearse bool
}

// Visitor sees the keys of an answer with their values, in order, and with the revisions of the store at which they
// were last written. Key and value are valid only during the call.
type Visitor interface {
	Visit(key, value []byte, revision int64)
}

// Answer is what is kept of the answer to a request. A field that the store does not tell is zero.
type Answer struct {
	Keys      int64 // of Get and Scan: how many keys the answer holds
	Count     int64 // of Get and Scan: how many keys there are, with those that Limit or CountOnly leaves out
	More      bool  // of Scan: Limit left out keys
	Succeeded bool  // of Transaction: Key existed
	SecondTry bool  // of Put: it took a second round trip, because of whether Key existed

	Revision int64  // of the store, when it answered
	Term     uint64 // of the leader's election
	Member   uint64 // that answered; 0 is none
	Leader   uint64 // of Status: the member that leads; 0: none does
	Endpoint string // of Locate: host:port
}

// MemberID names a member by an address, where its store has no number for it; never 0, which is none.
func MemberID(address string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(address)) // it never fails
	return max(h.Sum64(), 1)
}

// Code says why a request failed, whatever the store. Numbers and names are those of gRPC's status codes
// (https://grpc.github.io/grpc/core/md_doc_statuscodes.html), and Check, which is ours.
type Code uint8

// The codes.
const (
	OK Code = iota
	Canceled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
	Check // an answer came, but does not hold what it must
)

var codeNames = [...]string{
	"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
	"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
	"DataLoss", "Unauthenticated", "Check",
}

// String gives the name of the code.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return codeNames[Unknown]
}

// Failure is how a request ended that did not succeed; as an error, it is its text.
type Failure struct {
	Code Code
	Text string
	// Unknown tells that the request may have been carried out all the same: the member has it as a whole, and has not
	// said that it leaves it alone.
	Unknown bool
	// Answered tells that Code and Text are the member's own; otherwise the client derived them. Not every protocol does.
	Answered bool
	// LoggedOut tells that the member carries out nothing until there is a new Login: the last one has expired.
	LoggedOut bool
}

// Error implements error.
func (f *Failure) Error() string { return f.Text }
