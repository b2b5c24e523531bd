package spec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

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

// defaultEndpoints are where a member on this machine serves clients unless it is configured otherwise.
var defaultEndpoints = map[string]string{
	Etcd: etcd.DefaultEndpoint, ZooKeeper: zookeeper.DefaultEndpoint, Consul: consul.DefaultEndpoint,
	HTTP: keyvalue.DefaultEndpoint,
}

// feature is something that a load may ask for and a store does not have.
type feature struct {
	parameter *Parameter // that requires it
	required  func(s *Spec) bool
	allowed   string // with the reason
}

// unsupported is the table of what stores cannot do.
var unsupported = map[string][]feature{
	Etcd: {{paramConsistency, consistencyIs(Relaxed), `"l" or "s": etcd has no third consistency`}},
	ZooKeeper: append([]feature{
		{paramConsistency, consistencyIs(Relaxed), `"l" or "s": ZooKeeper has no third consistency`},
		{paramValSize, func(s *Spec) bool { return s.ValSize > zookeeper.MaxValue }, fmt.Sprintf(
			"at most %d bytes: ZooKeeper takes packets of less than 1 MiB (jute.maxbuffer)", zookeeper.MaxValue)},
		{paramUser, given(paramUser), "none: there is no authentication in loads for ZooKeeper"},
		{paramCAFile, (*Spec).Secured, "none: there is no TLS in loads for ZooKeeper"},
		{paramChroot, func(s *Spec) bool { return s.Chroot != "" && !isChroot(s.Chroot) }, chrootForm},
	}, noSpans("ZooKeeper has no ranges of keys")...),
	Consul: append([]feature{
		{paramUser, given(paramUser), "none: Consul knows tokens, see tokenFile"},
		{paramKeyPrefix, func(s *Spec) bool { return !isPath(s.Prefix) },
			"nothing that is no path of its own, with an empty part, '.' or '..' between slashes: Consul redirects such " +
				"requests"},
		{paramKey, func(s *Spec) bool { return !isPath(s.Key) },
			"no key with an empty part, '.' or '..' between slashes: Consul redirects such requests"},
	}, noSpans("Consul's answers to ranges have neither an end nor a limit")...),
	HTTP: append([]feature{
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
}

// own are the parameters that one store alone has.
var own = []struct {
	store      string
	parameters []*Parameter
}{
	{ZooKeeper, []*Parameter{paramChroot}},
	{Consul, []*Parameter{paramTokenFile}},
	{HTTP, []*Parameter{paramPutPath, paramGetPath, paramPutCodes, paramGetCodes, paramAbsentCodes}},
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
	for _, of := range own {
		for _, p := range of.parameters {
			if of.store != s.Store && given(p)(s) {
				return s.problem(p, fmt.Sprintf("only together with the store %q", of.store))
			}
		}
	}
	for _, missing := range unsupported[s.Store] {
		if missing.required(s) {
			return s.problem(missing.parameter, missing.allowed)
		}
	}
	if s.Store != HTTP {
		return nil
	}
	for _, p := range []*Parameter{paramPutPath, paramGetPath} {
		if text := p.Value(s).(string); p.Of(s.Operation) && !isTemplate(text) {
			return s.problem(p, templateForm)
		}
	}
	for _, p := range []*Parameter{paramPutCodes, paramGetCodes, paramAbsentCodes} {
		if _, err := Codes(p.Value(s).(string)); err != nil {
			return s.problem(p, codesForm+"; "+err.Error())
		}
	}
	for _, code := range s.AbsentKeyCodes() {
		if s.Operation.Reads() && slices.Contains(s.FoundCodes(), code) {
			return s.problem(paramAbsentCodes, fmt.Sprintf("other codes than %d, with which a read finds its key", code))
		}
	}
	return nil
}

// KeyInTemplate stands for the key in the template of a URL.
const KeyInTemplate = "{key}"

const (
	chrootForm = "the path of a znode: names of visible ASCII characters, none of them '.' or '..', with a slash before " +
		"each"
	templateForm = `at most 512 visible ASCII characters but '#', from '/' on, with {key} once`
	codesForm    = "comma-separated HTTP status codes in 200..599, none twice"
)

// isChroot tells whether a text is the path of a znode that is not the root (PathUtils.validatePath).
func isChroot(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return text != "/" && path.IsAbs(text) && path.Clean(text) == text
}

// isTemplate tells whether a text is a template of a URL, from the path on (RFC 9112 section 3.2.1).
func isTemplate(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '#' {
			return false
		}
	}
	return strings.HasPrefix(text, "/") && strings.Count(text, KeyInTemplate) == 1 &&
		!strings.ContainsAny(strings.Replace(text, KeyInTemplate, "", 1), "{}")
}

// Codes reads a list of HTTP status codes; the empty text is an empty list.
func Codes(text string) (codes []int, err error) {
	if text == "" {
		return nil, nil
	}
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
	text := p.Value(s).(string)
	if text == "" {
		text = p.Default
	}
	codes, _ := Codes(text) // a Spec that is valid has no others
	return codes
}

// WrittenCodes are the HTTP status codes of a put that succeeded.
func (s *Spec) WrittenCodes() []int { return s.statusCodes(paramPutCodes) }

// FoundCodes are the HTTP status codes of a read that found its key.
func (s *Spec) FoundCodes() []int { return s.statusCodes(paramGetCodes) }

// AbsentKeyCodes are the HTTP status codes of a read of a key that does not exist.
func (s *Spec) AbsentKeyCodes() []int { return s.statusCodes(paramAbsentCodes) }
