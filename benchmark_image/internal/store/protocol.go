package store

import (
	"context"
	"net"
	"time"
)

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

// Session is the security of one connection: it makes of a protocol's connection one that is fed with what was read
// from the network, and leaves behind what is to be written there. It does no input or output of its own. opened is room
// for what inner is fed with, which all connections of a goroutine may share. Feed must be called once with nothing, for
// what the member has sent right behind the agreement.
type Session func(inner Conn, opened []byte) Conn

// RefusedError is what Security says of a member or a member of us, and not of the way between.
type RefusedError struct{ Err error }

func (e RefusedError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
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

// Conn is the protocol on one connection. It does no input or output of its own: it is fed with what was read and
// leaves behind what is to be written. It keeps no time: the loop cancels a request at its deadline. No method
// blocks, and none but NewConn allocates in the steady state. It belongs to one goroutine.
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
	// Output is what is to be written, valid until the next call of another method.
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
