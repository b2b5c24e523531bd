package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/store"
)

// Options are those of a connection. All but the first are for tests; zero is right for everything else.
type Options struct {
	Secure      bool   // it goes over TLS
	Window      uint32 // receive window of a stream and of the connection, in bytes, at least 65535
	FirstStream uint32 // odd
}

// window is the flow control window for answers, in bytes: 4 MiB keep 1 Gbit/s busy over a round trip of
// 30 ms.
const window = 4 << 20

// Bounds of what a member may make the client buffer, in bytes, and of the frames that one header block may take:
// without the latter, empty CONTINUATION frames keep a connection in one block for ever (as in CVE-2023-45288).
const (
	maxHeaderBlock = 64 << 10
	maxBlockFrames = 1024 // even if each holds only 64 bytes, the largest block fits
	maxHeaderList  = 64 << 10
	maxOutput      = 16 << 20 // without reading it
)

// maxWaiting is how many bytes of acknowledgements may wait: a member of grpc-go has one PING under way at a time.
const maxWaiting = 128

// enoughOutput is the number of bytes waiting to be written from which on no more requests are copied to them.
const enoughOutput = 256 << 10

// Conn is one HTTP/2 connection. It is not safe for concurrent use.
type Conn struct {
	window  uint32
	streams streams
	nextID  uint64 // wider than a stream's number, so that it does not wrap
	in      []byte // the beginning of a frame whose rest has not been read yet

	out     []byte
	waiting int    // bytes at the front of out that are acknowledgements
	written uint64 // bytes of output before out

	headers           *requestHeaders
	peerInitialWindow int64
	peerMaxFrame      int
	peerMaxStreams    uint32
	sendWindow        int64
	firstBlocked      *Stream
	lastBlocked       *Stream

	decoder     *hpack.Decoder
	answer      answerHeaders
	block       []byte // of a HEADERS frame whose CONTINUATION frames are still to come
	blockStream uint32 // 0: no such frame
	blockFrames int    // CONTINUATION frames that it has had
	blockEnds   bool   // it ends its stream

	receiveLeft int64
	consumed    uint32

	settled  bool // the member's SETTINGS have arrived
	goAway   bool
	answered bool
	broken   bool
}

// NewConn starts a connection: its first output is ready at once. authority is the member's host:port, and methods are
// the paths to which Start refers by index, at most maxMethods.
func NewConn(authority string, methods []string, options Options) *Conn {
	c := &Conn{
		window: max(options.Window, defaultWindow), nextID: uint64(max(options.FirstStream, 1)),
		headers: newRequestHeaders(authority, methods,
			options.Secure), peerInitialWindow: defaultWindow, peerMaxFrame: smallestMaxFrame,
		peerMaxStreams: math.MaxUint32, sendWindow: defaultWindow,
	}
	if options.Window == 0 {
		c.window = window
	}
	c.receiveLeft = int64(c.window)
	c.decoder = hpack.NewDecoder(tableSize, func(f hpack.HeaderField) { c.answer.add(f) })
	c.decoder.SetMaxStringLength(maxHeaderList)
	const settings = 3
	c.out = append(c.out, preface...)
	c.out = appendFrameHeader(c.out, 6*settings, frameSettings, 0, 0)
	c.out = appendSetting(c.out, settingEnablePush, 0)
	c.out = appendSetting(c.out, settingInitialWindowSize, c.window)
	c.out = appendSetting(c.out, settingMaxHeaderListSize, maxHeaderList)
	if c.window > defaultWindow {
		c.out = appendWindowUpdate(c.out, 0, c.window-defaultWindow)
	}
	return c
}

// SetToken gives all later requests this token of a login as metadata, in the place of the last one.
func (c *Conn) SetToken(token string) {
	c.headers.token = token
	// An old token in the table could push out other fields, to which blocks that are kept refer.
	c.headers.encoder.SetMaxDynamicTableSize(0)
	c.headers.limit(c.headers.member)
}

// Ready tells whether the member has answered the opening of the connection.
func (c *Conn) Ready() bool { return c.settled && !c.broken }

// Answered tells whether the member has ever answered a call on this connection.
func (c *Conn) Answered() bool { return c.answered }

// Closing tells that no call can be started any more, while those in flight may still be answered: the
// member sent GOAWAY, or the stream numbers are used up.
func (c *Conn) Closing() bool { return c.goAway || c.nextID > largestStreamID }

