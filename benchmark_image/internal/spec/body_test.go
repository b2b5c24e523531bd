package spec

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
)

const (
	seedRead = `{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "key": "foo", ` +
		`"endRange": "foo3", "consistency": "l"}`
	seedWrite = `{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 6, "total": 1000, "keySize": 4, ` +
		`"valSize": 64, "targetLeader": true, "sequentialKeys": true}`
)

// TestBodiesBecomeSpecs: what a body does not name has its default, and what one program hands to the other describes
// the same load. Each parameter has a value other than its default.
func TestBodiesBecomeSpecs(t *testing.T) {
	unchanged := make(map[string]bool)
	for _, p := range Parameters {
		unchanged[p.Name] = true
	}
	for _, c := range []struct {
		operation Operation
		body      string
		change    func(*Spec) // nil: it is not compared
	}{
		{Put, seedWrite, func(s *Spec) {
			s.Endpoints, s.Clients, s.Conns, s.Total = []string{"10.0.0.251:2379"}, 5, 6, 1000
			s.KeySize, s.ValSize, s.TargetLeader, s.Sequential = 4, 64, true, true
		}},
		{Range, ` {"endpoints":"b:2,[::1]:1,a_1.example:1","keySize":8,"keySpace":500,"requireFound":true,
			"requestTimeout":0.25,"runTimeout":30,"dialTimeout":2,"seed":7,"consistency":"s"} `, func(s *Spec) {
			s.Endpoints, s.KeySize, s.KeySpace = []string{"b:2", "[::1]:1", "a_1.example:1"}, 8, 500
			s.RequestTimeout, s.RunTimeout, s.DialTimeout = 250*time.Millisecond, 30*time.Second, 2*time.Second
			s.Seed, s.Consistency, s.RequireFound = 7, "s", true
		}},
		{Mixed, `{"endpoints":"a:1,b:2","duration":2.5,"rate":100.5,"arrival":"poisson","keySpace":100,
			"keyOrder":"zipfian","zipfExponent":1.5,"ratio":0.25,"verify":true,"valSize":20,"warmupDuration":0.5,
			"targetMember":"b:2","keyPrefix":"p/","requireFound":true}`, func(s *Spec) {
			s.Endpoints, s.Total, s.Duration, s.Rate = []string{"a:1", "b:2"}, 0, 2500*time.Millisecond, 100.5
			s.Arrival, s.KeySpace, s.KeyOrder, s.ZipfExponent, s.PutRatio = "poisson", 100, "zipfian", 1.5, 0.25
			s.Verify, s.ValSize, s.WarmupDuration, s.TargetMember = true, 20, 500*time.Millisecond, "b:2"
			s.Prefix, s.RequireFound = "p/", true
		}},
		{Range, `{"endpoints":"a:1","key":"k","prefix":true,"limit":5,"keysOnly":true,"warmupRequests":10}`,
			func(s *Spec) { s.Key, s.KeyIsPrefix, s.Limit, s.KeysOnly, s.WarmupRequests = "k", true, 5, true, 10 }},
		{Range, `{"endpoints":"a:1","key":"k","endRange":"\u0000"}`, func(s *Spec) { s.Key, s.End = "k", AllKeys }},
		{Put, `{"endpoints":"a:1,b:1","duration":1.5,"rate":123.5,"arrival":"poisson","warmupDuration":2.000000001,
			"targetMember":"b:1","leaderless":true}`, nil},
		{Put, `{"endpoints":"a:1","rate":0.3,"total":7,"warmupRequests":77,"seed":9007199254740991,"loadSeed":11,
			"startNs":43331150035514,"keyPrefix":"-p q"}`, nil},
		{Put, `{"endpoints":"a:1","store":"zookeeper","keyPrefix":"/ü","chroot":"/--a/b%2F"}`, nil},
		{Put, `{"endpoints":"a:1","caFile":"/c a","certFile":"c","keyFile":"k","user":"ü","passwordFile":"p"}`, nil},
		{Put, `{"endpoints":"a:1","store":"http","putPath":"/v0/entity?id={key}&ack=2","putCodes":"201,202"}`, nil},
		{Put, `{"endpoints":"a:1","store":"consul","tokenFile":"t"}`, nil},
		{Range, `{"endpoints":"a:1","key":"--conns=3","endRange":"-z\n","consistency":"s","limit":12,"keysOnly":true}`, nil},
		{Range, `{"endpoints":"a:1","key":"","prefix":true,"countOnly":true}`, nil},
		{Range, `{"endpoints":"a:1","keySize":8,"keySpace":100,"keyPrefix":"p","requireFound":true,"spanKeys":3,"limit":2}`,
			nil},
		{Range, `{"endpoints":"a:1","key":"-p0","prefix":true,"keySize":4,"keySpace":100,"keyPrefix":"-p","valSize":9,
			"verify":true}`, nil},
		{Range, `{"endpoints":"a:1","key":"ключ \u2028<&\u0001","endRange":"\u0000"}`, nil},
		{Range, `{"endpoints":"a:1","key":"k","store":"consul","consistency":"default"}`, nil},
		{Range, `{"endpoints":"a:1","key":"k","store":"http","getPath":"/{key}",
			"getCodes":"200,203","absentCodes":"404,410"}`, nil},
		{Mixed, `{"endpoints":"a:1","ratio":0.125,"verify":true,"requireFound":true,"keyOrder":"zipfian",
			"zipfExponent":1.25,"valSize":100,"keySpace":50,"keyPrefix":"m/","consistency":"s","spanKeys":7}`, nil},
		{Mixed, `{"endpoints":"a:1","ratio":0}`, nil},
		{Txn, `{"endpoints":"a:1","valSize":0,"keyOrder":"uniform","timelineInterval":0.25,"dilation":4}`, nil},
		{Txn, `{"endpoints":"a:1","valSize":20,"history":true}`, nil},
		{Txn, `{"endpoints":"a:1"}`, nil},
	} {
		got, problem := ParseBody(c.operation, []byte(c.body))
		assert.Must(t, problem == nil, "%s: %v", c.body, problem)
		checkEncoding(t, *got)
		want := Default(c.operation)
		for _, p := range Parameters {
			if p.Value(got) != p.Value(&want) {
				delete(unchanged, p.Name)
			}
		}
		if c.change != nil {
			want.Endpoints = []string{"a:1"}
			c.change(&want)
			want.StallTimeout = got.StallTimeout // that of the load, see its test
			assert.Equal(t, *got, want, "%s", c.body)
		}
	}
	assert.That(t, len(unchanged) == 0, "no test changes %v", unchanged)
}

