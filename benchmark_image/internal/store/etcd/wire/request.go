// Package wire writes the few requests of etcd's API that a load consists of, and reads from the answers
// what a load has to know, without building messages.
package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"containernet-env/benchmark_image/internal/store"
)

// Call is a call of etcd's API, whose request and answer belong together.
type Call uint8

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

// Field numbers are those of etcd's api/etcdserverpb/rpc.proto.
const (
	userName, userPassword = 1, 2

	putKey, putValue = 1, 2

	rangeKey, rangeEnd, rangeLimit, rangeSerializable = 1, 2, 3, 7
	rangeKeysOnly, rangeCountOnly                     = 8, 9

	txnCompare, txnSuccess, txnFailure = 1, 2, 3
	requestRange, requestPut           = 1, 2

	compareResult, compareTarget, compareKey, compareRevision = 1, 2, 3, 6
	resultGreater, targetRevision                             = 1, 2 // in CompareResult and CompareTarget
)

// AppendPutHead appends the encoding of a PutRequest up to where the last rest bytes of its value begin, which must
// follow; head is what comes before them. That lets a large value be sent from where it is.
func AppendPutHead(b, key, head []byte, rest int) []byte {
	b = appendBytes(b, putKey, key)
	size := len(head) + rest
	if size == 0 {
		return b
	}
	b = protowire.AppendTag(b, putValue, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(size)), head...)
}

// AppendRange appends the encoding of a RangeRequest for a Get or a Scan.
func AppendRange(b []byte, s *store.Request) []byte {
	b = appendBytes(appendBytes(b, rangeKey, s.Key), rangeEnd, s.End)
	b = appendVarint(b, rangeLimit, uint64(s.Limit))
	b = appendVarint(b, rangeSerializable, protowire.EncodeBool(s.Serializable))
	b = appendVarint(b, rangeKeysOnly, protowire.EncodeBool(s.KeysOnly))
	return appendVarint(b, rangeCountOnly, protowire.EncodeBool(s.CountOnly))
}

// AppendRewriteHead appends the encoding of a TxnRequest that writes a key if it exists: if the revision of its last
// write is above 0. As in AppendPutHead, the last rest bytes of the value must follow.
func AppendRewriteHead(b, key, head []byte, rest int) []byte {
	compare := protowire.SizeTag(compareResult) + protowire.SizeVarint(resultGreater) +
		protowire.SizeTag(compareTarget) + protowire.SizeVarint(targetRevision) + sizeBytes(compareKey, len(key)) +
		protowire.SizeTag(compareRevision) + protowire.SizeVarint(0)
	b = protowire.AppendTag(b, txnCompare, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(compare))
	b = appendVarint(b, compareResult, resultGreater)
	b = appendVarint(b, compareTarget, targetRevision)
	b = appendBytes(b, compareKey, key)
	// A member of a oneof is there even when it is zero.
	b = protowire.AppendVarint(protowire.AppendTag(b, compareRevision, protowire.VarintType), 0)

	put := sizeBytes(putKey, len(key)) + sizeBytes(putValue, len(head)+rest)
	b = protowire.AppendTag(b, txnSuccess, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(requestPut)+protowire.SizeBytes(put)))
	b = protowire.AppendTag(b, requestPut, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(put))
	return AppendPutHead(b, key, head, rest)
}

// AppendRehearsal appends the encoding of a TxnRequest that carries nothing out: it compares nothing, which succeeds,
// and what it would do otherwise is what s does. A member judges the permissions for both (etcd's CheckTxnAuth in
// server/etcdserver/txn/txn.go).
func AppendRehearsal(b []byte, s *store.Request) []byte {
	if s.Operation != store.Put {
		b = appendOperation(b, requestRange, AppendRange(nil, &store.Request{Key: s.Key, End: s.End,
			Serializable: s.Serializable}))
	}
	if s.Operation == store.Put || s.Operation == store.Transaction {
		b = appendOperation(b, requestPut, AppendPutHead(nil, s.Key, nil, 0))
	}
	return b
}

// AppendAuthenticate appends the encoding of an AuthenticateRequest.
func AppendAuthenticate(b []byte, name, password string) []byte {
	return appendBytes(appendBytes(b, userName, []byte(name)), userPassword, []byte(password))
}

func appendOperation(b []byte, kind protowire.Number, request []byte) []byte {
	return appendBytes(b, txnFailure, appendBytes(nil, kind, request))
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func sizeBytes(field protowire.Number, size int) int {
	if size == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(size)
}

func appendVarint(b []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}
