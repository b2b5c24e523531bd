package jute

import (
	"encoding/binary"
	"errors"
	"fmt"

	"containernet-env/benchmark_image/internal/store"
)

// ErrFormat is a packet that does not hold what it must.
var ErrFormat = errors.New("an answer does not have the form that its request asks for")

// Header is in front of every answer but that to the opening of a session.
type Header struct {
	Xid  int32
	Zxid int64 // of the last change that the member had made when it answered; of a write: its own
	Code Code
}

// Sizes of what answers consist of, in bytes.
const (
	HeaderSize = 4 + 8 + 4
	StatSize   = 6*8 + 5*4
	LengthSize = 4 // of a text, a buffer or a packet

	mzxidAt   = 8 // in a stat
	lengthAt  = 52
	passwords = 64 // the longest that a member may give a session
)

// ReadHeader reads the header of an answer, and gives what follows it.
func ReadHeader(b []byte) (h Header, body []byte, err error) {
	if len(b) < HeaderSize {
		return h, nil, ErrFormat
	}
	h.Xid = int32(binary.BigEndian.Uint32(b))
	h.Zxid = int64(binary.BigEndian.Uint64(b[4:]))
	h.Code = Code(binary.BigEndian.Uint32(b[12:]))
	return h, b[HeaderSize:], nil
}

// ReadConnect reads the answer to the opening of a session, and gives the timeout of the session in ms. It is 0 if the
// member refuses the session.
func ReadConnect(b []byte) (timeout int32, err error) {
	const password = 4 + 4 + 8
	if len(b) < password+LengthSize {
		return 0, ErrFormat
	}
	version, timeout := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
	left := len(b) - password - LengthSize
	length := int(int32(binary.BigEndian.Uint32(b[password:])))
	// Members since 3.4 add whether they are read-only.
	if version != 0 || length < 0 || length > passwords || left != length && left != length+1 {
		return 0, ErrFormat
	}
	return max(timeout, 0), nil
}

// ReadData reads the body of an answer to GetData: the data and the zxid of the last change of the znode. hole is how
// many bytes of the data, from its first on, were left out of b.
func ReadData(b []byte, hole int) (data []byte, mzxid int64, err error) {
	if len(b) < LengthSize+StatSize {
		return nil, 0, ErrFormat
	}
	length := int(int32(binary.BigEndian.Uint32(b)))
	if length == -1 { // null: a znode that was made without data
		length = 0
	}
	stat := b[len(b)-StatSize:]
	if length < 0 || length-hole != len(b)-LengthSize-StatSize ||
		length != int(int32(binary.BigEndian.Uint32(stat[lengthAt:]))) {
		return nil, 0, ErrFormat
	}
	return b[LengthSize : LengthSize+length-hole], int64(binary.BigEndian.Uint64(stat[mzxidAt:])), nil
}

// CheckWritten checks the body of an answer to Create, SetData or Sync.
func CheckWritten(b []byte, operation Operation) error {
	if operation == SetData {
		if len(b) != StatSize {
			return ErrFormat
		}
		return nil
	}
	if len(b) < LengthSize || len(b)-LengthSize != int(int32(binary.BigEndian.Uint32(b))) { // the path again
		return ErrFormat
	}
	return nil
}

// ReadMulti reads the body of an answer to SetIfExists: OK, or why nothing was carried out.
func ReadMulti(b []byte) (Code, error) {
	const header = 4 + 1 + 4
	var found Code
	for parts := 0; ; parts++ {
		if len(b) < header {
			return 0, ErrFormat
		}
		operation, done := Operation(binary.BigEndian.Uint32(b)), b[4]
		b = b[header:]
		size := 0
		switch {
		case done > 1 || parts > 2:
			return 0, ErrFormat
		case done == 1:
			if len(b) > 0 || parts != 2 {
				return 0, ErrFormat
			}
			return found, nil
		case operation == -1:
			size = 4
		case operation == SetData && parts == 1:
			size = StatSize
		case operation == check && parts == 0:
		default:
			return 0, ErrFormat
		}
		if len(b) < size {
			return 0, ErrFormat
		}
		if operation == -1 {
			// Each part has an error then. One that is not the reason has OK or 'runtime inconsistency'.
			code := Code(binary.BigEndian.Uint32(b))
			if found == OK || found == RuntimeInconsistency {
				found = code
			}
		}
		b = b[size:]
	}
}

// Code is the error of an answer, as in KeeperException.java.
type Code int32

// The codes that change what the connection does.
const (
	OK                   Code = 0
	RuntimeInconsistency Code = -2
	NoNode               Code = -101
	NodeExists           Code = -110
	SessionExpired       Code = -112
	AuthFailed           Code = -115
	SessionMoved         Code = -118
)

// meanings has the name of each code, what it is to a store, and whether a member that answers a request with it says
// that it did not carry it out: the errors below -100 are verdicts on the request, the others are of the member itself,
// at whatever stage.
var meanings = map[Code]struct {
	name         string
	code         store.Code
	didNotHappen bool
}{
	-1:                   {"system error", store.Internal, false},
	RuntimeInconsistency: {"runtime inconsistency", store.Internal, false},
	-3:                   {"data inconsistency", store.DataLoss, false},
	-4:                   {"connection loss", store.Unavailable, false},
	-6:                   {"unimplemented", store.Unimplemented, true},
	-7:                   {"operation timeout", store.DeadlineExceeded, false},
	-8:                   {"bad arguments", store.InvalidArgument, true},
	NoNode:               {"no node", store.NotFound, true},
	-102:                 {"not authorized", store.PermissionDenied, true},
	-103:                 {"bad version", store.Aborted, true},
	NodeExists:           {"node exists", store.AlreadyExists, true},
	SessionExpired:       {"session expired", store.Unavailable, true},
	-114:                 {"invalid ACL", store.InvalidArgument, true},
	AuthFailed:           {"authentication failed", store.Unauthenticated, true},
	SessionMoved:         {"session moved", store.Unavailable, true},
	-119:                 {"the member is read-only", store.Unavailable, true},
	-122:                 {"request timeout", store.DeadlineExceeded, false},
	-125:                 {"quota exceeded", store.ResourceExhausted, true},
	-127:                 {"throttled", store.ResourceExhausted, true},
}

func (c Code) String() string {
	if known, ok := meanings[c]; ok {
		return known.name
	}
	return fmt.Sprintf("error %d", int32(c))
}

// Failure is a request that was answered with the error.
func (c Code) Failure() *store.Failure {
	f := &store.Failure{Code: store.Unknown, Text: fmt.Sprintf("ZooKeeper: %v", c), Unknown: c >= -100}
	if known, ok := meanings[c]; ok {
		f.Code, f.Unknown = known.code, !known.didNotHappen
	}
	return f
}

// EndsSession tells whether nothing more can be had on the session.
func (c Code) EndsSession() bool { return c == SessionExpired || c == SessionMoved || c == AuthFailed }
