package etcd

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/wire"
)

// Field numbers from etcd's api/etcdserverpb/rpc.proto.
const (
	putKey, putValue = 1, 2

	rangeKey, rangeEnd, rangeLimit, rangeSerializable = 1, 2, 3, 7
	rangeKeysOnly, rangeCountOnly                     = 8, 9

	rangeAnswerKeyValue, rangeAnswerMore, rangeAnswerCount = 2, 3, 4
	txnAnswerSucceeded                                     = 2

	keyValueKey, keyValueValue = 1, 5 // from api/mvccpb/kv.proto
)

// answer is what a load needs of a response: how many keys a range found, and whether it holds what it must.
type answer struct {
	count   int64         // in the span
	keys    int64         // in the answer
	more    bool          // there are keys in the span that the answer does not hold
	request *load.Request // that it answers; nil: nothing is checked
	wrong   error         // what was found first
	done    bool          // of a transaction: its comparison held
}

// codec writes requests and reads answers without building messages: that is the larger part of what a
// request costs beside gRPC itself.
type codec struct{}

// Name is that of the codec in the content type, which stays protobuf's.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2 for *load.Request. The buffer is new for each request: gRPC may
// still hold it when a call has ended at its deadline.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	request, ok := v.(*load.Request)
	if !ok {
		return nil, fmt.Errorf("etcd: cannot send a %T", v)
	}
	room := len(request.Key) + len(request.End) + len(request.Value) + 32
	if request.Kind == load.Txn {
		room *= 2
	}
	buffer := make([]byte, 0, room)
	return mem.BufferSlice{mem.SliceBuffer(appendRequest(buffer, request))}, nil
}

// Unmarshal implements encoding.CodecV2 for *answer.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*answer)
	if !ok {
		return fmt.Errorf("etcd: cannot receive a %T", v)
	}
	if len(data) == 1 {
		return a.read(data[0].ReadOnlyData())
	}
	return a.read(data.Materialize())
}

func appendRequest(b []byte, r *load.Request) []byte {
	switch r.Kind {
	case load.Put:
		return appendBytes(appendBytes(b, putKey, r.Key), putValue, r.Value)
	case load.Txn:
		return append(wire.AppendRewriteHead(b, r.Key, r.Value), r.Value...)
	}
	b = appendBytes(appendBytes(b, rangeKey, r.Key), rangeEnd, r.End)
	b = appendVarint(b, rangeLimit, uint64(r.Limit))
	b = appendVarint(b, rangeSerializable, protowire.EncodeBool(r.Serializable))
	b = appendVarint(b, rangeKeysOnly, protowire.EncodeBool(r.KeysOnly))
	return appendVarint(b, rangeCountOnly, protowire.EncodeBool(r.CountOnly))
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendVarint(b []byte, field protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

// read finds the count of a RangeResponse and checks that the rest is well-formed; a PutResponse has no
// field of that number.
func (a *answer) read(b []byte) error {
	a.count, a.keys, a.more, a.wrong, a.done = 0, 0, false, nil, false
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("etcd: broken answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if field == rangeAnswerCount && kind == protowire.VarintType {
			count, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return fmt.Errorf("etcd: broken answer: %w", protowire.ParseError(n))
			}
			a.count, b = int64(count), b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
			return fmt.Errorf("etcd: broken answer: %w", protowire.ParseError(n))
		}
		if field == txnAnswerSucceeded && kind == protowire.VarintType {
			succeeded, _ := protowire.ConsumeVarint(b)
			a.done = succeeded != 0
		}
		if field == rangeAnswerMore && kind == protowire.VarintType {
			more, _ := protowire.ConsumeVarint(b)
			a.more = more != 0
		}
		if field == rangeAnswerKeyValue && kind == protowire.BytesType {
			a.keys++
			if a.request != nil && a.request.Checked() && a.wrong == nil {
				if err := a.check(b[:n]); err != nil {
					return err
				}
			}
		}
		b = b[n:]
	}
	if a.request != nil && a.wrong == nil {
		a.wrong = a.request.CheckCounts(a.keys, a.count, a.more)
		if a.request.Kind == load.Txn && !a.done {
			a.wrong = load.ErrNotThere
		}
	}
	return nil
}

// check reads one length-delimited KeyValue.
func (a *answer) check(b []byte) error {
	b, _ = protowire.ConsumeBytes(b) // its length was checked
	var key, value []byte
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("etcd: broken key and value: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
			return fmt.Errorf("etcd: broken key and value: %w", protowire.ParseError(n))
		}
		if kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(b)
			switch field {
			case keyValueKey:
				key = content
			case keyValueValue:
				value = content
			}
		}
		b = b[n:]
	}
	a.wrong = a.request.Check(key, value)
	return nil
}
