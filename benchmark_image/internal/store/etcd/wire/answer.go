package wire

import (
	"errors"

	"containernet-env/benchmark_image/internal/store"
)

// Call tells which answer belongs to which request.
type Call uint8

// The calls of etcd's API that are known here.
const (
	Put Call = iota
	Range
	Txn
	Status
	MemberList
	Authenticate
	calls // how many there are
)

// Methods are the paths of the calls in gRPC, by Call.
var Methods = [calls]string{
	Put:          "/etcdserverpb.KV/Put",
	Range:        "/etcdserverpb.KV/Range",
	Txn:          "/etcdserverpb.KV/Txn",
	Status:       "/etcdserverpb.Maintenance/Status",
	MemberList:   "/etcdserverpb.Cluster/MemberList",
	Authenticate: "/etcdserverpb.Auth/Authenticate",
}

// Problems with an encoding.
var (
	ErrTruncated = errors.New("the message ends within a field")
	ErrVarint    = errors.New("a number has more than 64 bits")
	ErrField     = errors.New("a field has an invalid number or type")
	ErrLength    = errors.New("a field is longer than its message")
)

// Types of fields in protobuf's encoding.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

// expect is what the next byte of a message is part of.
type expect uint8

const (
	expectTag expect = iota
	expectVarint
	expectLength
	expectBytes // that are skipped
	expectKept  // bytes that are kept
)

// level is which message a field belongs to.
type level uint8

const (
	levelAnswer level = iota
	levelHeader
	levelKey // a key with its value
)

const (
	answerHeader   = 1
	answerKeys     = 2 // of a RangeResponse
	answerMore     = 3 // of a RangeResponse
	answerCount    = 4 // of a RangeResponse
	answerSuccess  = 2 // of a TxnResponse
	answerLeader   = 4 // of a StatusResponse
	headerMember   = 2
	headerRevision = 3
	headerTerm     = 4
	keyKey         = 1
	keyRevision    = 3 // of its last write
	keyValue       = 5
)

// maxField is the largest number that a field may have.
const maxField = 1<<29 - 1

// maxVarint is the longest encoding of a number, in bytes.
const maxVarint = 10

// Reader reads an answer that comes in pieces, and keeps no more of it than a store.Answer. Its zero value is
// ready for Reset.
type Reader struct {
	Answer  store.Answer
	Visitor store.Visitor // may be nil; stays over Reset

	call   Call
	expect expect
	level  level
	shift  uint8 // the bits so far of the number that is being read
	field  uint32
	number uint64
	left   int    // bytes of expectBytes and expectKept
	within int    // bytes left of a message inside the answer; 0 on the level of the answer
	key    []byte // for the visitor, as are the next two
	value  []byte
	mod    int64 // the revision of its last write
}

// Reset starts the answer to a call.
func (r *Reader) Reset(call Call) {
	// Field by field: a whole Reader would be made elsewhere and copied, while its parts are still being written.
	r.Answer = store.Answer{}
	r.call, r.expect, r.level, r.shift = call, expectTag, levelAnswer, 0
	r.field, r.number, r.left, r.within = 0, 0, 0, 0
	if cap(r.value) > maxKept {
		r.value = nil
	}
	if call.whole() {
		r.value = r.value[:0]
	}
}

// maxKept bounds what a reader holds on to between two answers, in bytes.
const maxKept = 64 << 10

// Feed reads the next piece of the answer. After an error the reader must not be used before Reset.
func (r *Reader) Feed(b []byte) error {
	if r.call.whole() {
		return r.keepWhole(b)
	}
	for len(b) > 0 {
		if r.expect >= expectBytes {
			n := min(r.left, len(b))
			if r.expect == expectKept {
				kept := r.kept()
				*kept = append(*kept, b[:n]...)
			}
			b = b[n:]
			r.left -= n
			r.consumed(n)
			if r.left == 0 {
				r.expect = expectTag
				r.closeMessage()
			}
			continue
		}
		complete, used, err := r.varint(b)
		if err != nil {
			return err
		}
		b = b[used:]
		if r.level != levelAnswer {
			if used > r.within {
				return ErrLength
			}
			r.within -= used
		}
		if !complete {
			if r.level != levelAnswer && r.within == 0 {
				return ErrLength
			}
			return nil
		}
		number := r.number
		r.number, r.shift = 0, 0
		if err := r.next(number); err != nil {
			return err
		}
		if r.within == 0 && r.level != levelAnswer {
			r.closeMessage()
		}
	}
	return nil
}