// Active is the number of calls in flight.
func (c *Conn) Active() int { return c.streams.count }

// CanStart tells whether Start may be called now.
func (c *Conn) CanStart() bool {
	return c.settled && !c.broken && !c.Closing() && uint64(c.streams.count) < uint64(c.peerMaxStreams)
}

// Output is the bytes to write to the member; it is valid until the next call of another method.
func (c *Conn) Output() []byte { return c.out }

// Waits tells that the output is acknowledgements alone, which should leave together with the next request: grpc-go's
// server measures its bandwidth by a PING for each request (bdp_estimator.go), so that each would take a second write.
// Nothing waits while a request is blocked by a window, which depends on that measurement, or after GOAWAY.
func (c *Conn) Waits() bool {
	return c.waiting > 0 && c.waiting == len(c.out) && c.waiting <= maxWaiting && c.firstBlocked == nil && !c.goAway
}

// acknowledge adds a frame to the output that need not leave at once.
func (c *Conn) acknowledge(kind byte, payload []byte) {
	alone := c.waiting == len(c.out)
	c.out = append(appendFrameHeader(c.out, len(payload), kind, flagAck, 0), payload...)
	if alone {
		c.waiting = len(c.out)
	}
}

// Wrote removes the first n bytes from the output.
func (c *Conn) Wrote(n int) {
	c.written += uint64(n)
	c.waiting = 0
	if n == len(c.out) {
		c.out = c.out[:0]
		if cap(c.out) > 4*enoughOutput {
			c.out = nil
		}
	} else {
		c.out = append(c.out[:0], c.out[n:]...)
	}
	if c.firstBlocked != nil {
		c.pump()
	}
}

// Start sends a request; CanStart must have returned true. The message is head and then tail; head
// begins with AppendPrefix. head may be reused at once, tail must stay as it is until the call is over.
func (c *Conn) Start(s *Stream, method int, head, tail []byte) {
	id := uint32(c.nextID)
	c.nextID += 2
	s.reset(c, id)
	c.streams.add(s)
	binary.BigEndian.PutUint32(head[1:messagePrefix], uint32(len(head)+len(tail)-messagePrefix))

	block := c.headers.block(method)
	// The largest block, with an authority of the longest host name, is far below the smallest MAX_FRAME_SIZE.
	c.out = appendFrameHeader(c.out, len(block), frameHeaders, flagEndHeaders, id)
	c.out = append(c.out, block...)
	s.head, s.tail = head, tail
	c.send(s)
	if s.allWritten {
		s.head, s.tail = nil, nil
		return
	}
	s.kept = append(s.kept[:0], s.head...)
	s.head = s.kept
	c.queue(s)
}

// send copies as much of a request into the output as the windows allow.
func (c *Conn) send(s *Stream) {
	for s.unsent() > 0 && s.window > 0 && c.sendWindow > 0 && len(c.out) < enoughOutput {
		n := int(min(int64(s.unsent()), s.window, c.sendWindow, int64(c.peerMaxFrame)))
		flags := byte(0)
		if n == s.unsent() {
			flags = flagEndStream
			s.allWritten = true
		}
		c.out = appendFrameHeader(c.out, n, frameData, flags, s.id)
		fromHead := min(n, len(s.head))
		c.out = append(c.out, s.head[:fromHead]...)
		c.out = append(c.out, s.tail[:n-fromHead]...)
		s.head, s.tail = s.head[fromHead:], s.tail[n-fromHead:]
		s.window -= int64(n)
		c.sendWindow -= int64(n)
	}
	s.end = c.written + uint64(len(c.out))
}

// queue queues a request that waits for a window or for output to be written.
func (c *Conn) queue(s *Stream) {
	s.blocked, s.nextBlocked = true, nil
	if c.firstBlocked == nil {
		c.firstBlocked = s
	} else {
		c.lastBlocked.nextBlocked = s
	}
	c.lastBlocked = s
}

// pump continues requests that wait.
func (c *Conn) pump() {
	var before *Stream
	for s := c.firstBlocked; s != nil && c.sendWindow > 0 && len(c.out) < enoughOutput; {
		next := s.nextBlocked
		if s.window > 0 {
			c.send(s)
		}
		if s.allWritten {
			s.head, s.tail = nil, nil
			c.unlink(before, s)
		} else {
			before = s
		}
		s = next
	}
}

