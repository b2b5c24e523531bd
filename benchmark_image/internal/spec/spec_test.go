package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/store/keyvalue"
)

func TestEndpointsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "empty",
		"a:1,":                              "not host:port",
		"a:1,a:1":                           "twice",
		"a":                                 "not host:port",
		"a:":                                "port",
		"a:0":                               "port",
		"a:65536":                           "port",
		"a:+1":                              "port",
		"a:01":                              "port",
		":2379":                             "valid",
		"10.0.0.999:1":                      "valid IP",
		"1:2:3":                             "not host:port",
		"[::g]:1":                           "valid IP",
		"http://a:1":                        "scheme",
		"https://a:1":                       "TLS",
		"a:1, b:1":                          "valid host",
		"-a:1":                              "valid host",
		"a..b:1":                            "valid host",
		strings.Repeat("a", 64) + ":1":      "valid host",
		strings.Repeat("h:1,", 100) + "h:1": "101 endpoints",
	} {
		_, err := ParseEndpoints(text)
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "%.40q: %v, want %q", text, err, want)
	}
}

// TestHowManyKeysThereAre: a duration does not make longer keys necessary than it ever did.
func TestHowManyKeysThereAre(t *testing.T) {
	for _, c := range []struct {
		change func(*Spec)
		want   int
	}{
		{func(*Spec) {}, DefaultTotal},
		{func(s *Spec) { s.Total = MaxTotal }, MaxKeySpace},
		{func(s *Spec) { s.Total, s.Duration, s.KeySize = 0, time.Hour, 4 }, 10_000_000},
		{func(s *Spec) { s.KeySpace, s.Total = 7, MaxTotal }, 7},
		{func(s *Spec) { s.Total, s.WarmupRequests = 100, 5 }, 105},
		{func(s *Spec) { s.Total, s.WarmupRequests = 100, MaxTotal }, MaxKeySpace},
		{func(s *Spec) { s.Total, s.WarmupDuration = 100, time.Second }, 10_000_100},
		{func(s *Spec) { s.Total, s.WarmupDuration, s.KeyOrder = 100, time.Second, Uniform }, 100},
		{func(s *Spec) { s.Total, s.Duration, s.WarmupDuration, s.KeySize = 0, time.Hour, time.Second, 4 }, 10_000_000},
		{func(s *Spec) { s.Total, s.Duration, s.WarmupRequests = 0, time.Hour, 5 }, 10_000_005},
	} {
		s := Default(Put)
		c.change(&s)
		assert.Equal(t, s.DistinctKeys(), c.want, "keys of %+v", s)
		assert.Equal(t, s.Validate(), nil, "%+v", s)
	}
}

// TestValidateNamesTheProblem has what no body can say, or what TestBodiesThatAreRefused has not.
func TestValidateNamesTheProblem(t *testing.T) {
	for _, c := range []struct {
		operation Operation
		change    func(*Spec)
		field     string
		flag      string
		allowed   string
	}{
		{Put, func(s *Spec) { s.Endpoints = nil }, "endpoints", "--endpoints", "host:port"},
		{Put, func(s *Spec) { s.Total = 0 }, "total", "--total", "1..86400000000"},
		{Put, func(s *Spec) { s.KeySize = 0 }, "keySize", "--key-size", "1..1024"},
		{Put, func(s *Spec) { s.KeySpace = -1 }, "keySpace", "--key-space-size", "1..1000000000"},
		{Put, func(s *Spec) { s.Prefix = strings.Repeat("p", MaxKeyText+1) }, "keyPrefix", "--prefix", "4096"},
		{Put, func(s *Spec) { s.CertFile, s.KeyFile = "c", "k" }, "certFile", "--cert", "only together with a CA"},
		{Put, func(s *Spec) { s.CAFile, s.CertFile = "a", "c" }, "certFile", "--cert", "private key"},
		{Put, func(s *Spec) { s.CAFile = "a\x00" }, "caFile", "--cacert", "zero"},
		{Range, func(s *Spec) { s.PasswordFile = "p" }, "passwordFile", "--password-file", "user"},
		{Range, func(s *Spec) { s.User = "root:" }, "user", "--user", "without a colon"},
		{Range, func(s *Spec) { s.User = strings.Repeat("u", 257) }, "user", "--user", "256 bytes"},
		{Range, func(s *Spec) { s.End = "k" }, "endRange", "END", "after"},
		{Range, func(s *Spec) { s.End, s.KeyIsPrefix = "z", true }, "endRange", "END", "either"},
		{Range, func(s *Spec) { s.CountOnly, s.KeysOnly = true, true }, "keysOnly", "--keys-only", "count"},
		{Range, func(s *Spec) { s.KeySpace = 8 }, "keySpace", "--key-space-size", "together"},
		{Range, func(s *Spec) { s.Key, s.KeySize, s.KeySpace = "", 2, 3845 }, "keySize", "--key-size", "at least 3"},
	} {
		s := Default(c.operation)
		if c.operation == Range {
			s.Key = "k"
		}
		c.change(&s)
		problem := s.Validate()
		assert.That(t, problem != nil && problem.Field == c.field && strings.Contains(problem.Allowed, c.allowed) &&
			strings.HasPrefix(problem.FlagError(), c.flag+": got "), "%s: a bad %s gives %+v, want flag %s, allowed: %s",
			c.operation, c.field, problem, c.flag, c.allowed)
	}
}