// varint goes on with a number; complete is false when b ends first.
func (r *Reader) varint(b []byte) (complete bool, used int, err error) {
	if r.shift == 0 && b[0] < 0x80 {
		r.number = uint64(b[0])
		return true, 1, nil
	}
	for i, c := range b {
		if r.shift == 7*(maxVarint-1) && c > 1 {
			return false, 0, ErrVarint
		}
		r.number |= uint64(c&0x7f) << r.shift
		r.shift += 7
		if c < 0x80 {
			return true, i + 1, nil
		}
	}
	return false, len(b), nil
}

// next takes a number that is complete.
func (r *Reader) next(number uint64) error {
	switch r.expect {
	case expectTag:
		return r.tag(number)
	case expectVarint:
		r.expect = expectTag
		r.keep(number)
		return nil
	default:
		return r.length(number)
	}
}

func (r *Reader) tag(tag uint64) error {
	field := tag >> 3
	if field < 1 || field > maxField {
		return ErrField
	}
	r.field = uint32(field)
	switch tag & 7 {
	case typeVarint:
		r.expect = expectVarint
	case typeBytes:
		r.expect = expectLength
	case typeFixed64:
		return r.skip(8)
	case typeFixed32:
		return r.skip(4)
	default: // groups, which etcd's messages do not have
		return ErrField
	}
	return nil
}

func (r *Reader) keep(number uint64) {
	switch {
	case r.level == levelHeader && r.field == headerMember:
		r.Answer.Member = number
	case r.level == levelHeader && r.field == headerRevision:
		r.Answer.Revision = int64(number)
	case r.level == levelHeader && r.field == headerTerm:
		r.Answer.Term = number
	case r.level == levelKey && r.field == keyRevision:
		r.mod = int64(number)
	case r.level != levelAnswer:
	case r.call == Range && r.field == answerCount:
		r.Answer.Count = int64(number)
	case r.call == Range && r.field == answerMore:
		r.Answer.More = number != 0
	case r.call == Txn && r.field == answerSuccess:
		r.Answer.Succeeded = number != 0
	case r.call == Status && r.field == answerLeader:
		r.Answer.Leader = number
	}
}

func (r *Reader) length(length uint64) error {
	const longest = 1<<31 - 1
	if length > longest {
		return ErrLength
	}
	n := int(length)
	switch {
	case r.level == levelKey && (r.field == keyKey || r.field == keyValue) && r.Visitor != nil:
		kept := r.kept()
		*kept = (*kept)[:0]
		if err := r.skip(n); err != nil || n == 0 {
			return err
		}
		r.expect = expectKept
		return nil
	case r.level == levelAnswer && r.field == answerHeader:
		return r.open(levelHeader, n)
	case r.level == levelAnswer && r.field == answerKeys && r.call == Range:
		r.Answer.Keys++
		r.key, r.value, r.mod = r.key[:0], r.value[:0], 0
		return r.open(levelKey, n)
	}
	return r.skip(n)
}

// open enters a message inside the answer.
func (r *Reader) open(l level, length int) error {
	r.expect, r.level, r.within = expectTag, l, length
	return nil
}

// skip passes over bytes.
func (r *Reader) skip(n int) error {
	if r.level != levelAnswer && n > r.within {
		return ErrLength
	}
	r.expect, r.left = expectBytes, n
	if n == 0 {
		r.expect = expectTag
	}
	return nil
}

func (r *Reader) consumed(n int) {
	if r.level != levelAnswer {
		r.within -= n
	}
}

// closeMessage leaves a message inside the answer at its end.
func (r *Reader) closeMessage() {
	if r.level != levelAnswer && r.within == 0 && r.expect == expectTag {
		if r.level == levelKey && r.Visitor != nil {
			r.Visitor.Visit(r.key, r.value, r.mod)
		}
		r.level = levelAnswer
	}
}

// kept is where the bytes of the field go.
func (r *Reader) kept() *[]byte {
	if r.field == keyKey {
		return &r.key
	}
	return &r.value
}

// End checks that the answer is complete.
func (r *Reader) End() error {
	if r.expect != expectTag || r.level != levelAnswer || r.shift != 0 {
		return ErrTruncated
	}
	return nil
}
