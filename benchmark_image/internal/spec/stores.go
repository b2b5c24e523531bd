package spec

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/store/zookeeper"
)

// The stores that a load can be for.
const (
	Etcd      = "etcd"
	ZooKeeper = "zookeeper"
	Consul    = "consul"
	HTTP      = "http" // any service that keeps values by key, as templates of its URLs describe
)

// storeNames are all of them, the default first.
var storeNames = []string{Etcd, ZooKeeper, Consul, HTTP}

// feature is something that a load may ask for and a store does not have.
type feature struct {
	parameter *Parameter // that requires it
	required  func(s *Spec) bool
	allowed   string // with the reason
}

// storeKind is all that is said of a store outside of its own package.
type storeKind struct {
	endpoint    string    // where a member on this machine serves clients unless it is configured otherwise
	alpn        string    // what members must agree to speak over TLS
	unsupported []feature // what it cannot do
	// protocol is how the members that s names are spoken to; secured is nil for plain connections.
	protocol func(s *Spec, secured store.Security) (store.Protocol, error)
}

var stores = map[string]storeKind{
	Etcd: {
		etcd.DefaultEndpoint, etcd.ALPN,
		[]feature{{paramConsistency, consistencyIs(Relaxed), `"l" or "s": etcd has no third consistency`}},
		func(s *Spec, secured store.Security) (store.Protocol, error) {
			user, err := s.user()
			return etcd.Protocol{Secured: secured, User: user}, err
		},
	},
	ZooKeeper: {
		zookeeper.DefaultEndpoint, "",
		append([]feature{
			{paramConsistency, consistencyIs(Relaxed), `"l" or "s": ZooKeeper has no third consistency`},
			{paramValSize, func(s *Spec) bool { return s.ValSize > zookeeper.MaxValue }, fmt.Sprintf(
				"at most %d bytes: ZooKeeper takes packets of less than 1 MiB (jute.maxbuffer)", zookeeper.MaxValue)},
			{paramUser, given(paramUser), "none: there is no authentication in loads for ZooKeeper"},
			{paramCAFile, (*Spec).Secured, "none: there is no TLS in loads for ZooKeeper"},
		}, noSpans("ZooKeeper has no ranges of keys")...),
		func(s *Spec, _ store.Security) (store.Protocol, error) { return zookeeper.New(s.Chroot), nil },
	},
	Consul: {
		consul.DefaultEndpoint, http1.ALPN,
		append([]feature{
			{paramUser, given(paramUser), "none: Consul knows tokens, see tokenFile"},
			{paramKeyPrefix, func(s *Spec) bool { return !isPath(s.Prefix) },
				"nothing that is no path of its own, with an empty part, '.' or '..' between slashes: Consul redirects such " +
					"requests"},
			{paramKey, func(s *Spec) bool { return !isPath(s.Key) },
				"no key with an empty part, '.' or '..' between slashes: Consul redirects such requests"},
		}, noSpans("Consul's answers to ranges have neither an end nor a limit")...),
		func(s *Spec, secured store.Security) (store.Protocol, error) {
			token, err := s.token()
			return consul.Protocol{Secured: secured, Token: token, Default: s.Consistency == Relaxed}, err
		},
	},
	HTTP: {
		keyvalue.DefaultEndpoint, http1.ALPN,
		append([]feature{
			{paramStore, func(s *Spec) bool { return s.Operation == Txn },
				`"etcd" or "consul": a service of which only URLs are known has no transactions`},
			{paramTargetLeader, given(paramTargetLeader),
				"false: of a service of which only URLs are known the leader is unknown"},
			{paramConsistency, func(s *Spec) bool { return s.Operation.Reads() && s.Consistency != Linearizable },
				`"l": what a read finds, the service and its URL say`},
			{paramUser, given(paramUser), "none: a service of which only URLs are known has no login"},
			{paramPutPath, func(s *Spec) bool { return s.Operation != Range && s.PutPath == "" },
				"required, for puts: " + templateForm},
			{paramGetPath, func(s *Spec) bool { return s.Operation.Reads() && s.GetPath == "" },
				"required, for reads: " + templateForm},
		}, noSpans("a service of which only URLs are known has no ranges")...),
		func(s *Spec, secured store.Security) (store.Protocol, error) {
			return &keyvalue.Protocol{Secured: secured, Put: s.PutPath, Get: s.GetPath,
				Written: s.statusCodes(paramPutCodes), Found: s.statusCodes(paramGetCodes),
				Absent: s.statusCodes(paramAbsentCodes)}, nil
		},
	},
}

