package spec

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/keys"
)

// The consistencies of a range, the first two named as in etcd's benchmark tool.
const (
	Linearizable = "l"
	Serializable = "s"
	Relaxed      = "default" // Consul's, between the two
)

// The arrivals of an open loop.
const (
	Constant = "constant"
	Poisson  = "poisson"
)

// The orders in which generated keys are used.
const (
	Sequential = "sequential" // one after the other
	Shuffled   = "shuffled"   // in random order, each once before any is repeated
	Uniform    = "uniform"    // drawn, all with the same probability
	Zipfian    = "zipfian"    // drawn, the first keys much more often
)

// Spec is one benchmark. The zero value is not valid: start from Default. What each field means, and its bounds, is in
// the table of parameters.
type Spec struct {
	Operation Operation
	Store     string
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
	Leaderless   bool
	Seed         int64
	LoadSeed     int64 // 0: Seed
	StartNs      int64 // on CLOCK_MONOTONIC; 0: at once

	RequestTimeout time.Duration
	DialTimeout    time.Duration
	RunTimeout     time.Duration // 0: no limit
	StallTimeout   time.Duration // 0: never

	TimelineInterval time.Duration
	Dilation         int

	KeySize      int    // 0 in a range that names its key, but for Verify
	KeySpace     int    // 0: as many as requests
	KeyOrder     string // empty: Sequential for ranges, Shuffled otherwise
	ZipfExponent float64
	ValSize      int
	Sequential   bool
	Prefix       string // in front of every generated key

	PutRatio float64

	CAFile       string // empty: connections are plain
	CertFile     string // at most together with CAFile
	KeyFile      string
	User         string // empty: none
	PasswordFile string // empty: the password is in the environment
	TokenFile    string // of the store Consul

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

	Chroot                          string // of the store ZooKeeper: the znode below which keys are; empty: the root
	PutPath, GetPath                string // of the store HTTP: templates with keyvalue.Placeholder
	PutCodes, GetCodes, AbsentCodes string // empty: the default

	History bool
}

// DefaultZipfExponent is YCSB's: Cooper et al., 'Benchmarking Cloud Serving Systems with YCSB', SoCC 2010.
const DefaultZipfExponent = 0.99

// DefaultTotal is the number of requests where neither a number nor a duration is given.
const DefaultTotal = 10_000

// DurationKeySpace is the number of different keys where a duration leaves it open how many requests there are.
const DurationKeySpace = 10_000_000

