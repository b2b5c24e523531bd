// Package http1 is the client's side of HTTP/1.1 (RFC 9112) for stores that are spoken to over it: one request at a
// time on a connection, which is kept open for the next one. It does no input or output of its own.
package http1

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"containernet-env/benchmark_image/internal/store"
)

// ALPN is what members agree to speak over TLS, where they agree on anything.
const ALPN = "http/1.1"

// Bounds of what a member may make the client read or keep, in bytes: values have at most 1 MiB.
const (
	maxHeader = 64 << 10 // of one answer, with what is said ahead of it
	maxBody   = 16 << 20
	maxText   = 512     // kept of a body without a reader
	keptBody  = 2 << 20 // the largest buffer that is kept for the next answer
)

// maxCopied is up to how many bytes of a body are copied behind the request's header, so that both leave at once. What
// is larger is sent from where it is.
const maxCopied = 16 << 10

// Answer is a whole answer to a request. It is valid until the next request is started.
type Answer struct {
	Status  int
	Body    []byte   // where the request wants none: its beginning
	Size    int64    // of the body
	Headers [][]byte // those that the connection looks for, in order; empty: it is not there
}

// Owner gets the end of a request.
type Owner interface {
	// Answered is called for a request that was started and not cancelled: with the answer, whatever it says, or with the
	// failure of a connection that was lost. Another one may be started from within, if CanStart allows it.
	Answered(answer *Answer, failure *store.Failure)
}

// Conn is one connection: a store.Conn, but for Start. It is not safe for concurrent use.
type Conn struct {
	owner Owner // of the request under way; nil: there is none
	keep  bool  // its owner wants the answer's body

	out     []byte // what is left of it to be written: this,
	tail    []byte // and then that, which the caller holds
	space   []byte // the array behind out
	begun   bool   // some of the request was written
	wrote   bool   // all of it was
	answers answers

	answered bool
	closing  bool
	broken   bool
}

// NewConn starts a connection. headers are the names of those in answers that their owners look for, in small letters.
func NewConn(headers ...string) *Conn {
	c := &Conn{}
	c.answers.names = headers
	c.answers.answer.Headers = make([][]byte, len(headers))
	return c
}

// Ready implements store.Conn: there is no opening.
func (c *Conn) Ready() bool { return !c.broken }

func (c *Conn) Answered() bool { return c.answered }

func (c *Conn) Closing() bool { return c.closing }

func (c *Conn) Waits() bool { return false }

func (c *Conn) Active() int {
	if c.owner == nil {
		return 0
	}
	return 1
}

// CanStart tells whether Start may be called now.
func (c *Conn) CanStart() bool { return c.owner == nil && !c.closing && !c.broken }

// Space is room to encode a request in; what Start gets as head may begin there.
func (c *Conn) Space() []byte { return c.space[:0] }

// Start sends a request; CanStart must have returned true. It is head and then tail. head belongs to the connection
// from now on; tail must stay as it is until the request is over. keep tells that the owner wants the answer's body.
func (c *Conn) Start(owner Owner, head, tail []byte, keep bool) {
	if len(tail) <= maxCopied {
		head, tail = append(head, tail...), nil
	}
	c.owner, c.keep, c.begun, c.wrote = owner, keep, false, false
	c.out, c.tail, c.space = head, tail, head
	c.answers.reset()
}

func (c *Conn) Output() []byte {
	if len(c.out) > 0 {
		return c.out
	}
	return c.tail
}

func (c *Conn) Wrote(n int) {
	c.begun = true
	if len(c.out) > 0 {
		c.out = c.out[n:]
	} else {
		c.tail = c.tail[n:]
	}
	c.wrote = len(c.out)+len(c.tail) == 0
}

// drop forgets what is left to be written.
func (c *Conn) drop() {
	c.out, c.tail = nil, nil
	if cap(c.space) > keptBody {
		c.space = nil
	}
}

// Cancel implements store.Conn. Where some of it was written, its answer would be taken for that to the next
// request, so that there can be none.
func (c *Conn) Cancel(store.Call) (unknown bool) {
	c.owner, c.closing = nil, c.closing || c.begun
	c.drop()
	return c.wrote
}

