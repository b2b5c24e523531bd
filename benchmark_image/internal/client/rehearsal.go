package client

import (
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
)

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