func TestSecondsThatNoDurationHolds(t *testing.T) {
	for in, want := range map[float64]time.Duration{0.001: time.Millisecond, 60: time.Minute, 1e300: 1<<63 - 1,
		1e10: 1<<63 - 1, -1e300: 1<<63 - 1} {
		assert.Equal(t, Seconds(in), want, "Seconds(%g)", in)
	}
}

func TestWithoutASuccessALoadWithATotalIsEndedAndOneWithADurationIsNot(t *testing.T) {
	for _, c := range []struct {
		change func(*Spec)
		want   time.Duration
		lost   time.Duration // without a connection to any member
	}{
		{func(*Spec) {}, 61 * time.Second, 10 * time.Second},
		{func(s *Spec) { s.RequestTimeout = 100 * time.Millisecond }, 200 * time.Millisecond, 10 * time.Second},
		{func(s *Spec) { s.RequestTimeout, s.Rate = 5*time.Second, 10 }, 7500 * time.Millisecond, 10 * time.Second},
		{func(s *Spec) { s.Duration, s.Total = time.Second, 0 }, 0, 0},
		{func(s *Spec) { s.StallTimeout = 0 }, 0, 0},
		{func(s *Spec) { s.Duration, s.Total, s.StallTimeout = time.Second, 0, 3*time.Second }, 3 * time.Second, 0},
		{func(s *Spec) { s.DialTimeout = time.Second }, 61 * time.Second, time.Second},
	} {
		s := Default(Put)
		stall := s.StallTimeout
		c.change(&s)
		s.Complete(func(name string) bool {
			return name == "total" && s.Total > 0 || name == "stallTimeout" && s.StallTimeout != stall
		})
		assert.Equal(t, [2]time.Duration{s.StallTimeout, s.LostTimeout()}, [2]time.Duration{c.want, c.lost}, "%+v", s)
		assert.Equal(t, s.Validate(), nil, "%+v", s)
	}
}

func TestFilesOfCallersStayInTheFolder(t *testing.T) {
	for name, want := range map[string]string{
		"ca.pem": "/folder/ca.pem", "..ca": "/folder/..ca", "": "", "/etc/passwd": "slash", "../ca.pem": "slash",
		"..": "slash", ".": "slash", "a/b": "slash", "ca.pem/": "slash",
	} {
		s := Default(Put)
		s.CAFile, s.User, s.PasswordFile = "ca", "root", name
		problem := s.Locate("/folder")
		assert.That(t, (problem != nil || (s.PasswordFile == want && s.CAFile == "/folder/ca")) &&
			(problem == nil || (problem.Field == "passwordFile" && strings.Contains(problem.Allowed, want))), "%q: %q, %v",
			name, s.PasswordFile, problem)
	}
	s := Default(Put)
	assert.Equal(t, s.Locate(""), nil, "without files")
	s.KeyFile = "key.pem"
	problem := s.Locate("")
	assert.That(t, problem != nil && problem.Field == "keyFile" && strings.Contains(problem.Allowed, "--credentials"),
		"without a folder: %v", problem)
}

