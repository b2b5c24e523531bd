package api

import (
	"encoding/json"
	"fmt"
	"strings"

	"containernet-env/benchmark_image/internal/spec"
)

// field is one field of a benchmark's body.
type field struct {
	operations []spec.Operation // whose bodies have it
	allowed    string           // its type, for a value of another one
	set        func(s *spec.Spec, raw json.RawMessage) error
}

// paths are those of the operations.
var paths = map[spec.Operation]string{
	spec.Put:   "/benchmark/write",
	spec.Range: "/benchmark/read",
	spec.Mixed: "/benchmark/mixed",
	spec.Txn:   "/benchmark/txn",
}

var (
	all       = []spec.Operation{spec.Put, spec.Range, spec.Mixed, spec.Txn}
	writes    = []spec.Operation{spec.Put, spec.Mixed, spec.Txn}
	reads     = []spec.Operation{spec.Range, spec.Mixed}
	onlyReads = []spec.Operation{spec.Range}
	onlyMixed = []spec.Operation{spec.Mixed}
)

// fields are all fields, by their names in the body.
var fields = map[string]field{
	"endpoints": {all, "a string: host:port of the members, comma-separated", func(s *spec.Spec, raw json.RawMessage) error {
		text, err := textOf(raw)
		if err == nil {
			s.Endpoints = strings.Split(text, ",")
		}
		return err
	}},
	"clients":      integer(all, func(s *spec.Spec, n int64) { s.Clients = int(n) }),
	"conns":        integer(all, func(s *spec.Spec, n int64) { s.Conns = int(n) }),
	"total":        integer(all, func(s *spec.Spec, n int64) { s.Total = int(n) }),
	"duration":     seconds(all, func(s *spec.Spec, n float64) { s.Duration = spec.Seconds(n) }),
	"seed":         integer(all, func(s *spec.Spec, n int64) { s.Seed = n }),
	"keySize":      integer(all, func(s *spec.Spec, n int64) { s.KeySize = int(n) }),
	"keySpace":     integer(all, func(s *spec.Spec, n int64) { s.KeySpace = int(n) }),
	"valSize":      integer(all, func(s *spec.Spec, n int64) { s.ValSize = int(n) }),
	"zipfExponent": number(all, "a number", func(s *spec.Spec, n float64) { s.ZipfExponent = n }),
	"keyPrefix":    text(all, func(s *spec.Spec, t string) { s.Prefix = t }),
	"targetLeader": boolean(all, func(s *spec.Spec, b bool) { s.TargetLeader = b }),

	"rate":           number(all, "a number of requests per second", func(s *spec.Spec, n float64) { s.Rate = n }),
	"arrival":        text(all, func(s *spec.Spec, t string) { s.Arrival = t }),
	"warmupRequests": integer(all, func(s *spec.Spec, n int64) { s.WarmupRequests = int(n) }),
	"warmupDuration": seconds(all, func(s *spec.Spec, n float64) { s.WarmupDuration = spec.Seconds(n) }),
	"steps": {all, `a string: "rate=R1,R2,..." or "clients=N1,N2,..."`, func(s *spec.Spec, raw json.RawMessage) error {
		text, err := textOf(raw)
		if err == nil {
			s.Steps, err = spec.ParseSteps(text)
		}
		return err
	}},
	"keyOrder": {all, `a string: "sequential", "shuffled", "uniform" or "zipfian"`, func(s *spec.Spec, raw json.RawMessage) (err error) {
		s.KeyOrder, err = textOf(raw)
		return err
	}},
	"targetMember": {all, "a string: one of the endpoints", func(s *spec.Spec, raw json.RawMessage) (err error) {
		s.TargetMember, err = textOf(raw)
		return err
	}},

	"requestTimeout": seconds(all, func(s *spec.Spec, n float64) { s.RequestTimeout = spec.Seconds(n) }),
	"runTimeout":     seconds(all, func(s *spec.Spec, n float64) { s.RunTimeout = spec.Seconds(n) }),
	"dialTimeout":    seconds(all, func(s *spec.Spec, n float64) { s.DialTimeout = spec.Seconds(n) }),

	"sequentialKeys": boolean(writes, func(s *spec.Spec, b bool) { s.Sequential = b }),
	"ratio":          number(onlyMixed, "a number", func(s *spec.Spec, n float64) { s.PutRatio = n }),
	"requireFound":   boolean(reads, func(s *spec.Spec, b bool) { s.RequireFound = b }),
	"verify":         boolean(reads, func(s *spec.Spec, b bool) { s.Verify = b }),
	"consistency":    text(reads, func(s *spec.Spec, t string) { s.Consistency = t }),
	"spanKeys":       integer(reads, func(s *spec.Spec, n int64) { s.SpanKeys = int(n) }),
	"limit":          integer(onlyReads, func(s *spec.Spec, n int64) { s.Limit = n }),
	"prefix":         boolean(onlyReads, func(s *spec.Spec, b bool) { s.KeyIsPrefix = b }),
	"countOnly":      boolean(onlyReads, func(s *spec.Spec, b bool) { s.CountOnly = b }),
	"keysOnly":       boolean(onlyReads, func(s *spec.Spec, b bool) { s.KeysOnly = b }),
	"key":            text(onlyReads, func(s *spec.Spec, t string) { s.Key = t }),
	"endRange": text(onlyReads, func(s *spec.Spec, t string) {
		// etcd's API writes 'all keys from key on' as a range that ends with one zero byte.
		if s.FromKey = t == "\x00"; !s.FromKey {
			s.End = t
		}
	}),
}

func integer(operations []spec.Operation, set func(*spec.Spec, int64)) field {
	return field{operations, "an integer", func(s *spec.Spec, raw json.RawMessage) error {
		var n *int64
		if err := json.Unmarshal(raw, &n); err != nil || n == nil {
			return fmt.Errorf("not an integer")
		}
		set(s, *n)
		return nil
	}}
}

func seconds(operations []spec.Operation, set func(*spec.Spec, float64)) field {
	return number(operations, "a number of seconds", set)
}

func number(operations []spec.Operation, allowed string, set func(*spec.Spec, float64)) field {
	return field{operations, allowed, func(s *spec.Spec, raw json.RawMessage) error {
		var n *float64
		if err := json.Unmarshal(raw, &n); err != nil || n == nil {
			return fmt.Errorf("not a number")
		}
		set(s, *n)
		return nil
	}}
}

func boolean(operations []spec.Operation, set func(*spec.Spec, bool)) field {
	return field{operations, "true or false", func(s *spec.Spec, raw json.RawMessage) error {
		var b *bool
		if err := json.Unmarshal(raw, &b); err != nil || b == nil {
			return fmt.Errorf("not a boolean")
		}
		set(s, *b)
		return nil
	}}
}

func text(operations []spec.Operation, set func(*spec.Spec, string)) field {
	return field{operations, "a string of Unicode text", func(s *spec.Spec, raw json.RawMessage) error {
		t, err := textOf(raw)
		if err == nil {
			set(s, t)
		}
		return err
	}}
}
