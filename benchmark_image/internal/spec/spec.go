// Package spec owns the description of a load: one table of its parameters. The validation of HTTP bodies, what
// benchmark-server hands to benchmark-client, the flags for people, the JSON Schema, the documentation's tables and the
// driver's bounds all follow from it.
package spec

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/keys"
)

// Operation is the kind of request that a benchmark sends, named as in etcd's benchmark tool.
type Operation string

const (
	Put   Operation = "put"
	Range Operation = "range"
	Mixed Operation = "mixed" // puts and ranges of the same generated keys
	Txn   Operation = "txn"   // puts in transactions, if the key exists
)

var Operations = []Operation{Put, Range, Mixed, Txn}

// Reads tells whether some requests of the operation are ranges.
func (o Operation) Reads() bool { return o == Range || o == Mixed }

// Name is what the HTTP interface calls the operation.
func (o Operation) Name() string {
	switch o {
	case Put:
		return "write"
	case Range:
		return "read"
	}
	return string(o)
}

// Path is where the HTTP interface takes bodies of the operation.
func (o Operation) Path() string { return "/benchmark/" + o.Name() }

// ResultPath is in front of the id of a job whose result the HTTP interface gives.
const ResultPath = "/benchmark/result/"

// AllKeys is the end of a span that etcd's API (rpc.proto, RangeRequest.range_end) reads as 'all keys from the first
// one on'.
const AllKeys = "\x00"

// DistinctKeys is the size of the key space with its default filled in: each request, one of the warm-up too, can write
// a key of its own. Where a duration leaves their number open, there are DurationKeySpace more.
func (s *Spec) DistinctKeys() int {
	if s.KeySpace > 0 {
		return s.KeySpace
	}
	keys := s.Total
	// Every request writes another key, where the key space is large enough.
	newKeys := s.Operation == Put && (s.Order() == Sequential || s.Order() == Shuffled)
	if s.Total == 0 || s.WarmupDuration > 0 && newKeys {
		keys += DurationKeySpace
	}
	if s.Operation == Put || s.Operation == Mixed {
		keys += s.WarmupRequests
	}
	return min(keys, MaxKeySpace)
}

// DrawSeed is the seed of all that is drawn but the values.
func (s *Spec) DrawSeed() int64 {
	if s.LoadSeed != 0 {
		return s.LoadSeed
	}
	return s.Seed
}

// Order is KeyOrder with its default filled in.
func (s *Spec) Order() string {
	switch {
	case s.KeyOrder != "":
		return s.KeyOrder
	case s.Sequential || s.Operation == Range:
		return Sequential
	}
	return Shuffled
}

// Unique tells whether each value that is written names its writer. Those of puts are a data set's, the same whoever
// writes them, unless a history is kept.
func (s *Spec) Unique() bool {
	return s.ValSize >= keys.VersionSize && (s.Operation == Mixed || s.Operation == Txn || s.History)
}

// KeysRequired tells whether an answer without a key is a failure. Verified reads need keys that were written before.
func (s *Spec) KeysRequired() bool { return s.RequireFound || s.Verify && s.Operation == Range }

// Members are the endpoints that requests may go to.
func (s *Spec) Members() []string {
	if s.TargetMember != "" {
		return []string{s.TargetMember}
	}
	return s.Endpoints
}

// Complete fills in defaults that depend on which parameters were given, by their names in JSON.
func (s *Spec) Complete(given func(name string) bool) {
	if endpoint := stores[s.Store].endpoint; endpoint != "" && !given(paramEndpoints.Name) {
		s.Endpoints = []string{endpoint}
	}
	if s.Duration != 0 && !given(paramTotal.Name) {
		s.Total = 0
	}
	if !given(paramStallTimeout.Name) {
		s.StallTimeout = s.defaultStall()
	}
}

// defaultStall is how long a run may go without a success: where each request waits for its deadline, it would go on
// for hours. One with a duration ends by itself, and may be meant to measure a failover.
func (s *Spec) defaultStall() time.Duration {
	if s.Duration != 0 {
		return 0
	}
	// Later than the last deadline, also on a busy machine.
	stall := s.RequestTimeout + min(max(s.RequestTimeout/10, 100*time.Millisecond), time.Second)
	if s.Rate > 0 {
		// Where requests are rare, so are answers: one exponential interval in 10^8 is longer than 20 means.
		stall += Seconds(20 / s.Rate)
	}
	return min(stall, MaxRunTimeout)
}

// LostTimeout is for how long a benchmark may be without a connection to any member; 0: for as long as StallTimeout
// allows. It follows from the values alone: what a result says was configured has the same effect again.
func (s *Spec) LostTimeout() time.Duration {
	if s.StallTimeout == 0 || s.StallTimeout != s.defaultStall() {
		return 0
	}
	return s.DialTimeout
}

// MarshalJSON gives the body that describes s, with "operation" ahead and all defaults filled in; Decode reads it.
func (s *Spec) MarshalJSON() ([]byte, error) {
	return s.encode(appendValue([]byte(`{"operation":`), s.Operation)), nil
}

// Body gives the body of the HTTP request for s, with all defaults filled in.
func (s *Spec) Body() json.RawMessage {
	filled := *s
	if !s.Named() {
		filled.KeyOrder = s.Order()
	}
	if s.KeySize > 0 {
		filled.KeySpace = s.DistinctKeys()
	}
	return filled.encode([]byte("{"))
}

// Seconds turns a number of seconds, as JSON has it, into a duration; what a duration cannot hold becomes one that
// exceeds every bound.
func Seconds(s float64) time.Duration {
	ns := math.Round(s * 1e9)
	if math.IsNaN(ns) || ns < math.MinInt64 || ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

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