// TestBodiesThatAreRefused has what is not about the bounds of one number, which package contract tries.
func TestBodiesThatAreRefused(t *testing.T) {
	const put, read = Put, Range
	for _, c := range []struct {
		operation Operation
		body      string
		field     string
		message   string
	}{
		{put, ``, "", "empty"},
		{put, `null`, "", "starts with"},
		{put, `{`, "", "EOF"},
		{put, `{"endpoints":"a:1",}`, "", "not one JSON object"},
		{put, `{"endpoints":"a:1"} {}`, "", "follows"},
		{put, "{\"endpoints\":\"a\xff:1\"}", "", "UTF-8"},
		{put, `clients=5`, "", "not one JSON object"},
		{put, `{"endpoints":"a:1","total":1,"total":2}`, "total", "twice"},
		{put, `{"endpoints":"a:1","Total":1}`, "Total", "not a field"},
		{put, `{"endpoints":"a:1","nonsense":{"deep":[1]}}`, "nonsense", "not a field"},
		{put, `{}`, "endpoints", "missing"},
		{put, `{"endpoints":"a:1,a:1"}`, "endpoints", "twice"},
		{put, `{"endpoints":null}`, "endpoints", "a string"},
		{put, `{"endpoints":"a:1","clients":5.5}`, "clients", "an integer"},
		{put, `{"endpoints":"a:1","total":1000.0}`, "total", "1000.0"},
		{put, `{"endpoints":"a:1","stallTimeout":1e-10}`, "stallTimeout", "1e-10"},
		{put, `{"endpoints":"a:1","keySize":1,"total":63}`, "keySize", "at least 2 bytes"},
		{put, `{"endpoints":"a:1","targetLeader":1}`, "targetLeader", "true or false"},
		{put, `{"endpoints":"a:1","requestTimeout":"60s"}`, "requestTimeout", "a number of seconds"},
		{put, seedRead, "key", "POST /benchmark/read"},
		{read, `{"endpoints":"a:1","sequentialKeys":true,"nonsense":1}`, "sequentialKeys", "POST /benchmark/write"},
		{read, `{"endpoints":"a:1"}`, "key", "missing"},
		{read, `{"endpoints":"a:1","key":""}`, "key", "at least 1 byte"},
		{read, `{"endpoints":"a:1","key":"\ud800"}`, "key", "Unicode"},
		{read, `{"endpoints":"a:1","key":"a\u0000"}`, "key", "zero"},
		{read, `{"endpoints":"a:1","key":"k","endRange":"a"}`, "endRange", "sorts after"},
		{read, `{"endpoints":"a:1","key":"k","consistency":"x"}`, "consistency", "serializable"},
		{read, `{"endpoints":"a:1","key":"k","keySize":8}`, "keySize", "either"},
		{read, `{"endpoints":"a:1","key":"k","keySpace":8}`, "keySize", "missing"},
		{read, `{"endpoints":"a:1","key":"k","spanKeys":5}`, "spanKeys", "only together with a key size"},
		{read, `{"endpoints":"a:1","key":"k","verify":true}`, "verify", "only together with a key size"},
		{read, `{"endpoints":"a:1","key":"k","verify":true,"keySize":8}`, "keySpace", "how many keys were written"},
		{read, `{"endpoints":"a:1","key":"k","prefix":true,"verify":true,"keySize":8,"keySpace":9,"keyPrefix":"q"}`,
			"verify", "start with the prefix"},
		{read, `{"endpoints":"a:1","key":"k","prefix":true,"verify":true,"keySize":8,"keySpace":9}`, "key",
			"at least one of the keys"},
		{put, `{"endpoints":"a:1","rate":1e999}`, "rate", "a number"},
		{put, `{"endpoints":"a:1","arrival":"burst"}`, "arrival", "poisson"},
		{put, `{"endpoints":"a:1","duration":5,"total":5}`, "duration", "either"},
		{put, `{"endpoints":"a:1","warmupRequests":5,"warmupDuration":5}`, "warmupDuration", "either"},
		{put, `{"endpoints":"a:1","targetMember":"b:1"}`, "targetMember", "a:1"},
		{put, `{"endpoints":"a:1","leaderless":true,"targetLeader":true}`, "leaderless", "either no leader"},
		{put, `{"endpoints":"a:1","keyOrder":"random"}`, "keyOrder", "zipfian"},
		{put, `{"endpoints":"a:1","zipfExponent":0}`, "zipfExponent", "more than 0"},
		{put, `{"endpoints":"a:1","ratio":0.5}`, "ratio", "POST /benchmark/mixed"},
		{put, `{"endpoints":"a:1","arrival":"poisson"}`, "arrival", "closed loop"},
		{put, `{"endpoints":"a:1","zipfExponent":2}`, "zipfExponent", "zipfian"},
		{read, `{"endpoints":"a:1","keySize":8,"valSize":64}`, "valSize", "verify"},
		{put, `{"endpoints":"a:1","valSize":19,"history":true}`, "valSize", "at least 20 bytes with a history"},
		{Mixed, `{"endpoints":"a:1","keySpace":9,"valSize":19,"verify":true}`, "valSize", "at least 20 bytes with verify"},
		{Mixed, `{"endpoints":"a:1","keySpace":9,"valSize":20,"history":true}`, "history", "verify"},
		{Mixed, `{"endpoints":"a:1","keySpace":9,"valSize":20,"history":true,"verify":true,"spanKeys":2}`, "history",
			"single generated keys"},
		{read, `{"endpoints":"a:1","key":"k0","prefix":true,"keySize":1,"keySpace":9,"keyPrefix":"k","verify":true,` +
			`"history":true}`, "history", "single"},
		{read, `{"endpoints":"a:1","key":"k","keyPrefix":"p"}`, "keyPrefix", "key size"},
		{put, `{"endpoints":"a:1","keyPrefix":"a\u0000"}`, "keyPrefix", "none of them zero"},
		{read, `{"endpoints":"a:1","keySize":1,"keySpace":63}`, "keySize", "at least 2 bytes"},
	} {
		s, refusal := ParseBody(c.operation, []byte(c.body))
		assert.That(t, refusal != nil && refusal.Field == c.field && strings.Contains(refusal.Message, c.message) &&
			!strings.Contains(refusal.Message, "\n"), "%s %s: %+v, %+v, want field %q and %q", c.operation, c.body, s,
			refusal, c.field, c.message)
	}
}

