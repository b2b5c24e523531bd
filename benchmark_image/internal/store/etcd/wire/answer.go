package wire

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"containernet-env/benchmark_image/internal/store"
)

// Fields of answers, by their tags: the number and the type.
const (
	varint, blob = uint64(protowire.VarintType), uint64(protowire.BytesType)

	answerHeader  = 1<<3 | blob
	rangeKeys     = 2<<3 | blob
	rangeMore     = 3<<3 | varint
	rangeCount    = 4<<3 | varint
	txnSucceeded  = 2<<3 | varint
	statusLeader  = 4<<3 | varint
	listMembers   = 2<<3 | blob
	authenticated = 2<<3 | blob

	headerMember, headerRevision, headerTerm = 2<<3 | varint, 3<<3 | varint, 4<<3 | varint

	keyKey, keyRevision, keyValue = 1<<3 | blob, 3<<3 | varint, 5<<3 | blob // the revision is that of its last write

	memberID, memberName, memberClientURLs = 1<<3 | varint, 2<<3 | blob, 4<<3 | blob
)

var (
	ErrTruncated = errors.New("the message ends within a field")
	ErrLength    = errors.New("a field is longer than any that is expected")

	errField = errors.New("a field has an invalid number or type")
)

const (
	// maxField bounds a field of an answer, in bytes: a value has at most 1.5 MiB, unless etcd is configured otherwise.
	maxField = 1 << 28
	// maxKept bounds what a reader holds on to between two answers, in bytes.
	maxKept = 64 << 10
)

// Member is one of a cluster's own list of members.
type Member struct {
	ID         uint64
	Name       string
	ClientURLs []string
}

// Reader reads an answer that comes in pieces, field by field. Its zero value is ready for Reset.
type Reader struct {
	Answer  store.Answer
	Visitor store.Visitor // may be nil; stays over Reset
	Members []Member      // of the answer to MemberList
	Token   string        // of the answer to Authenticate

	call  Call
	begun []byte // a field whose rest has not come yet
	skip  int    // bytes to come of a field without a use
}

// Reset starts the answer to a call.
func (r *Reader) Reset(call Call) {
	r.Answer, r.Members, r.Token = store.Answer{}, nil, ""
	r.call, r.begun, r.skip = call, r.begun[:0], 0
	if cap(r.begun) > maxKept {
		r.begun = nil
	}
}

// Feed reads the next piece of the answer. After an error the reader must not be used before Reset.
func (r *Reader) Feed(b []byte) error {
	skipped := min(r.skip, len(b))
	r.skip -= skipped
	b = b[skipped:]
	if len(r.begun) > 0 {
		r.begun = append(r.begun, b...)
		b = r.begun
	}
	for len(b) > 0 {
		field, size, err := consume(b)
		if err == io.ErrUnexpectedEOF {
			if b, err = r.pass(b); err != nil {
				return err
			}
			break
		}
		if err == nil {
			err = r.take(field)
		}
		if err != nil {
			return broken(err)
		}
		b = b[size:]
	}
	r.begun = append(r.begun[:0], b...)
	return nil
}

// End checks that the answer is complete.
func (r *Reader) End() error {
	if len(r.begun) > 0 || r.skip > 0 {
		return ErrTruncated
	}
	return nil
}

// field is one of a message.
type field struct {
	tag     uint64
	value   uint64 // of a varint
	content []byte // of bytes
}

// consume reads the field that b begins with, which must not be empty. io.ErrUnexpectedEOF: b ends within it.
func consume(b []byte) (f field, size int, err error) {
	f.tag, size = protowire.ConsumeVarint(b)
	if size < 0 {
		return f, 0, protowire.ParseError(size)
	}
	n := 0
	switch kind := protowire.Type(f.tag & 7); {
	case f.tag>>3 < 1 || f.tag>>3 > uint64(protowire.MaxValidNumber):
		return f, 0, errField
	case kind == protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(b[size:])
	case kind == protowire.BytesType:
		f.content, n = protowire.ConsumeBytes(b[size:])
	case kind == protowire.Fixed32Type || kind == protowire.Fixed64Type:
		n = protowire.ConsumeFieldValue(protowire.Number(f.tag>>3), kind, b[size:])
	default: // groups, which etcd's messages do not have
		return f, 0, errField
	}
	if n < 0 {
		return f, 0, protowire.ParseError(n)
	}
	return f, size + n, nil
}

// pass reads the beginning of a field and returns the part to keep: nothing of a key without a visitor.
func (r *Reader) pass(b []byte) ([]byte, error) {
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 || tag&7 != blob {
		return b, nil
	}
	length, prefix := protowire.ConsumeVarint(b[n:])
	switch {
	case prefix < 0:
	case length > maxField:
		return nil, ErrLength
	case r.Visitor == nil && r.call == Range && tag == rangeKeys:
		r.Answer.Keys++
		r.skip = n + prefix + int(length) - len(b)
		return nil, nil
	}
	return b, nil
}

func (r *Reader) take(f field) error {
	switch {
	case f.tag == answerHeader && r.call != Authenticate:
		return each(f.content, func(f field) {
			switch f.tag {
			case headerMember:
				r.Answer.Member = f.value
			case headerRevision:
				r.Answer.Revision = int64(f.value)
			case headerTerm:
				r.Answer.Term = f.value
			}
		})
	case r.call == Range && f.tag == rangeKeys:
		return r.takeKey(f.content)
	case r.call == Range && f.tag == rangeCount:
		r.Answer.Count = int64(f.value)
	case r.call == Range && f.tag == rangeMore:
		r.Answer.More = f.value != 0
	case r.call == Txn && f.tag == txnSucceeded:
		r.Answer.Succeeded = f.value != 0
	case r.call == Status && f.tag == statusLeader:
		r.Answer.Leader = f.value
	case r.call == Authenticate && f.tag == authenticated:
		r.Token = string(f.content)
	case r.call == MemberList && f.tag == listMembers:
		return r.takeMember(f.content)
	}
	return nil
}

func (r *Reader) takeKey(content []byte) error {
	r.Answer.Keys++
	if r.Visitor == nil {
		return nil
	}
	var key, value []byte
	var revision int64
	err := each(content, func(f field) {
		switch f.tag {
		case keyKey:
			key = f.content
		case keyValue:
			value = f.content
		case keyRevision:
			revision = int64(f.value)
		}
	})
	if err == nil {
		r.Visitor.Visit(key, value, revision)
	}
	return err
}

func (r *Reader) takeMember(content []byte) error {
	var m Member
	err := each(content, func(f field) {
		switch f.tag {
		case memberID:
			m.ID = f.value
		case memberName:
			m.Name = string(f.content)
		case memberClientURLs:
			m.ClientURLs = append(m.ClientURLs, string(f.content))
		}
	})
	r.Members = append(r.Members, m)
	return err
}

func each(message []byte, visit func(field)) error {
	for len(message) > 0 {
		f, size, err := consume(message)
		if err != nil {
			return broken(err)
		}
		visit(f)
		message = message[size:]
	}
	return nil
}

func broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return fmt.Errorf("the answer cannot be read: %w", err)
}