// Leave implements store.Conn: HTTP/1.1 has no farewell.
func (c *Conn) Leave(error) {
	c.broken = true
	c.drop()
}

// Lost implements store.Conn. A request that was not written completely did not happen.
func (c *Conn) Lost(reason string) {
	c.broken = true
	c.drop()
	if owner := c.owner; owner != nil {
		c.owner = nil
		owner.Answered(nil, &store.Failure{Code: store.Unavailable, Text: reason, Unknown: c.wrote})
	}
}

var (
	errClosed = errors.New("the member closed the connection")
	errWithin = errors.New("the member closed the connection within an answer")
)

func (c *Conn) Feed(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if c.owner == nil && c.closing {
		return nil // a late answer
	}
	if c.owner == nil || !c.begun {
		return fmt.Errorf("the member sent something without a request: %.80q", b)
	}
	rest, whole, err := c.answers.feed(b, c.keep)
	if err != nil || !whole {
		return err
	}
	// What follows is no answer: who sends it cannot be trusted with another request.
	c.finish(c.answers.lasts && len(rest) == 0)
	return nil
}

// finish hands over the answer. lasts: the connection can be used again.
func (c *Conn) finish(lasts bool) {
	owner := c.owner
	c.owner, c.answered = nil, true
	// An answer that comes before the request was written completely ends it; the member would read the rest of it.
	c.closing = c.closing || !lasts || !c.wrote
	c.drop()
	owner.Answered(&c.answers.answer, nil)
}

// EOF implements store.Conn. It may be the end of an answer.
func (c *Conn) EOF() error {
	switch {
	case c.owner == nil:
		return nil // members close connections that are idle
	case !c.answers.started:
		return errClosed
	case c.answers.next == toTheEnd:
		c.answers.end()
		c.finish(false)
		return nil
	}
	return errWithin
}

// AppendKey appends a key as a part of a URL: all but what RFC 3986 section 2.3 calls unreserved is encoded.
func AppendKey(to, key []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range key {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' ||
			c == '~' {
			to = append(to, c)
		} else {
			to = append(to, '%', hex[c>>4], hex[c&15])
		}
	}
	return to
}

// Ending gives what follows the target of each request to a member, of which host:port is given.
func Ending(member string) string { return " HTTP/1.1\r\nHost: " + member + "\r\n" }

// AppendEnd appends the rest of the header of a request whose body has that many bytes; -1: it has none.
func AppendEnd(to []byte, ending string, body int) []byte {
	to = append(to, ending...)
	if body >= 0 {
		to = append(to, "Content-Length: "...)
		to = append(strconv.AppendInt(to, int64(body), 10), '\r', '\n')
	}
	return append(to, '\r', '\n')
}

// codes are what answers that tell of no success mean.
var codes = map[int]store.Code{
	400: store.InvalidArgument, 401: store.Unauthenticated, 403: store.PermissionDenied, 404: store.NotFound,
	405: store.Unimplemented, 408: store.DeadlineExceeded, 409: store.Aborted, 412: store.FailedPrecondition,
	413: store.InvalidArgument, 414: store.InvalidArgument, 429: store.ResourceExhausted, 500: store.Internal,
	501: store.Unimplemented, 502: store.Unavailable, 503: store.Unavailable, 504: store.DeadlineExceeded,
}

// Failure is what an answer means that tells of no success. A member that says that the request is wrong has not
// carried it out (RFC 9110 section 15.5); one that says that something else went wrong may have.
func (a *Answer) Failure() *store.Failure {
	code, known := codes[a.Status]
	if !known {
		code = store.Unknown
	}
	refused := a.Status >= 300 && a.Status < 500 && a.Status != 408
	return &store.Failure{Code: code, Text: a.Text(), Unknown: !refused}
}

// Text is the answer as a message has it; the body of a status of success is a value, and tells nothing.
func (a *Answer) Text() string {
	text := "HTTP status " + strconv.Itoa(a.Status)
	if body := a.Body[:min(len(a.Body), maxText)]; len(body) > 0 && a.Status >= 300 {
		text += ": " + printable(string(body))
	}
	return text
}

// printable leaves out what would break a line.
func printable(text string) string {
	clean := func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return ' '
		}
		return r
	}
	return strings.TrimSpace(strings.Map(clean, text))
}
