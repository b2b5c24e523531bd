package spec

import (
	"fmt"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/keys"
)

// Problem is one value that cannot be used. Field is the name in the HTTP interface; the command line
// calls the same thing Flag.
type Problem struct {
	Field   string
	Flag    string
	Got     any
	Allowed string
}

// Error names the field as the HTTP interface does.
func (p *Problem) Error() string { return p.text(p.Field) }

// FlagError names the field as the command line does.
func (p *Problem) FlagError() string { return p.text(p.Flag) }

func (p *Problem) text(name string) string {
	return fmt.Sprintf("%s: got %v, allowed: %s", name, quoted(p.Got), p.Allowed)
}

func quoted(v any) string {
	if text, ok := v.(string); ok {
		return fmt.Sprintf("%.200q", text)
	}
	return fmt.Sprint(v)
}

// Validate returns the first problem of s, nil if there is none.
func (s *Spec) Validate() *Problem {
	if err := checkEndpoints(s.Endpoints); err != nil {
		return &Problem{"endpoints", "--endpoints", JoinEndpoints(s.Endpoints), "a comma-separated list of host:port; " + err.Error()}
	}
	if p := s.validateCommon(); p != nil {
		return p
	}
	for _, check := range []func() *Problem{s.validateLoad, s.validateWarmup, s.validateTarget, s.validateKeyOrder} {
		if p := check(); p != nil {
			return p
		}
	}
	switch s.Operation {
	case Put, Txn:
		return s.validatePut()
	case Mixed:
		return s.validateMixed()
	}
	return s.validateRange()
}

func (s *Spec) validateCommon() *Problem {
	for _, n := range []struct {
		field, flag string
		got         int64
		min, max    int64
	}{
		{"clients", "--clients", int64(s.Clients), 1, MaxClients},
		{"conns", "--conns", int64(s.Conns), 1, MaxConns},
		{"warmupRequests", "--warmup", int64(s.WarmupRequests), 0, MaxTotal},
		{"seed", "--seed", s.Seed, 0, MaxSeed},
		{"keySpace", "--key-space-size", int64(s.KeySpace), 0, MaxKeySpace},
	} {
		if n.got < n.min || n.got > n.max {
			return &Problem{n.field, n.flag, n.got, fmt.Sprintf("an integer in %d..%d", n.min, n.max)}
		}
	}
	for _, d := range []struct {
		field, flag string
		got         time.Duration
		max         time.Duration
		zero        bool
	}{
		{"requestTimeout", "--request-timeout", s.RequestTimeout, MaxReqTimeout, false},
		{"dialTimeout", "--dial-timeout", s.DialTimeout, MaxDialTimeout, false},
		{"runTimeout", "--run-timeout", s.RunTimeout, MaxRunTimeout, true},
		{"duration", "--duration", s.Duration, MaxRunTimeout, true},
		{"warmupDuration", "--warmup", s.WarmupDuration, MaxRunTimeout, true},
	} {
		if d.zero && d.got == 0 {
			continue
		}
		if d.got < MinTimeout || d.got > d.max {
			return &Problem{d.field, d.flag, d.got.Seconds(),
				fmt.Sprintf("%v..%v seconds", MinTimeout.Seconds(), d.max.Seconds())}
		}
	}
	return nil
}

func (s *Spec) validatePut() *Problem {
	if p := s.validateValues(); p != nil {
		return p
	}
	return s.validateKeySpace()
}

// validateKeySpace checks that keys of KeySize bytes can tell all keys of the key space apart.
func (s *Spec) validateKeySpace() *Problem {
	if s.KeySize < 1 || s.KeySize > MaxKeySize {
		return &Problem{"keySize", "--key-size", s.KeySize, fmt.Sprintf("1..%d bytes", MaxKeySize)}
	}
	if len(s.Prefix) > MaxKeyText {
		return &Problem{"keyPrefix", "--prefix", len(s.Prefix), fmt.Sprintf("at most %d bytes", MaxKeyText)}
	}
	if room := keys.Room(s.KeySize); s.DistinctKeys() > room {
		return &Problem{"keySize", "--key-size", s.KeySize, fmt.Sprintf(
			"at least %d bytes: %d bytes make %d different keys and %d are needed",
			keys.MinSize(s.DistinctKeys()), s.KeySize, room, s.DistinctKeys())}
	}
	return nil
}

