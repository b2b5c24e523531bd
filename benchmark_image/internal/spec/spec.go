// Package spec holds what one benchmark is asked to do. The command line of benchmark-client and the
// body of benchmark-server's requests both end in a Spec, so their bounds cannot drift apart.
package spec

import (
	"math"
	"time"

	"containernet-env/benchmark_image/internal/store/etcd"
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

// Reads tells whether some requests of the operation are ranges.
func (o Operation) Reads() bool { return o == Range || o == Mixed }

// The two consistencies of a range, named as in etcd's benchmark tool.
const (
	Linearizable = "l"
	Serializable = "s"
)

// Bounds of what can be asked for. They keep a typing error from exhausting the machine's memory or
// file descriptors; the 1 MiB of a value stays below etcd's own request limit of 1.5 MiB.
const (
	MaxEndpoints   = 100
	MaxClients     = 10_000
	MaxConns       = 10_000
	MaxTotal       = 10_000_000
	MaxKeySize     = 1024
	MaxKeyText     = 4096
	MaxValSize     = 1 << 20
	MaxKeySpace    = 1_000_000_000
	MaxSeed        = 1<<53 - 1 // the largest integer that every JSON reader keeps exactly
	MinTimeout     = time.Millisecond
	MaxReqTimeout  = time.Hour
	MaxDialTimeout = 10 * time.Minute
	MaxRunTimeout  = 24 * time.Hour
	MinRate        = 0.1
	MaxRate        = 1_000_000
	MaxSteps       = 100
	MaxZipf        = 10
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

// Spec is one benchmark. The zero value is not valid: start from Default.
type Spec struct {
	Operation Operation
	Endpoints []string      // host:port of the members, in member order, no duplicates
	Conns     int           // TCP connections; connection j leads to member j mod n
	Clients   int           // client i uses connection i mod Conns
	Total     int           // requests over all clients in each step; 0 if Duration is set
	Duration  time.Duration // of each step; 0 if Total is set

	Rate    float64 // intended starts per second over all clients; 0: a closed loop
	Arrival string  // Constant or Poisson
	Steps   Steps   // several loads, one after the other

	WarmupRequests int // ahead of the first step, left out of the figures; at most one of the two is set
	WarmupDuration time.Duration

	TargetLeader bool   // send everything to the member that leads, also when that changes
	TargetMember string // send everything to this one of Endpoints; empty: to all
	Seed         int64  // of the schedule, of the keys and of the values

	RequestTimeout time.Duration // deadline of each request
	DialTimeout    time.Duration // deadline for all connections and for finding the leader
	RunTimeout     time.Duration // the run ends early after this time; 0: no limit

	KeySize      int     // bytes of a generated key, Prefix not included; 0 in a range that names its key, but for Verify
	KeySpace     int     // how many different keys are generated; 0: as many as requests
	KeyOrder     string  // one of the orders; empty: Sequential for ranges, Shuffled otherwise
	ZipfExponent float64 // of Zipfian
	ValSize      int     // bytes of a value
	Sequential   bool    // as KeyOrder Sequential
	Prefix       string  // in front of every generated key

	PutRatio float64 // share of the puts in Mixed, 0..1

	Key          string // the key of a range, or the first one
	End          string // the key after the last one; empty: only Key
	FromKey      bool   // all keys from Key on
	KeyIsPrefix  bool   // all keys that start with Key
	Consistency  string // Linearizable or Serializable
	Limit        int64  // at most this many keys in an answer; 0: no limit
	CountOnly    bool
	KeysOnly     bool
	RequireFound bool // an answer without a key is a failed request
	Verify       bool // an answer must hold what puts of the same keys, Seed and ValSize wrote
	SpanKeys     int  // read so many generated keys at once, up to the last of the key space; 0: one
}

// DefaultZipfExponent is that of YCSB: Cooper et al., 'Benchmarking Cloud Serving Systems with YCSB', SoCC 2010.
const DefaultZipfExponent = 0.99

// DefaultTotal is the number of requests where neither a number nor a duration is asked for.
const DefaultTotal = 10_000

// Default gives the values of etcd's benchmark tool, but for the key space: its default of one key makes
// every put write the same key, here 0 stands for as many different keys as there are requests.
func Default(operation Operation) Spec {
	s := Spec{
		Operation:      operation,
		Endpoints:      []string{etcd.DefaultEndpoint},
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

// MaxRequests is how many requests one step may have.
func (s *Spec) MaxRequests() int {
	if s.Total > 0 {
		return s.Total
	}
	return MaxTotal / max(len(s.Steps.Values), 1)
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

// Seconds turns a number of seconds, as the HTTP interface has it, into a duration; what no duration
// can hold becomes one that no bound allows.
func Seconds(s float64) time.Duration {
	ns := math.Round(s * 1e9)
	if math.IsNaN(ns) || ns < math.MinInt64 || ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
