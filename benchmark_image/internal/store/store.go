// Package store is what a load knows of the store that it measures: requests, answers, and the protocol that carries
// them over one connection. The event loop in package transport drives a protocol and knows no store; a package below
// this one implements the protocol of one store, and alone knows its API.
package store

import (
	"context"
	"hash/fnv"
	"net"
	"time"
)

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

func (f *Failure) Error() string { return f.Text }

// Protocol speaks with the members of one kind of store. Any number of goroutines may use it: of state it has at most
// the login that all its connections share.
type Protocol interface {
	// Traits do not change.
	Traits() Traits
	// NewConn starts a connection to a member, of which host:port is given. Its first output is there at once.
	NewConn(member string) Conn
	// NewCall makes room for one request at a time, on any connection of this protocol. owner gets the end of each.
	NewCall(owner Owner) Call
}

// Traits are what is known of a Protocol before it speaks.
type Traits struct {
	Name       string   // of what goes over a connection, for messages
	Security   Security // that connections have; nil: they are plain
	NeedsLogin bool     // a Login must have succeeded, on any connection, before other requests are sent
	Leaderless bool     // no member leads: there is neither Status nor Locate
	// Status asks a member, of which host:port is given, who leads, over a connection of its own that was just opened and
	// has a deadline. It is closed afterwards. nil: there are requests for that.
	Status func(connection net.Conn, member string) (Answer, error)
}

// Security secures connections, such as with TLS. It is in no program that does not need it. Any number of goroutines
// may use it.
type Security interface {
	// Secure agrees with a member, of which host:port is given, on how a connection that was just opened is secured. It
	// blocks until that is done, at most until ctx ends; neither it nor the session uses the connection afterwards. The
	// error is a RefusedError where the next attempt would bring the same.
	Secure(ctx context.Context, connection net.Conn, member string) (Session, error)
}

// Session is the security of one connection: it wraps a protocol's connection in one that takes the bytes read from the
// network and returns the bytes to write there. It does no input or output of its own. opened is a buffer for the bytes
// that inner takes, which all connections of a goroutine may share. Feed must be called once without bytes, for those
// that the member has sent right behind the agreement.
type Session func(inner Conn, opened []byte) Conn

// RefusedError is what Security says of a member or a member of us, and not of the way between.
type RefusedError struct{ Err error }

func (e RefusedError) Error() string { return e.Err.Error() }

func (e RefusedError) Unwrap() error { return e.Err }

// Call is the room for one request at a time: who starts one request after the other in the same Call allocates
// nothing.
type Call any

// Owner gets the end of a request.
type Owner interface {
	// Finished is called once for each request that was started and not cancelled: failure is nil when the member
	// answered well. The Call may be started again at once, from within; the answer is valid until then.
	Finished(answer *Answer, failure *Failure)
}

// Conn is the protocol on one connection. It does no input or output of its own: it takes the bytes that were read and
// returns the bytes to write. It keeps no time: the loop cancels a request at its deadline. No method blocks, and none
// but NewConn allocates in the steady state. It belongs to one goroutine.
type Conn interface {
	// Ready tells whether the member has answered the opening of the connection; without an opening it is ready at
	// once.
	Ready() bool
	// Start sends a request, or returns false when the member takes none for now, which may change with each Feed.
	// scratch is an array to encode it in, which may grow; it is not kept.
	Start(call Call, request *Request, scratch *[]byte) bool
	// Cancel gives up a request that is under way, without telling its owner. unknown tells that the member may carry
	// it out all the same. A connection on which nothing else can be started then is Closing from now on.
	Cancel(call Call) (unknown bool)

	// Feed takes what was read. Owners of requests that end get that before it returns, and may start others from
	// there. After an error the connection must be given up: Leave, then Lost.
	Feed(b []byte) error
	// EOF takes that the member has closed the connection, and says in which way that is an error; nil if it was at
	// its end anyway. Lost must follow.
	EOF() error
	// Output is the bytes to write, valid until the next call of another method.
	Output() []byte
	// Wrote takes the first n bytes off the output.
	Wrote(n int)
	// Waits tells that the output, which is not empty, should leave together with the next request: a write costs as
	// much as all else of a request. The loop writes it after half a second at the latest.
	Waits() bool

	// Active is the number of requests under way.
	Active() int
	// Answered tells whether the member has ever answered a request on this connection.
	Answered() bool
	// Closing tells that nothing can be started any more, while what is under way may still be answered.
	Closing() bool
	// Leave adds to the output that the client ends the connection, because of an error from Feed or, if err is nil,
	// because it is done.
	Leave(err error)
	// Lost fails all that is under way as Unavailable: nothing can be read or written any more.
	Lost(reason string)
}

// Beater is a Conn of which the member wants to hear something from time to time.
type Beater interface {
	// Interval is how often Beat must be called at least, once the connection is ready.
	Interval() time.Duration
	// Beat adds to the output what the member needs if nothing else was sent for a while.
	Beat()
}
