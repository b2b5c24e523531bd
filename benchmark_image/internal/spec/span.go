package spec

import (
	"bytes"
	"strings"

	"containernet-env/benchmark_image/internal/keys"
)

// Named tells whether a range names the key or the span that it reads, in each request the same.
func (s *Spec) Named() bool { return s.Key != "" || s.End != "" || s.KeyIsPrefix }

// Span gives the key of a named range and the end of its span, in the form of etcd's API: empty for a single key.
func (s *Spec) Span() (key, end []byte) {
	if s.KeyIsPrefix {
		return prefixSpan(s.Key)
	}
	return []byte(s.Key), []byte(s.End)
}

// Known gives the numbers of the first generated key within a named span, and of the one after the last; equal if there
// is none.
func (s *Spec) Known() (first, last uint64) {
	key, end := s.Span()
	before := func(bound []byte) uint64 { return keys.Before(bound, s.Prefix, s.KeySize, s.KeySpace) }
	switch {
	case len(end) == 0:
		if n, ok := keys.Number(key, s.Prefix, s.KeySize); ok && n < uint64(s.KeySpace) {
			return n, n + 1
		}
		return 0, 0
	case string(end) == AllKeys:
		return before(key), uint64(s.KeySpace)
	}
	return before(key), before(end)
}

// withinPrefix tells whether all keys that a named range may find start with the prefix of the generated ones.
func (s *Spec) withinPrefix() bool {
	if s.Prefix == "" {
		return true
	}
	_, end := s.Span()
	_, most := prefixSpan(s.Prefix)
	if !strings.HasPrefix(s.Key, s.Prefix) || string(end) == AllKeys {
		return false
	}
	return bytes.Compare(end, most) <= 0
}

// prefixSpan gives the span that holds the keys with a prefix: its end is the prefix up to its last
// byte that is below 0xff, with that byte incremented.
func prefixSpan(prefix string) (key, end []byte) {
	end = []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return []byte(prefix), end[:i+1]
		}
	}
	if prefix == "" {
		return []byte{0}, []byte(AllKeys)
	}
	return []byte(prefix), []byte(AllKeys)
}