func (c *Conn) unlink(before, s *Stream) {
	if before == nil {
		c.firstBlocked = s.nextBlocked
	} else {
		before.nextBlocked = s.nextBlocked
	}
	if c.lastBlocked == s {
		c.lastBlocked = before
	}
	s.blocked, s.nextBlocked = false, nil
}

// release ends a stream on this side; it has been removed from the table already.
func (c *Conn) release(s *Stream) {
	if s.blocked {
		var before *Stream
		for b := c.firstBlocked; b != s; b = b.nextBlocked {
			before = b
		}
		c.unlink(before, s)
	}
	s.head, s.tail = nil, nil
	if cap(s.kept) > enoughOutput {
		s.kept = nil
	}
	s.id, s.conn = 0, nil
}

// Cancel gives up a call in flight without notifying its owner; a late answer is ignored. unknown tells
// that the request was sent completely, so it may still be carried out.
func (c *Conn) Cancel(s *Stream) (unknown bool) {
	c.out = appendRSTStream(c.out, s.id, Cancel)
	unknown = s.allWritten
	c.streams.remove(s)
	c.release(s)
	return unknown
}

// fail ends a call whose answer is unusable.
func (c *Conn) fail(s *Stream, code ErrorCode, failure *store.Failure) {
	c.out = appendRSTStream(c.out, s.id, code)
	c.finish(s, failure)
}

func (c *Conn) finish(s *Stream, failure *store.Failure) {
	if failure != nil && !s.allWritten {
		failure.Unknown = false // a member carries out a request only when it is complete
	}
	c.streams.remove(s)
	c.release(s)
	s.Owner.Finished(s, failure)
}

// leaveStream ends a call that may have ended on the member's side already.
func (c *Conn) leaveStream(s *Stream, ended bool, code ErrorCode, failure *store.Failure) {
	if ended && s.allWritten {
		c.finish(s, failure)
		return
	}
	c.fail(s, code, failure)
}

// Lost ends all calls in flight because nothing can be read or written any more. Requests that had not been
// written completely did not happen.
func (c *Conn) Lost(reason string) {
	c.broken = true
	for s := c.streams.take(func(*Stream) bool { return true }); s != nil; {
		next := s.next
		unknown := s.allWritten && s.end <= c.written
		c.release(s)
		s.Owner.Finished(s, &store.Failure{Code: store.Unavailable, Text: reason, Unknown: unknown})
		s = next
	}
}

