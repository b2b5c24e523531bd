package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers are those of etcd's api/etcdserverpb/rpc.proto.
const (
	listMembers = 2 // of a MemberListResponse

	memberID, memberName, memberClientURLs = 1, 2, 4
)

// Member is one of a cluster's own list of members.
type Member struct {
	ID         uint64
	Name       string
	ClientURLs []string
}

// maxMemberList bounds the answer to MemberList, in bytes: a hundred members with long names and many addresses.
const maxMemberList = 1 << 20

// whole tells whether the answer is kept as it is.
func (c Call) whole() bool { return c == MemberList || c == Authenticate }

// keepWhole collects an answer that is small and rare as it is.
func (r *Reader) keepWhole(b []byte) error {
	if len(r.value)+len(b) > maxMemberList {
		return ErrLength
	}
	r.value = append(r.value, b...)
	return nil
}

// Members reads the answer to MemberList, which must be complete.
func (r *Reader) Members() ([]Member, error) {
	var list []Member
	err := eachField(r.value, func(field protowire.Number, _ uint64, content []byte) error {
		if field != listMembers || content == nil {
			return nil
		}
		var m Member
		err := eachField(content, func(field protowire.Number, number uint64, content []byte) error {
			switch {
			case field == memberID:
				m.ID = number
			case field == memberName:
				m.Name = string(content)
			case field == memberClientURLs && content != nil:
				m.ClientURLs = append(m.ClientURLs, string(content))
			}
			return nil
		})
		list = append(list, m)
		return err
	})
	return list, err
}

// eachField calls visit for each field of a message: number is set for a varint, content (never nil) for bytes.
func eachField(b []byte, visit func(field protowire.Number, number uint64, content []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("the answer cannot be read: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var number uint64
		var content []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("the answer cannot be read: %w", protowire.ParseError(n))
		}
		if err := visit(field, number, content); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
