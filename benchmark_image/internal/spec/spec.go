// Package spec holds what one benchmark is asked to do. The command line of benchmark-client and the
// body of benchmark-server's requests both end in a Spec, so their bounds cannot drift apart.
package spec

import (
	"math"
	"strconv"
	"time"
)

// Operation is the kind of request that a benchmark sends, named as in etcd's benchmark tool.
type Operation string

// The operations that can be measured.
const (
	Put   Operation = "put"
	Range Operation = "range"
)

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
)

// Spec is one benchmark. The zero value is not valid: start from Default.
type Spec struct {
	Operation Operation
	Endpoints []string // host:port of the members, in member order, no duplicates
	Conns     int      // TCP connections; connection j leads to member j mod n
	Clients   int      // closed-loop clients; client i uses connection i mod Conns
	Total     int      // requests over all clients

	TargetLeader bool  // send everything to the member that leads when the run starts
	Seed         int64 // of the key order and of the values

	RequestTimeout time.Duration // deadline of each request
	DialTimeout    time.Duration // deadline for all connections and for finding the leader
	RunTimeout     time.Duration // the run ends early after this time; 0: no limit

	KeySize    int // bytes of a generated key, Prefix not included; 0 in a range that names its key
	KeySpace   int // how many different keys are generated; 0: as many as Total
	ValSize    int // bytes of a value
	Sequential bool
	Prefix     string // in front of every generated key

	Key          string // the key of a range, or the first one
	End          string // the key after the last one; empty: only Key
	FromKey      bool   // all keys from Key on
	KeyIsPrefix  bool   // all keys that start with Key
	Consistency  string // Linearizable or Serializable
	Limit        int64  // at most this many keys in an answer; 0: no limit
	CountOnly    bool
	KeysOnly     bool
	RequireFound bool // an answer without a key is a failed request
}

// Default gives the values of etcd's benchmark tool, but for the key space: its default of one key makes
// every put write the same key, here 0 stands for as many different keys as there are requests.
func Default(operation Operation) Spec {
	s := Spec{
		Operation:      operation,
		Endpoints:      []string{"127.0.0.1:2379"},
		Conns:          1,
		Clients:        1,
		Total:          10_000,
		RequestTimeout: time.Minute,
		DialTimeout:    10 * time.Second,
	}
	if operation == Put {
		s.KeySize, s.ValSize = 8, 8
	} else {
		s.Consistency = Linearizable
	}
	return s
}

// DistinctKeys is the size of the key space with its default filled in.
func (s *Spec) DistinctKeys() int {
	if s.KeySpace > 0 {
		return s.KeySpace
	}
	return s.Total
}

// Args gives the command line of benchmark-client that parses to s again. s must be valid.
func (s *Spec) Args() []string {
	args := []string{string(s.Operation), "--endpoints=" + JoinEndpoints(s.Endpoints)}
	number := func(flag string, n int64) { args = append(args, "--"+flag+"="+strconv.FormatInt(n, 10)) }
	flag := func(name string, set bool) {
		if set {
			args = append(args, "--"+name)
		}
	}
	number("conns", int64(s.Conns))
	number("clients", int64(s.Clients))
	number("total", int64(s.Total))
	number("seed", s.Seed)
	args = append(args,
		"--request-timeout="+s.RequestTimeout.String(),
		"--dial-timeout="+s.DialTimeout.String(),
		"--run-timeout="+s.RunTimeout.String())
	flag("target-leader", s.TargetLeader)
	if s.KeySize > 0 {
		number("key-size", int64(s.KeySize))
		number("key-space-size", int64(s.KeySpace))
	}
	if s.Operation == Put {
		number("val-size", int64(s.ValSize))
		flag("sequential-keys", s.Sequential)
		args = append(args, "--prefix="+s.Prefix)
		return args
	}
	args = append(args, "--consistency="+s.Consistency)
	number("limit", s.Limit)
	flag("count-only", s.CountOnly)
	flag("keys-only", s.KeysOnly)
	flag("require-found", s.RequireFound)
	if s.KeySize > 0 {
		return append(args, "--key-prefix="+s.Prefix)
	}
	flag("from-key", s.FromKey)
	flag("prefix", s.KeyIsPrefix)
	args = append(args, "--", s.Key)
	if s.End != "" {
		args = append(args, s.End)
	}
	return args
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