// Leave adds a GOAWAY to the output: the client ends the connection, because of an error or, if err is nil,
// because it is done.
func (c *Conn) Leave(err error) {
	code := NoError
	if fault := new(ConnError); errors.As(err, &fault) {
		code = fault.Code
	}
	c.out = appendFrameHeader(c.out, 8, frameGoAway, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

// Owner reads the answer to a call, and is notified when the call has ended.
type Owner interface {
	// Feed takes the next piece of the answer, which is valid only during the call; last tells that there is no more.
	// An error ends the call.
	Feed(b []byte, last bool) error
	// Finished is called once for each started stream that is not cancelled: failure is nil when the member
	// answered with OK, and all of the answer was fed. The stream may be started again at once.
	Finished(s *Stream, failure *store.Failure)
}

// Stream carries one call after the other. Its zero value with an Owner is ready for Start; it must not
// be copied or changed while a call is in flight.
type Stream struct {
	Owner Owner

	conn *Conn
	id   uint32 // 0: no call is in flight
	next *Stream

	// The request: what is left to be sent, and the position of its last byte in the connection's output.
	head, tail   []byte
	kept         []byte // what head points into
	window       int64
	allWritten   bool
	end          uint64
	blocked      bool
	nextBlocked  *Stream
	receiveLeft  int64 // that the member may send before the next window update
	consumed     uint32
	headersSeen  bool
	prefix       [messagePrefix]byte
	prefixLength int
	messageLeft  int64
	messages     int
}

// messagePrefix is the length of gRPC's message prefix: a flag and the length.
const messagePrefix = 5

// AppendPrefix makes room for the prefix of a message; Start fills it in.
func AppendPrefix(b []byte) []byte { return append(b, 0, 0, 0, 0, 0) }

func (s *Stream) unsent() int { return len(s.head) + len(s.tail) }

func (s *Stream) reset(c *Conn, id uint32) {
	s.conn, s.id, s.next = c, id, nil
	s.window, s.allWritten = c.peerInitialWindow, false
	s.receiveLeft, s.consumed = int64(c.window), 0
	s.headersSeen, s.prefixLength, s.messageLeft, s.messages = false, 0, 0, 0
}

// receive takes the payload of a DATA frame. It returns why the stream has failed, or nil.
func (s *Stream) receive(b []byte) *store.Failure {
	for len(b) > 0 {
		if s.prefixLength < messagePrefix {
			n := copy(s.prefix[s.prefixLength:], b)
			s.prefixLength += n
			b = b[n:]
			if s.prefixLength < messagePrefix {
				return nil
			}
			if failure := s.beginMessage(); failure != nil {
				return failure
			}
		}
		n := int(min(int64(len(b)), s.messageLeft))
		s.messageLeft -= int64(n)
		if n > 0 || s.messageLeft == 0 {
			if err := s.Owner.Feed(b[:n], s.messageLeft == 0); err != nil {
				return internal("the answer cannot be read: %v", err)
			}
		}
		b = b[n:]
		if s.messageLeft == 0 {
			s.prefixLength = 0
		}
	}
	return nil
}

func (s *Stream) beginMessage() *store.Failure {
	if s.prefix[0] != 0 {
		return internal("the answer is compressed (flag %d) though that was not offered", s.prefix[0])
	}
	if s.messages++; s.messages > 1 {
		return internal("there is more than one answer")
	}
	s.messageLeft = int64(binary.BigEndian.Uint32(s.prefix[1:]))
	return nil
}

// outcome gives the outcome of a stream that the member has ended, by its trailers.
func (s *Stream) outcome(h *answerHeaders) *store.Failure {
	if h.grpcStatus == "" {
		return internal("the member ended the stream without a grpc-status")
	}
	if h.grpcStatus != "0" {
		return refusal(h)
	}
	if s.messages != 1 || s.messageLeft > 0 || s.prefixLength != 0 {
		return internal("the member ended the stream without a complete answer")
	}
	return nil
}

func refusal(h *answerHeaders) *store.Failure {
	n, err := strconv.ParseUint(h.grpcStatus, 10, 32)
	if err != nil || n > uint64(store.Unauthenticated) {
		return &store.Failure{Code: store.Unknown, Text: fmt.Sprintf("grpc-status is %.20q", h.grpcStatus), Unknown: true}
	}
	return &store.Failure{Code: store.Code(n), Text: unescape(h.grpcMessage), Unknown: true, Answered: true}
}

func internal(format string, args ...any) *store.Failure {
	return &store.Failure{Code: store.Internal, Text: fmt.Sprintf(format, args...), Unknown: true}
}

// streams finds streams by their number: a chained hash table, because Go's maps sometimes allocate.
type streams struct {
	buckets []*Stream // a power of 2
	count   int
}

func (t *streams) bucket(id uint32) **Stream { return &t.buckets[int(id>>1)&(len(t.buckets)-1)] }

func (t *streams) find(id uint32) *Stream {
	if t.count == 0 {
		return nil
	}
	s := *t.bucket(id)
	for s != nil && s.id != id {
		s = s.next
	}
	return s
}

func (t *streams) add(s *Stream) {
	if t.count >= len(t.buckets) {
		old := t.buckets
		t.buckets = make([]*Stream, max(16, 2*len(old)))
		for _, chain := range old {
			for chain != nil {
				moved := chain
				chain = chain.next
				t.push(moved)
			}
		}
	}
	t.push(s)
	t.count++
}

func (t *streams) push(s *Stream) {
	b := t.bucket(s.id)
	s.next, *b = *b, s
}

func (t *streams) remove(s *Stream) {
	for link := t.bucket(s.id); *link != nil; link = &(*link).next {
		if *link == s {
			*link = s.next
			s.next = nil
			t.count--
			return
		}
	}
}

// take removes all streams that match and returns them as a chain.
func (t *streams) take(match func(*Stream) bool) (chain *Stream) {
	for i := range t.buckets {
		for link := &t.buckets[i]; *link != nil; {
			s := *link
			if !match(s) {
				link = &s.next
				continue
			}
			*link = s.next
			s.next, chain = chain, s
			t.count--
		}
	}
	return chain
}