func (s *Spec) validateRange() *Problem {
	if p := s.validateReads(); p != nil {
		return p
	}
	if s.Limit < 0 {
		return &Problem{"limit", "--limit", s.Limit, "0 (no limit) or more"}
	}
	if s.CountOnly && s.KeysOnly {
		return &Problem{"keysOnly", "--keys-only", true, "not together with --count-only"}
	}
	if s.ValSize != Default(Range).ValSize && !s.Verify {
		return &Problem{"valSize", "--val-size", s.ValSize, "only together with verify: a read does not choose the size of values"}
	}
	if s.KeySize > 0 && !s.Named() {
		if p := s.validateKeySpace(); p != nil {
			return p
		}
		return s.validateSpanKeys()
	}
	if p := s.validateNoGenerated(); p != nil {
		return p
	}
	if p := s.validateSpan(); p != nil || !s.Verify {
		return p
	}
	return s.validateKnown()
}

// validateSpanKeys follows validateKeySpace.
func (s *Spec) validateSpanKeys() *Problem {
	if s.SpanKeys < 0 || s.SpanKeys > MaxKeySpace {
		return &Problem{"spanKeys", "--span-keys", s.SpanKeys, fmt.Sprintf("0 (one key) or an integer in 1..%d", MaxKeySpace)}
	}
	return nil
}

// validateNoGenerated refuses, in a range that names what it reads, what is about generated keys. Those that tell which
// keys were written go together with Verify.
func (s *Spec) validateNoGenerated() *Problem {
	if s.KeySize < 0 {
		return &Problem{"keySize", "--key-size", s.KeySize, "no size, or one of generated keys"}
	}
	if s.KeySize > 0 && !s.Verify {
		return &Problem{"keySize", "--key-size", s.KeySize,
			"either a key to read, or the size of generated keys; both only together with verify, to tell what was written"}
	}
	if s.KeySize == 0 {
		switch {
		case s.Prefix != "":
			return &Problem{"keyPrefix", "--key-prefix", clipped(s.Prefix), "only together with a key size"}
		case s.Verify:
			return &Problem{"verify", "--verify", true, "only together with a key size: what was written is known of generated keys"}
		case s.KeySpace > 0:
			return &Problem{"keySpace", "--key-space-size", s.KeySpace, "only together with a key size"}
		}
	}
	if s.KeyOrder != "" {
		return &Problem{"keyOrder", "--key-order", s.KeyOrder, "only together with a key size, and without a key"}
	}
	if s.SpanKeys != 0 {
		return &Problem{"spanKeys", "--span-keys", s.SpanKeys, "only together with a key size, and without a key"}
	}
	return nil
}

// validateKnown checks that it is known what a named key or span must hold.
func (s *Spec) validateKnown() *Problem {
	if s.KeySpace == 0 {
		return &Problem{"keySpace", "--key-space-size", s.KeySpace, "how many keys were written, where a key is read and verified"}
	}
	if p := s.validateKeySpace(); p != nil {
		return p
	}
	if !s.withinPrefix() {
		return &Problem{"verify", "--verify", true, fmt.Sprintf(
			"only of keys that all start with the prefix %.200q of those that were written: what others may have written is not known", s.Prefix)}
	}
	if first, last := s.Known(); first == last {
		return &Problem{"key", "KEY", clipped(s.Key), fmt.Sprintf("at least one of the keys %.200q to %.200q, which were written",
			keys.Append([]byte(s.Prefix), 0, s.KeySize), keys.Append([]byte(s.Prefix), uint64(s.KeySpace)-1, s.KeySize))}
	}
	return nil
}

func (s *Spec) validateSpan() *Problem {
	if s.Key == "" && !s.KeyIsPrefix {
		return &Problem{"key", "KEY", "", "a key of at least 1 byte, or a key size and a key space"}
	}
	if len(s.Key) > MaxKeyText || strings.Contains(s.Key, "\x00") {
		return &Problem{"key", "KEY", s.Key, fmt.Sprintf("at most %d bytes, none of them zero", MaxKeyText)}
	}
	if len(s.End) > MaxKeyText || strings.Contains(s.End, "\x00") {
		return &Problem{"endRange", "END", s.End, fmt.Sprintf("at most %d bytes, none of them zero", MaxKeyText)}
	}
	ends := 0
	for _, set := range []bool{s.End != "", s.FromKey, s.KeyIsPrefix} {
		if set {
			ends++
		}
	}
	if ends > 1 {
		return &Problem{"endRange", "END", s.End, "one of END, --from-key and --prefix"}
	}
	if s.End != "" && s.End <= s.Key {
		return &Problem{"endRange", "END", s.End, fmt.Sprintf(
			"a key that sorts after the key %.200q: the end of a range is not part of it", s.Key)}
	}
	return nil
}