// Default gives the values of etcd's benchmark tool, but for the key space: its default of one key makes
// every put write the same key, here 0 stands for as many different keys as there are requests.
func Default(operation Operation) Spec {
	s := Spec{
		Operation:      operation,
		Store:          Etcd,
		Endpoints:      []string{stores[Etcd].endpoint},
		Conns:          1,
		Clients:        1,
		Total:          DefaultTotal,
		Arrival:        Constant,
		ZipfExponent:   DefaultZipfExponent,
		RequestTimeout: time.Minute,
		DialTimeout:    10 * time.Second,
		ValSize:        8,

		TimelineInterval: time.Second,
		Dilation:         1,
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
	s.StallTimeout = s.defaultStall()
	return s
}

// Bounds that rules refer to too. They keep a typing error from exhausting the machine's memory or file descriptors.
const (
	MaxEndpoints  = 100
	MaxRate       = 1_000_000 // requests per second
	MaxTotal      = MaxRate * day
	MaxKeySpace   = 1_000_000_000
	MaxKeyText    = 4096
	MaxFileName   = 512
	MaxTemplate   = 512
	MaxUser       = 256
	MaxRunTimeout = 24 * time.Hour
)

const (
	day         = 86_400 // seconds
	millisecond = 0.001
)

var (
	writes = []Operation{Put, Mixed, Txn}
	reads  = []Operation{Range, Mixed}
)

// Parameters is the table of all parameters, in the order in which they are documented.
var Parameters []*Parameter

// parameter adds one to the table. Its field is the one of its name, unless it names another.
func parameter(p Parameter) *Parameter {
	if p.Operations == nil {
		p.Operations = Operations
	}
	named := func(field string) bool { return strings.EqualFold(field, cmp.Or(p.Field, p.Name)) }
	field, found := reflect.TypeFor[Spec]().FieldByNameFunc(named)
	if !found {
		panic("there is no field of the parameter " + p.Name)
	}
	p.index = field.Index
	Parameters = append(Parameters, &p)
	return &p
}

// fileParameter describes the name of a file on the machine of the client; store is that which alone has it.
func fileParameter(name, flag, store, rule, usage string) *Parameter {
	return parameter(Parameter{
		Name: name, Flag: flag, Max: MaxFileName, Optional: true, Store: store,
		Form: "at most 512 bytes of Unicode text, none of them zero", Valid: withoutZero,
		Usage: usage, Rule: rule,
	})
}

// withoutZero is of keys too: a range that ends with a zero byte means all keys to etcd.
func withoutZero(text string) (allowed string, ok bool) { return "", !strings.Contains(text, "\x00") }

// The HTTP status codes that answers to the store HTTP have where nothing else is said.
const (
	defaultPutCodes    = "200,201,204"
	defaultGetCodes    = "200"
	defaultAbsentCodes = "404"
)

// codesParameter describes the HTTP status codes that tell of something.
func codesParameter(name, flag string, operations []Operation, byDefault, of string) *Parameter {
	return parameter(Parameter{
		Name: name, Flag: flag, Operations: operations, Max: 64, Optional: true, Store: HTTP, Default: byDefault,
		Form: codesForm, Valid: areCodes,
		Usage: "of the store http: HTTP status codes of " + of, Rule: "only of the store http",
	})
}

var (
	paramEndpoints = parameter(Parameter{
		Name: "endpoints", Flag: "endpoints", Required: true,
		Form: "1..100 members, host:port, comma-separated, none twice", Usage: "members of the cluster, in member order",
	})
	paramStore = parameter(Parameter{
		Name: "store", Flag: "store", Choices: storeNames, Usage: "kind of store that the members are of",
	})
	_ = parameter(Parameter{
		Name: "clients", Flag: "clients", Unit: "clients", Min: 1, Max: 10_000,
		Usage: "clients, each with at most one request in flight",
	})
	_ = parameter(Parameter{
		Name: "conns", Flag: "conns", Unit: "TCP connections", Min: 1, Max: 10_000,
		Usage: "TCP connections; connection j leads to member j mod n, at least one to each; request k goes to member " +
			"k mod n",
	})
	paramTotal = parameter(Parameter{
		Name: "total", Flag: "total", Unit: "requests", Min: 1, Max: MaxTotal, Optional: true,
		Usage: "number of requests",
	})
	paramDuration = parameter(Parameter{
		Name: "duration", Flag: "duration", Unit: "s", Min: millisecond, Max: day, Optional: true,
		Usage: "send requests for this long, instead of a total number", Rule: "not together with `total`",
	})
	_ = parameter(Parameter{
		Name: "rate", Flag: "rate", Unit: "requests/s", Min: 0.1, Max: MaxRate, Zero: "a closed loop",
		Usage: "open loop: intended starts per second over all clients; latency counts from them",
	})
	paramArrival = parameter(Parameter{
		Name: "arrival", Flag: "arrival", Choices: []string{Constant, Poisson},
		Usage: "how the intended starts of an open loop are spaced", Rule: "only together with a rate",
	})
	paramWarmupRequests = parameter(Parameter{
		Name: "warmupRequests", Flag: "warmup", Unit: "requests", Max: MaxTotal,
		Usage: "requests ahead of the measurement, left out of its latencies",
	})
	paramWarmupDuration = parameter(Parameter{
		Name: "warmupDuration", Flag: "warmup", Unit: "s", Min: millisecond, Max: day, Optional: true,
		Usage: "duration of a load ahead of the measurement, left out of its latencies",
		Rule:  "not together with `warmupRequests`",
	})
	_ = parameter(Parameter{
		Name: "startNs", Flag: "start-ns", Unit: "ns", Min: 1, Max: 1<<53 - 1, Zero: "at once",
		Usage: "moment on CLOCK_MONOTONIC at which the load, or its warm-up, starts; connections are opened before, and " +
			"a load that is not ready then does not begin",
	})
	paramTargetLeader = parameter(Parameter{
		Name: "targetLeader", Flag: "target-leader",
		Usage: "send everything to the leader, also when the leader changes",
	})
	paramTargetMember = parameter(Parameter{
		Name: "targetMember", Flag: "target-member", Form: "one of the endpoints", Optional: true,
		Usage: "send everything to this member, whoever leads", Rule: "not together with `targetLeader`",
	})
	paramLeaderless = parameter(Parameter{
		Name: "leaderless", Flag: "leaderless",
		Usage: "ask no member who leads, as where a proxy serves clients that does not know it",
		Rule:  "not together with `targetLeader`",
	})
	_ = parameter(Parameter{
		Name: "seed", Flag: "seed", Max: 1<<53 - 1, // the largest integer that every JSON reader keeps exactly
		Usage: "seed of the schedule, the key order and the values",
	})
	_ = parameter(Parameter{
		Name: "loadSeed", Flag: "load-seed", Min: 1, Max: 1<<53 - 1, Zero: "the same as `seed`",
		Usage: "another seed of all but the values: of the schedule, the key order and which requests of a mixed load " +
			"are writes",
	})
	paramCAFile = fileParameter("caFile", "cacert", "", "",
		"file with the certificates of the CAs that sign the members' certificates: connections are secured with TLS")
	paramCertFile = fileParameter("certFile", "cert", "", "only together with `caFile` and `keyFile`",
		"file with the client's own certificate")
	paramKeyFile = fileParameter("keyFile", "key", "", "only together with `certFile`",
		"file with the private key of the client's certificate")
	paramUser = parameter(Parameter{
		Name: "user", Flag: "user", Max: MaxUser, Optional: true, Form: "at most 256 bytes of Unicode text without a colon",
		Usage: "user to log in as; the password is in `passwordFile`, or in the environment variable " + PasswordVariable,
	})
	paramPasswordFile = fileParameter("passwordFile", "password-file", "", "only together with `user`",
		"file with the user's password on its first line")
	paramTokenFile = fileParameter("tokenFile", "token-file", Consul, "only with the store consul",
		"of the store consul: file with the token (ACLs) on its first line")
	paramKeySize = parameter(Parameter{
		Name: "keySize", Flag: "key-size", Unit: "bytes", Min: 1, Max: 1024, Optional: true, Default: "8; reads: none",
		Usage: "size of each generated key, without its prefix; with a key to read, of the keys that verify expects",
		Rule:  "enough for `keySpace` different keys",
	})
	paramKeySpace = parameter(Parameter{
		Name: "keySpace", Flag: "key-space-size", Unit: "keys", Min: 1, Max: MaxKeySpace, Optional: true,
		Default: "as many as requests; of writes and mixed loads with those of the warm-up; a duration counts as 10000000",
		Usage:   "number of different generated keys",
	})
	paramKeyOrder = parameter(Parameter{
		Name: "keyOrder", Flag: "key-order", Choices: []string{Sequential, Shuffled, Uniform, Zipfian}, Optional: true,
		Default: "shuffled; reads: sequential",
		Usage:   "order of the generated keys; shuffled: each key once before any is repeated",
	})
	paramZipfExponent = parameter(Parameter{
		Name: "zipfExponent", Flag: "zipf-exponent", Max: 10, Open: true,
		Usage: "exponent of the key order zipfian", Rule: "only together with the key order zipfian",
	})
	paramKeyPrefix = parameter(Parameter{
		Name: "keyPrefix", Field: "Prefix", Flag: "prefix", RangeFlag: "key-prefix", Max: MaxKeyText,
		Form: "at most 4096 bytes of Unicode text, none of them zero", Valid: withoutZero,
		Usage: "prefix of each generated key",
	})
	paramValSize = parameter(Parameter{
		Name: "valSize", Flag: "val-size", Unit: "bytes", Max: 1 << 20, // below etcd's own limit of 1.5 MiB a request
		Usage: "size of each value; of reads, of the values that were written", Rule: "of reads only together with `verify`",
	})
	_ = parameter(Parameter{
		Name: "requestTimeout", Flag: "request-timeout", Unit: "s", Min: millisecond, Max: 3600,
		Usage: "deadline of each request",
	})
	_ = parameter(Parameter{
		Name: "dialTimeout", Flag: "dial-timeout", Unit: "s", Min: millisecond, Max: 600,
		Usage: "deadline for opening the connections and finding the leader",
	})
	_ = parameter(Parameter{
		Name: "runTimeout", Flag: "run-timeout", Unit: "s", Min: millisecond, Max: day, Optional: true,
		Default: "86400; of the commands: none",
		Usage:   "end the run early after this time",
	})
	paramStallTimeout = parameter(Parameter{
		Name: "stallTimeout", Flag: "stall-timeout", Unit: "s", Min: millisecond, Max: day, Zero: "never",
		Default: "a tenth (0.1 to 1 s) more than the request timeout, and with a rate the time of 20 requests in " +
			"addition; with a duration: 0",
		Usage: "end the run when no request, or none of a kind, has succeeded for this long",
	})
	_ = parameter(Parameter{
		Name: "timelineInterval", Flag: "timeline-interval", Unit: "s", Min: 0.1, Max: 1,
		Usage: "length of an interval of the timeline",
	})
	_ = parameter(Parameter{
		Name: "dilation", Flag: "dilation", Min: 1, Max: 100,
		Usage: "how many times slower than real time the members and their network run: so many times longer are the " +
			"pauses and deadlines that no other parameter sets",
	})

	_ = parameter(Parameter{
		Name: "sequentialKeys", Field: "Sequential", Flag: "sequential-keys", Operations: writes,
		Usage: "the same as the key order sequential",
	})
	paramKey = parameter(Parameter{
		Name: "key", Flag: "KEY", Operations: []Operation{Range}, Max: MaxKeyText,
		Form: "1..4096 bytes of Unicode text, none of them zero", Valid: withoutZero,
		Default: "required, unless there is keySize",
		Usage:   "the key to read, or the first key of a range scan", Rule: "together with `keySize` only for `verify`",
	})
	paramEndRange = parameter(Parameter{
		Name: "endRange", Field: "End", Flag: "END", Operations: []Operation{Range}, Max: MaxKeyText,
		Form: `at most 4096 bytes of Unicode text that sort after key; empty: only key; one zero byte ("\u0000"): ` +
			"all keys from key on",
		Valid: func(text string) (allowed string, ok bool) {
			if text == AllKeys {
				return "", true
			}
			return withoutZero(text)
		},
		Usage: "end of the range scan, exclusive",
	})
	paramIsPrefix = parameter(Parameter{
		Name: "prefix", Field: "KeyIsPrefix", Flag: "prefix", Operations: []Operation{Range},
		Usage: "read all keys that start with the key, which may then be empty",
	})
	paramLimit = parameter(Parameter{
		Name: "limit", Flag: "limit", Unit: "keys", Operations: []Operation{Range}, Zero: "no limit",
		Usage: "largest number of keys in an answer",
	})
	paramCountOnly = parameter(Parameter{
		Name: "countOnly", Flag: "count-only", Operations: []Operation{Range},
		Usage: "request only the number of keys",
	})
	paramKeysOnly = parameter(Parameter{
		Name: "keysOnly", Flag: "keys-only", Operations: []Operation{Range},
		Usage: "request only the keys", Rule: "not together with `countOnly`",
	})
	_ = parameter(Parameter{
		Name: "ratio", Field: "PutRatio", Flag: "ratio", Operations: []Operation{Mixed}, Max: 1,
		Usage: "share of the puts",
	})
	paramConsistency = parameter(Parameter{
		Name: "consistency", Flag: "consistency", Operations: reads, Choices: []string{Linearizable, Serializable, Relaxed},
		Form:  `"l" (linearizable), "s" (serializable; of Consul: stale) or "default" (Consul's, of Consul alone)`,
		Usage: "consistency of the reads",
	})
	_ = parameter(Parameter{
		Name: "requireFound", Flag: "require-found", Operations: reads,
		Usage: "a read that finds no key is a failed request",
	})
	paramVerify = parameter(Parameter{
		Name: "verify", Flag: "verify", Operations: reads,
		Usage: "a read is a failed request if its answer holds another key or value than a load with the same seed " +
			"and sizes wrote; " +
			"for range, also if a key is missing; for mixed, also if a linearizable read finds less than was " +
			"acknowledged before it began",
		Rule: fmt.Sprintf("of ranges only together with `keySize`; with `key` also with `keySpace`; of mixed only with "+
			"a `valSize` of %d or more",
			keys.VersionSize),
	})
	paramSpanKeys = parameter(Parameter{
		Name: "spanKeys", Flag: "span-keys", Unit: "keys", Operations: reads, Min: 1, Max: MaxKeySpace, Optional: true,
		Usage: "each read is a range scan of this many consecutive generated keys, from the next key on",
		Rule:  "only with `keySize`, and without `key`",
	})
	_ = parameter(Parameter{
		Name: "chroot", Flag: "chroot", Max: MaxTemplate, Optional: true,
		Form: chrootForm, Valid: isChroot, Store: ZooKeeper,
		Usage: "of the store zookeeper: the znode below which the keys are, which has to be there; else the root",
		Rule:  "only with the store zookeeper",
	})
	paramPutPath = parameter(Parameter{
		Name: "putPath", Flag: "put-path", Operations: []Operation{Put, Mixed}, Max: MaxTemplate, Optional: true,
		Form: templateForm, Valid: isTemplate, Store: HTTP,
		Usage: "of the store http: where a value is put, with {key} for the key, such as /v0/entity?id={key}&ack=2",
		Rule:  "required of the store http, and only with it",
	})
	paramGetPath = parameter(Parameter{
		Name: "getPath", Flag: "get-path", Operations: reads, Max: MaxTemplate, Optional: true,
		Form: templateForm, Valid: isTemplate, Store: HTTP,
		Usage: "of the store http: where a value is read, with {key} for the key",
		Rule:  "required of the store http, and only with it",
	})
	paramPutCodes = codesParameter("putCodes", "put-codes", []Operation{Put, Mixed}, defaultPutCodes,
		"a put that succeeded")
	paramGetCodes    = codesParameter("getCodes", "get-codes", reads, defaultGetCodes, "a read that found its key")
	paramAbsentCodes = codesParameter("absentCodes", "absent-codes", reads, defaultAbsentCodes,
		"a read of a key that does not exist")
	paramHistory = parameter(Parameter{
		Name: "history", Flag: "history",
		Usage: "keep each operation and its answer, for a check of linearizability",
		Rule: fmt.Sprintf("only with single generated keys; of writes only with a `valSize` of %d or more, of reads only "+
			"together with `verify`",
			keys.VersionSize),
	})
)