// TestRefusalsStaySmallAndRepeatNoPassword has texts that are huge, and passwords where none belongs.
func TestRefusalsStaySmallAndRepeatNoPassword(t *testing.T) {
	for _, body := range []string{
		`{"HUGE":1}`, `"HUGE"`, `{"key":"k","endpoints":"HUGE"}`, `{"endpoints":"a:1","key":"k","consistency":"HUGE"}`,
		`{"endpoints":"a:1","key":"k","clients":"HUGE"}`, `{"endpoints":"a:1","key":"k","user":"root:sesame"}`,
		`{"endpoints":"a:1","user":"root","password":"sesame"}`,
		`{"endpoints":"a:1","user":"root","passWord":{"is":"sesame"}}`,
	} {
		_, refusal := ParseBody(Range, []byte(strings.Replace(body, "HUGE", strings.Repeat("x", 60_000), 1)))
		encoded, err := json.Marshal(refusal)
		assert.That(t, refusal != nil && err == nil && len(encoded) <= 2000 &&
			!strings.Contains(string(encoded)+refusal.FlagError(), "sesame"), "%s: %.3000s, %v", body, encoded, err)
	}
}

func FuzzParseBody(native *testing.F) {
	f := inputtest.F{F: native}
	for _, body := range []string{seedRead, seedWrite, `{"endpoints":"a:1","key":"k","endRange":"\u0000"}`,
		`{"a":{"b":[1,{}]}}`, `{"endpoints":"a:1","seed":1e400}`} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, write bool) {
		operation := Range
		if write {
			operation = Put
		}
		s, refusal := ParseBody(operation, body)
		if refusal != nil {
			_, err := json.Marshal(refusal)
			assert.That(t, err == nil && refusal.Message != "", "%q: refusal %+v, %v", body, refusal, err)
			return
		}
		problem := s.Validate()
		assert.That(t, problem == nil && json.Valid(body), "%q is accepted with %v, or is no JSON", body, problem)
		checkEncoding(t, *s)
	})
}