func TestPrefixSpan(t *testing.T) {
	for prefix, want := range map[string][2]string{
		"a": {"a", "b"}, "ab\xff": {"ab\xff", "ac"}, "\xff\xff": {"\xff\xff", "\x00"}, "": {"\x00", "\x00"},
	} {
		key, end := prefixSpan(prefix)
		assert.Equal(t, [2]string{string(key), string(end)}, want, "prefix %q", prefix)
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
		{func(s *Spec) { s.Key = "q/00" }, 0, 0, "verify"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/", true }, 0, space, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/0", true }, 0, 62, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/4", true }, 4 * 62, space, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/5", true }, 0, 0, "key"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/00", true }, 0, 1, ""},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p/000", true }, 0, 0, "key"},
		{func(s *Spec) { s.Key, s.KeyIsPrefix = "p", true }, 0, 0, "verify"},
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
		if problem := s.Validate(); problem != nil {
			assert.Equal(t, problem.Field, c.refused, "field of the problem of %q..%q", s.Key, s.End)
			continue
		}
		first, last := s.Known()
		assert.That(t, c.refused == "" && first == c.first && last == c.last, "%q..%q holds keys %d to %d, want %+v", s.Key,
			s.End, first, last, c)
	}
}

// TestWhatAStoreLacksIsRefused has loads for stores that cannot carry them, and some that they can.
func TestWhatAStoreLacksIsRefused(t *testing.T) {
	const noThird, onlyWith = "has no third consistency", "only together with the store"
	const byURL = "the service and its URL say"
	const put, get = `"putPath":"/{key}"`, `"getPath":"/v0/entity?id={key}&ack=2&from=3"`
	for body, want := range map[string]string{
		`range {"key":"k","consistency":"default"}`:                                             "etcd " + noThird,
		`put {"putPath":"/{key}"}`:                                                              onlyWith,
		`range {"key":"k","absentCodes":"404"}`:                                                 onlyWith,
		`range {"store":"zookeeper","key":"k"}`:                                                 "",
		`range {"store":"zookeeper","key":"k","consistency":"s","requireFound":true}`:           "",
		`range {"store":"zookeeper","key":"k","consistency":"default"}`:                         noThird,
		`mixed {"store":"zookeeper","keySpace":9,"valSize":20,"verify":true,"history":true}`:    "",
		`txn {"store":"zookeeper","valSize":1000000,"targetLeader":true}`:                       "",
		`range {"store":"zookeeper","key":"k","prefix":true}`:                                   "no ranges of keys",
		`range {"store":"zookeeper","keySize":8,"spanKeys":2}`:                                  "no ranges of keys",
		`range {"store":"zookeeper","key":"k","countOnly":true}`:                                "no ranges of keys",
		`put {"store":"zookeeper","valSize":1000001}`:                                           "at most 1000000 bytes",
		`put {"store":"zookeeper","user":"me"}`:                                                 "no authentication",
		`put {"store":"zookeeper","caFile":"f"}`:                                                "no TLS",
		`put {"store":"zookeeper","chroot":"/a/b c"}`:                                           "visible ASCII",
		`put {"store":"zookeeper","chroot":"/"}`:                                                "a slash before each",
		`put {"store":"zookeeper","chroot":"a/b"}`:                                              "a slash before each",
		`put {"store":"zookeeper","chroot":"/a//b"}`:                                            "a slash before each",
		`put {"store":"zookeeper","chroot":"/a/../b"}`:                                          "a slash before each",
		`put {"store":"zookeeper","chroot":"/a/b.c/...d"}`:                                      "",
		`range {"store":"zookeeper","key":"k","chroot":"/ü"}`:                                   "visible ASCII",
		`put {"store":"consul","tokenFile":"t"}`:                                                "",
		`put {"tokenFile":"t"}`:                                                                 onlyWith,
		`put {"chroot":"/a"}`:                                                                   onlyWith,
		`put {"store":"zetcd"}`:                                                                 `"consul"`,
		`put {"store":"consul","targetLeader":true}`:                                            "",
		`put {"store":"consul","keyPrefix":"a/b/"}`:                                             "",
		`put {"store":"consul","keyPrefix":"a//b"}`:                                             "redirects",
		`put {"store":"consul","keyPrefix":"/a"}`:                                               "redirects",
		`range {"store":"consul","key":"./k"}`:                                                  "redirects",
		`range {"store":"consul","key":"k/"}`:                                                   "",
		`range {"store":"consul","key":"k","consistency":"s"}`:                                  "",
		`put {"store":"consul","user":"u"}`:                                                     "tokenFile",
		`range {"store":"consul","key":"k","prefix":true}`:                                      "neither an end nor a limit",
		`mixed {"store":"consul","spanKeys":2}`:                                                 "neither an end nor a limit",
		`txn {"store":"consul"}`:                                                                "",
		`put {"store":"http"}`:                                                                  "required, for puts",
		`range {"store":"http","key":"k"}`:                                                      "required, for reads",
		`mixed {"store":"http",` + put + `}`:                                                    "required, for reads",
		`mixed {"store":"http",` + put + `,` + get + `}`:                                        "",
		`mixed {"store":"http",` + put + `,` + get + `,"spanKeys":2}`:                           "no ranges",
		`mixed {"store":"http",` + put + `,` + get + `,"consistency":"s"}`:                      byURL,
		`txn {"store":"http"}`:                                                                  "no transactions",
		`put {"store":"http",` + put + `,"targetLeader":true}`:                                  "the leader is unknown",
		`put {"store":"http",` + put + `,"user":"u"}`:                                           "no login",
		`put {"store":"http","putPath":"{key}"}`:                                                "from '/' on",
		`put {"store":"http","putPath":"/key"}`:                                                 "{key} once",
		`put {"store":"http","putPath":"/{key}/{key}"}`:                                         "{key} once",
		`put {"store":"http","putPath":"/{key}{id}"}`:                                           "{key} once",
		`put {"store":"http","putPath":"/{key} HTTP/1.1"}`:                                      "visible ASCII",
		`put {"store":"http","putPath":"/{key}\r\nX: y"}`:                                       "visible ASCII",
		`put {"store":"http","putPath":"/{key}#a"}`:                                             "but '#'",
		`put {"store":"http",` + put + `,"putCodes":"200,200"}`:                                 "twice",
		`put {"store":"http",` + put + `,"putCodes":"99"}`:                                      "status codes",
		`put {"store":"http",` + put + `,"putCodes":"200, 201"}`:                                "status codes",
		`put {"store":"http",` + put + `,"putCodes":"+20"}`:                                     "status codes",
		`range {"store":"http","key":"k",` + get + `,"absentCodes":"200"}`:                      "other codes than 200",
		`range {"store":"http","key":"k",` + get + `,"getCodes":"404"}`:                         "other codes than 404",
		`range {"store":"http","key":"k",` + get + `,"getCodes":"200,404","absentCodes":"410"}`: "",
	} {
		operation, rest, _ := strings.Cut(body, " ")
		s, problem := ParseBody(Operation(operation), []byte(strings.Replace(rest, "{", `{"endpoints":"a:1",`, 1)))
		assert.That(t, (problem == nil) == (want == "") && (problem == nil || strings.Contains(problem.Error(), want)),
			"%s: %+v, %v", body, s, problem)
	}
}

