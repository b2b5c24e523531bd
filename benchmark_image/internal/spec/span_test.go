package spec

import (
	"testing"
)

func TestPrefixSpan(t *testing.T) {
	for prefix, want := range map[string][2]string{
		"a": {"a", "b"}, "ab\xff": {"ab\xff", "ac"}, "\xff\xff": {"\xff\xff", "\x00"}, "": {"\x00", "\x00"},
	} {
		if key, end := prefixSpan(prefix); string(key) != want[0] || string(end) != want[1] {
			t.Errorf("prefix %q: %q to %q", prefix, key, end)
		}
	}
}

// TestKnownSpans has reads of what was written under the keys p/00 to p/4z, but for the last three.
func TestKnownSpans(t *testing.T) {
	const space = 5*62 - 3
	for _, c := range []struct {
		change      func(*Spec)
		first, last uint64
		refused     string // the field
	}{
		{func(s *Spec) { s.Key = "p/00" }, 0, 1, ""},
		{func(s *Spec) { s.Key = "p/4w" }, 306, 307, ""},
		{func(s *Spec) { s.Key = "p/4x" }, 0, 0, "key"},
		{func(s *Spec) { s.Key = "p/000" }, 0, 0, "key"},
		{func(s *Spec) { s.Key = "p/0" }, 0, 0, "key"},
		{func(s *Spec) { s.Key = "p/0-" }, 0, 0, "key"},
		{func(s *Spec) { s.Key = "q/00" }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/", true }, 0, space, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/0", true }, 0, 62, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/4", true }, 4 * 62, space, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/5", true }, 0, 0, "key"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/00", true }, 0, 1, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/000", true }, 0, 0, "key"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p", true }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "", true }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.End = "p/00", "p/10" }, 0, 62, ""},
		{func(s *Spec) { s.Key, s.End = "p/00", "p/00!" }, 0, 1, ""},
		{func(s *Spec) { s.Key, s.End = "p/00!", "p/01" }, 0, 0, "key"},
		{func(s *Spec) { s.Key, s.End = "p/00!", "p0" }, 1, space, ""},
		{func(s *Spec) { s.Key, s.End = "p/00", "p00" }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.End = "o", "p/10" }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.End = "p/01", AllKeys }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.End, s.Prefix = "0p", AllKeys, "" }, 51, space, ""},
		{func(s *Spec) { s.Key, s.End, s.Prefix = "z", AllKeys, "" }, 0, 0, "key"},
		{func(s *Spec) { s.KeyIsPrefix, s.Prefix = true, "" }, 0, space, ""},
		{func(s *Spec) { s.Key, s.KeySpace = "p/00", 0 }, 0, 0, "keySpace"},
		{func(s *Spec) { s.Key, s.KeySpace = "p/00", 3845 }, 0, 0, "keySize"},
		{func(s *Spec) { s.Key, s.Verify = "p/00", false }, 0, 0, "keySize"},
		{func(s *Spec) { s.Key, s.KeySize = "p/00", 0 }, 0, 0, "keyPrefix"},
		{func(s *Spec) { s.Key, s.KeySize, s.Prefix = "p/00", 0, "" }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.KeyOrder = "p/00", Shuffled }, 0, 0, "keyOrder"},
		{func(s *Spec) { s.Key, s.SpanKeys = "p/00", 2 }, 0, 0, "spanKeys"},
	} {
		s := Default(Range)
		s.Verify, s.KeySize, s.KeySpace, s.Prefix = true, 2, space, "p/"
		c.change(&s)
		got := ""
		if problem := s.Validate(); problem != nil {
			got = problem.Field
		}
		if got != c.refused {
			t.Errorf("%q..%q: the problem is with %q, want %q", s.Key, s.End, got, c.refused)
		}
		if first, last := s.Known(); got == "" && (first != c.first || last != c.last) {
			t.Errorf("%q..%q holds keys %d to %d, want %d to %d", s.Key, s.End, first, last, c.first, c.last)
		}
	}
}
