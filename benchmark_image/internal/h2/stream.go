package h2

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"containernet-env/benchmark_image/internal/store"
)

// Owner reads the answer to a call, and is notified when the call has ended.
type Owner interface {
	// Feed takes the next piece of the answer, which is valid only during the call; last tells that there is no more.
	// An error ends the call.
	Feed(b []byte, last bool) error
	// Finished is called once for each started stream that is not cancelled: failure is nil when the member
	// answered with OK, and all of the answer was fed. The stream may be started again at once.
	Finished(s *Stream, failure *Failure)
}

// Failure is the outcome of a call that did not succeed.
type Failure struct {
	Code store.Code
	Text string
	// Unknown tells that the member has the complete request, and has not said by HTTP/2 that it was not
	// processed: it may have been carried out.
	Unknown bool
	// Answered tells that Code and Text are the member's own, which may say that it refused the request. Otherwise
	// the client derived them.
	Answered bool
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

// Active tells whether a call is in flight.
func (s *Stream) Active() bool { return s.id != 0 }

// AppendPrefix makes room for the prefix of a message; Start fills it in.
func AppendPrefix(b []byte) []byte { return append(b, 0, 0, 0, 0, 0) }

func (s *Stream) unsent() int { return len(s.head) + len(s.tail) }

// reset prepares a call.
func (s *Stream) reset(c *Conn, id uint32) {
	s.conn, s.id, s.next = c, id, nil
	s.window, s.allWritten = c.peerInitialWindow, false
	s.receiveLeft, s.consumed = int64(c.window), 0
	s.headersSeen, s.prefixLength, s.messageLeft, s.messages = false, 0, 0, 0
}

// receive takes the payload of a DATA frame. It returns why the stream has failed, or nil.
func (s *Stream) receive(b []byte) *Failure {
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

func (s *Stream) beginMessage() *Failure {
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
func (s *Stream) outcome(h *answerHeaders) *Failure {
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

func refusal(h *answerHeaders) *Failure {
	n, err := strconv.ParseUint(h.grpcStatus, 10, 32)
	if err != nil || n > uint64(store.Unauthenticated) {
		return &Failure{Code: store.Unknown, Text: fmt.Sprintf("grpc-status is %.20q", h.grpcStatus), Unknown: true}
	}
	return &Failure{Code: store.Code(n), Text: unescape(h.grpcMessage), Unknown: true, Answered: true}
}

func internal(format string, args ...any) *Failure {
	return &Failure{Code: store.Internal, Text: fmt.Sprintf(format, args...), Unknown: true}
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
