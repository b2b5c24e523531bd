package client

import (
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
)

// targeter gives what the requests do. promises is what the store acknowledges of their writes.
func targeter(s *spec.Spec, promises *load.Promises) load.Targeter {
	if s.Operation == spec.Range && s.Named() {
		return named(s)
	}
	puts := &load.Puts{
		Prefix:   s.Prefix,
		KeySize:  s.KeySize,
		Order:    order(s),
		Values:   keys.NewValues(s.ValSize, s.Seed),
		Txn:      s.Operation == spec.Txn,
		Unique:   s.Unique(),
		Promises: promises,
	}
	if !s.Operation.Reads() {
		return puts
	}
	reads := reads(s)
	reads.Order, reads.SpanKeys, reads.Space = puts.Order, s.SpanKeys, s.DistinctKeys()
	if s.Verify {
		reads.Verify = puts.Values
	}
	if s.Operation == spec.Range {
		return reads
	}
	reads.Promises = promises
	return &load.Mixed{Puts: puts, Reads: reads, Ratio: s.PutRatio, Draw: keys.NewDraw(s.DrawSeed(), keys.StreamKinds).At}
}

func order(s *spec.Spec) keys.Order {
	switch s.Order() {
	case spec.Uniform:
		return keys.NewUniform(s.DistinctKeys(), s.DrawSeed())
	case spec.Zipfian:
		return keys.NewZipfian(s.DistinctKeys(), s.ZipfExponent, s.DrawSeed())
	}
	return keys.NewOrder(s.DistinctKeys(), s.Order() == spec.Sequential, s.DrawSeed())
}

func named(s *spec.Spec) *load.Reads {
	r := reads(s)
	r.Span.Key, r.Span.End = s.Span()
	if s.Verify {
		r.Verify = keys.NewValues(s.ValSize, s.Seed)
		r.First, r.Last = s.Known()
	}
	return r
}

// reads gives what all reads have in common.
func reads(s *spec.Spec) *load.Reads {
	return &load.Reads{
		Span: store.Request{
			Limit:        s.Limit,
			Serializable: s.Consistency != spec.Linearizable,
			CountOnly:    s.CountOnly,
			KeysOnly:     s.KeysOnly,
		},
		Prefix:   s.Prefix,
		KeySize:  s.KeySize,
		Complete: requireFound(s),
	}
}

// requireFound tells whether an answer without a key is a failure. Verified reads need keys that were written before.
func requireFound(s *spec.Spec) bool { return s.RequireFound || s.Verify && s.Operation == spec.Range }

// rehearsal gives samples of what the load does: its first and its last key, each way. Permissions are for spans of
// keys.
func rehearsal(s *spec.Spec) (samples []store.Request) {
	serializable := s.Consistency != spec.Linearizable
	if s.Operation == spec.Range && s.Named() {
		key, end := s.Span()
		return []store.Request{{Operation: store.Scan, Key: key, End: end, Serializable: serializable}}
	}
	first := keys.Append([]byte(s.Prefix), 0, s.KeySize)
	last := keys.Append([]byte(s.Prefix), uint64(s.DistinctKeys()-1), s.KeySize)
	write, read := store.Put, store.Get
	if s.Operation == spec.Txn {
		write = store.Transaction
	}
	for _, key := range [][]byte{first, last} {
		if !s.Operation.Reads() || s.Operation == spec.Mixed && s.PutRatio > 0 {
			samples = append(samples, store.Request{Operation: write, Key: key})
		}
		if s.Operation.Reads() && s.SpanKeys <= 1 && (s.Operation != spec.Mixed || s.PutRatio < 1) {
			samples = append(samples, store.Request{Operation: read, Key: key, Serializable: serializable})
		}
	}
	if s.Operation.Reads() && s.SpanKeys > 1 {
		samples = append(samples, store.Request{Operation: store.Scan, Key: first, End: last, Serializable: serializable})
	}
	return samples
}