// Securer gives what the connections of a load are secured with: it reads the files that s names. alpn is what members
// must agree to speak.
type Securer func(s *Spec, alpn string) (store.Security, error)

// Protocol is how the members that s names are spoken to.
func (s *Spec) Protocol(secure Securer) (store.Protocol, error) {
	of := stores[s.Store]
	if !s.Secured() {
		return of.protocol(s, nil)
	}
	secured, err := secure(s, of.alpn)
	if err != nil {
		return nil, err
	}
	return of.protocol(s, secured)
}

// noSpans is of stores that only read single keys.
func noSpans(reason string) (all []feature) {
	for _, p := range []*Parameter{
		paramSpanKeys, paramEndRange, paramIsPrefix, paramLimit, paramCountOnly, paramKeysOnly,
	} {
		all = append(all, feature{p, given(p), "not given: " + reason})
	}
	return all
}

// given tells whether a parameter is, which its operation may not have.
func given(p *Parameter) func(s *Spec) bool {
	return func(s *Spec) bool { return p.Of(s.Operation) && !p.zero(s) }
}

func consistencyIs(name string) func(s *Spec) bool {
	return func(s *Spec) bool { return s.Consistency == name }
}

// isPath tells whether a path in a URL stays what it is with this key at its end.
func isPath(key string) bool {
	clean := path.Clean("/" + key)
	return key == "" || clean == "/"+strings.TrimSuffix(key, "/")
}

func (s *Spec) validateStore() *Problem {
	for _, p := range Parameters {
		if p.Store != "" && p.Store != s.Store && given(p)(s) {
			return s.problem(p, fmt.Sprintf("only together with the store %q", p.Store))
		}
	}
	for _, missing := range stores[s.Store].unsupported {
		if missing.required(s) {
			return s.problem(missing.parameter, missing.allowed)
		}
	}
	for _, code := range s.statusCodes(paramAbsentCodes) {
		if s.Store == HTTP && s.Operation.Reads() && slices.Contains(s.statusCodes(paramGetCodes), code) {
			return s.problem(paramAbsentCodes, fmt.Sprintf("other codes than %d, with which a read finds its key", code))
		}
	}
	return nil
}

const (
	chrootForm = "the path of a znode: names of visible ASCII characters, none of them '.' or '..', with a slash before " +
		"each"
	templateForm = `at most 512 visible ASCII characters but '#', from '/' on, with {key} once`
	codesForm    = "comma-separated HTTP status codes in 200..599, none twice"
)

// isChroot tells whether a text is the path of a znode that is not the root (PathUtils.validatePath).
func isChroot(text string) (allowed string, ok bool) {
	return chrootForm, isVisible(text) && text != "/" && path.IsAbs(text) && path.Clean(text) == text
}

// isVisible tells whether a text has visible ASCII characters alone.
func isVisible(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// isTemplate tells whether a text is a template of a URL, from the path on (RFC 9112 section 3.2.1).
func isTemplate(text string) (allowed string, ok bool) {
	before, after, has := strings.Cut(text, keyvalue.Placeholder)
	ok = has && isVisible(text) && strings.HasPrefix(text, "/") && !strings.ContainsAny(before+after, "{}#")
	return templateForm, ok
}

func areCodes(text string) (allowed string, ok bool) {
	_, err := codes(text)
	return fmt.Sprint(codesForm, "; ", err), err == nil
}

// codes reads a list of HTTP status codes, which is not empty.
func codes(text string) (codes []int, err error) {
	seen := make(map[int]bool)
	for field := range strings.SplitSeq(text, ",") {
		code, err := strconv.Atoi(field)
		if err != nil || code < 200 || code > 599 || len(field) != 3 {
			return nil, fmt.Errorf("%.50q is none", field)
		}
		if seen[code] {
			return nil, fmt.Errorf("%d stands in the list twice", code)
		}
		seen[code] = true
		codes = append(codes, code)
	}
	return codes, nil
}

// statusCodes is the value of one of the parameters of status codes, with its default filled in.
func (s *Spec) statusCodes(p *Parameter) []int {
	codes, _ := codes(cmp.Or(p.Value(s).(string), p.Default)) // a Spec that is valid has no others
	return codes
}
