// Package spec owns the description of a load: one table of its parameters. The validation of HTTP bodies, what
// benchmark-server hands to benchmark-client, the flags for people, the JSON Schema, the documentation's tables and the
// driver's types all follow from it.
package spec

import (
	"encoding/json"
	"math"
	"time"
)

// Operation is the kind of request that a benchmark sends, named as in etcd's benchmark tool.
type Operation string

// The operations that can be measured.
const (
	Put   Operation = "put"
	Range Operation = "range"
	Mixed Operation = "mixed" // puts and ranges of the same generated keys
	Txn   Operation = "txn"   // puts in transactions, of keys that hold the value already
)

// Operations are all of them.
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

// The two consistencies of a range, named as in etcd's benchmark tool.
const (
	Linearizable = "l"
	Serializable = "s"
)

// The arrivals of an open loop.
const (
	Constant = "constant"
	Poisson  = "poisson"
)

// The orders in which generated keys are used.
const (
	Sequential = "sequential" // one after the other
	Shuffled   = "shuffled"   // each once, in random order, before any a second time
	Uniform    = "uniform"    // drawn, each as probable as the others
	Zipfian    = "zipfian"    // drawn, the first ones much more often
)

// Spec is one benchmark. The zero value is not valid: start from Default. What each field means, and its bounds, is in
// the table of parameters.
type Spec struct {
	Operation Operation
	Endpoints []string
	Conns     int
	Clients   int
	Total     int           // 0 if Duration is set
	Duration  time.Duration // 0 if Total is set

	Rate    float64 // 0: a closed loop
	Arrival string

	WarmupRequests int // at most one of the two is set
	WarmupDuration time.Duration

	TargetLeader bool
	TargetMember string // empty: all
	Seed         int64

	RequestTimeout time.Duration
	DialTimeout    time.Duration
	RunTimeout     time.Duration // 0: no limit

	KeySize      int    // 0 in a range that names its key, but for Verify
	KeySpace     int    // 0: as many as requests
	KeyOrder     string // empty: Sequential for ranges, Shuffled otherwise
	ZipfExponent float64
	ValSize      int
	Sequential   bool
	Prefix       string // in front of every generated key

	PutRatio float64

	Key          string // of a range, or the first one of its span
	End          string // empty: only Key; AllKeys: all from Key on
	KeyIsPrefix  bool   // all keys that start with Key
	Consistency  string
	Limit        int64
	CountOnly    bool
	KeysOnly     bool
	RequireFound bool
	Verify       bool
	SpanKeys     int // 0: one key
}

// AllKeys is the end of a span that etcd's API (rpc.proto, RangeRequest.range_end) reads as 'all keys from the first one
// on'.
const AllKeys = "\x00"

// DefaultZipfExponent is that of YCSB: Cooper et al., 'Benchmarking Cloud Serving Systems with YCSB', SoCC 2010.
const DefaultZipfExponent = 0.99

// DefaultTotal is the number of requests where neither a number nor a duration is given.
const DefaultTotal = 10_000

// Default gives the values of etcd's benchmark tool, but for the key space: its default of one key makes
// every put write the same key, here 0 stands for as many different keys as there are requests.
func Default(operation Operation) Spec {
	s := Spec{
		Operation:      operation,
		Endpoints:      []string{"127.0.0.1:2379"},
		Conns:          1,
		Clients:        1,
		Total:          DefaultTotal,
		Arrival:        Constant,
		ZipfExponent:   DefaultZipfExponent,
		RequestTimeout: time.Minute,
		DialTimeout:    10 * time.Second,
		ValSize:        8,
	}
	if operation != Range {
		s.KeySize = 8
	}
	if operation.Reads() {
		s.Consistency = Linearizable
	}
	if operation == Mixed {
		s.PutRatio = 0.5
	}
	return s
}

// MaxRequests is how many requests there may be.
func (s *Spec) MaxRequests() int {
	if s.Total > 0 {
		return s.Total
	}
	return MaxTotal
}

// DistinctKeys is the size of the key space with its default filled in.
func (s *Spec) DistinctKeys() int {
	if s.KeySpace > 0 {
		return s.KeySpace
	}
	return s.MaxRequests()
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

// Members are the endpoints that requests may go to.
func (s *Spec) Members() []string {
	if s.TargetMember != "" {
		return []string{s.TargetMember}
	}
	return s.Endpoints
}

// Complete fills in what follows from which parameters were given.
func (s *Spec) Complete(totalGiven bool) {
	if s.Duration != 0 && !totalGiven {
		s.Total = 0
	}
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

// Seconds turns a number of seconds, as JSON has it, into a duration; what no duration can hold becomes one that no bound
// allows.
func Seconds(s float64) time.Duration {
	ns := math.Round(s * 1e9)
	if math.IsNaN(ns) || ns < math.MinInt64 || ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
