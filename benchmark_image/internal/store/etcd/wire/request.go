// Package wire writes the few requests of etcd's API that a load consists of, and reads from the answers
// what a load has to know, without building messages.
package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"containernet-env/benchmark_image/internal/store"
)

// Field numbers are those of etcd's api/etcdserverpb/rpc.proto.
const (
	putKey, putValue = 1, 2

	rangeKey, rangeEnd, rangeLimit, rangeSerializable = 1, 2, 3, 7
	rangeKeysOnly, rangeCountOnly                     = 8, 9

	txnCompare, txnSuccess = 1, 2
	requestPut             = 2

	compareTarget, compareKey, compareValue = 2, 3, 7
	targetValue                             = 3 // in CompareTarget; the result EQUAL is the zero value
)

// AppendPutHead appends the encoding of a PutRequest up to where its value begins: the value's bytes must
// follow. That lets a large value be sent from where it is.
func AppendPutHead(b, key, value []byte) []byte {
	b = appendBytes(b, putKey, key)
	if len(value) == 0 {
		return b
	}
	b = protowire.AppendTag(b, putValue, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(len(value)))
}

// AppendRange appends the encoding of a RangeRequest for a Get or a Scan.
func AppendRange(b []byte, s *store.Request) []byte {
	b = appendBytes(appendBytes(b, rangeKey, s.Key), rangeEnd, s.End)
	b = appendVarint(b, rangeLimit, uint64(s.Limit))
	b = appendVarint(b, rangeSerializable, protowire.EncodeBool(s.Serializable))
	b = appendVarint(b, rangeKeysOnly, protowire.EncodeBool(s.KeysOnly))
	return appendVarint(b, rangeCountOnly, protowire.EncodeBool(s.CountOnly))
}

// AppendRewriteHead appends the encoding of a TxnRequest that writes a key if it holds that value already, up to where the
// value of the put begins: the value's bytes must follow.
func AppendRewriteHead(b, key, value []byte) []byte {
	compare := protowire.SizeTag(compareTarget) + protowire.SizeVarint(targetValue) + sizeBytes(compareKey, key) +
		protowire.SizeTag(compareValue) + protowire.SizeBytes(len(value))
	b = protowire.AppendTag(b, txnCompare, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(compare))
	b = appendVarint(b, compareTarget, targetValue)
	b = appendBytes(b, compareKey, key)
	// A member of a oneof is there even when it is empty.
	b = protowire.AppendBytes(protowire.AppendTag(b, compareValue, protowire.BytesType), value)

	put := sizeBytes(putKey, key) + sizeBytes(putValue, value)
	b = protowire.AppendTag(b, txnSuccess, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(requestPut)+protowire.SizeBytes(put)))
	b = protowire.AppendTag(b, requestPut, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(put))
	return AppendPutHead(b, key, value)
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func sizeBytes(field protowire.Number, value []byte) int {
	if len(value) == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(len(value))
}

func appendVarint(b []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}
