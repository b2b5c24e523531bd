package client

import (
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/spec"
)

func targeter(s *spec.Spec) load.Targeter {
	if s.Operation == spec.Range && s.KeySize == 0 {
		return reads(s)
	}
	puts := &load.Puts{
		Prefix:  s.Prefix,
		KeySize: s.KeySize,
		Order:   order(s),
		Values:  keys.NewValues(s.ValSize, s.Seed),
		Txn:     s.Operation == spec.Txn,
	}
	if !s.Operation.Reads() {
		return puts
	}
	reads := reads(s)
	reads.Prefix, reads.KeySize, reads.Order = puts.Prefix, puts.KeySize, puts.Order
	if s.Verify {
		reads.Verify = puts.Values
	}
	if s.Operation == spec.Range {
		return reads
	}
	return &load.Mixed{Puts: puts, Reads: reads, Ratio: s.PutRatio, Draw: keys.NewDraw(s.Seed, keys.StreamKinds).At}
}

func order(s *spec.Spec) keys.Order {
	switch s.Order() {
	case spec.Uniform:
		return keys.NewUniform(s.DistinctKeys(), s.Seed)
	case spec.Zipfian:
		return keys.NewZipfian(s.DistinctKeys(), s.ZipfExponent, s.Seed)
	}
	return keys.NewOrder(s.DistinctKeys(), s.Order() == spec.Sequential, s.Seed)
}

// reads makes those of a named key or span; generated keys take the place of the name.
func reads(s *spec.Spec) *load.Reads {
	r := &load.Reads{Span: load.Request{
		Key:          []byte(s.Key),
		End:          []byte(s.End),
		Limit:        s.Limit,
		Serializable: s.Consistency == spec.Serializable,
		CountOnly:    s.CountOnly,
		KeysOnly:     s.KeysOnly,
	}}
	switch {
	case s.KeyIsPrefix:
		r.Span.Key, r.Span.End = prefixSpan(s.Key)
	case s.FromKey:
		r.Span.End = toTheLastKey
	}
	return r
}

// toTheLastKey is the end of a span that etcd's API (rpc.proto, RangeRequest.range_end) reads as 'all keys
// from the first one on'.
var toTheLastKey = []byte{0}

// prefixSpan gives the span that holds the keys with a prefix: its end is the prefix with the last byte
// that can be raised raised by one.
func prefixSpan(prefix string) (key, end []byte) {
	end = []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return []byte(prefix), end[:i+1]
		}
	}
	if prefix == "" {
		return []byte{0}, toTheLastKey
	}
	return []byte(prefix), toTheLastKey
}