// checkEncoding checks that what one program hands to the other, and what a result keeps, describe the same load.
func checkEncoding(t *testing.T, want Spec) {
	t.Helper()
	encoded, err := json.Marshal(&want)
	assert.Must(t, err == nil && len(encoded) <= MaxEncoded, "%d bytes, %v", len(encoded), err)
	got, problem := Decode(encoded)
	assert.Must(t, problem == nil, "%s: %v", encoded, problem)
	assert.Equal(t, *got, want, "%s", encoded)
	body := want.Body()
	again, problem := ParseBody(want.Operation, body)
	assert.Must(t, problem == nil, "%s: %v", body, problem)
	assert.That(t, again.Order() == want.Order() && again.DistinctKeys() == want.DistinctKeys(),
		"%s has other keys than %+v", body, want)
}

// TestTheLargestSpecFits has the largest texts, of characters that JSON escapes.
func TestTheLargestSpecFits(t *testing.T) {
	s := Default(Range)
	s.Key, s.End, s.KeySize, s.KeySpace, s.Verify = strings.Repeat("\x01", MaxKeyText), strings.Repeat("\x02",
		MaxKeyText), 1024, 1, true
	s.Prefix, s.Endpoints, s.User = "\x01", nil, strings.Repeat("\x01", MaxUser)
	for _, p := range fileParameters {
		*p.at(&s).(*string) = strings.Repeat("\x01", MaxFileName)
	}
	for i := range MaxEndpoints {
		label := strings.Repeat(string(rune('a'+i%26)), 62)
		s.Endpoints = append(s.Endpoints, strings.Repeat(label+".", 3)+strings.Repeat("b",
			60)+string(rune('a'+i/26))+":65535")
	}
	encoded, err := json.Marshal(&s)
	assert.That(t, err == nil && len(encoded)+6*MaxKeyText <= MaxEncoded && checkEndpoints(s.Endpoints) == nil,
		"%d bytes, %v", len(encoded), err)
}

func TestWhatIsNoEncodedSpecIsRefused(t *testing.T) {
	for encoded, want := range map[string]string{
		`{"endpoints":"a:1"}`:                             "operation: got",
		`{"operation":"get","endpoints":"a:1"}`:           `one of ["put" `,
		`{"operation":"put","endpoints":"a:1","key":"k"}`: "belongs to POST /benchmark/read",
		`{"operation":"put","endpoints":"a:1","conns":0}`: "1..10000",
	} {
		s, problem := Decode([]byte(encoded))
		assert.That(t, problem != nil && strings.Contains(problem.Error(), want), "%s: %+v, %v", encoded, s, problem)
	}
}