func TestStatusCodesHaveDefaults(t *testing.T) {
	for codes, want := range map[string][][]int{"": {{200, 201, 204}, {200}, {404}}, "202": {{202}, {200}, {404}}} {
		s := Default(Mixed)
		s.Store, s.PutCodes = HTTP, codes
		protocol, err := s.Protocol(nil)
		p := protocol.(*keyvalue.Protocol)
		assert.OK(t, err)
		assert.Equal(t, [][]int{p.Written, p.Found, p.Absent}, want, "codes %q of puts", codes)
	}
}

func TestEachStoreHasItsEndpoint(t *testing.T) {
	for _, name := range storeNames {
		s := Default(Put)
		s.Store, s.PutPath = name, map[string]string{HTTP: "/{key}"}[name]
		s.Complete(func(string) bool { return false })
		assert.That(t, s.Endpoints[0] == stores[name].endpoint && s.Validate() == nil, "%s: endpoints %v, %v", name,
			s.Endpoints, s.Validate())
		s.Endpoints = []string{"a:1"}
		s.Complete(func(name string) bool { return name == paramEndpoints.Name })
		assert.Equal(t, s.Endpoints, []string{"a:1"}, "%s: endpoints that were given", name)
	}
}

func TestTokensAreOnTheFirstLineOfTheirFile(t *testing.T) {
	for content, want := range map[string]string{
		"t-1\r\nrest": "t-1", "t-1": "t-1", "": "is empty", "\nt-1": "is empty", "a b\n": "visible ASCII",
		"\u00fc": "visible ASCII", "a\x00": "visible ASCII",
	} {
		file := filepath.Join(t.TempDir(), "token")
		assert.OK(t, os.WriteFile(file, []byte(content), 0o600))
		got, err := (&Spec{TokenFile: file}).token()
		if err != nil {
			got = err.Error()
		}
		assert.That(t, strings.Contains(got, want) && (err == nil) == (got == want), "%q: %q, want %q", content, got, want)
	}
	found, problem := (&Spec{}).token()
	assert.That(t, found == "" && problem == nil, "without a file: %q, %v", found, problem)
	_, fault := (&Spec{TokenFile: filepath.Join(t.TempDir(), "none")}).token()
	assert.That(t, fault != nil, "a file that is not there has a token")
}
