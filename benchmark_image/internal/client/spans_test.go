package client

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// spanCalls are reads of the 200 keys that TestSpansAreVerified writes.
var spanCalls = map[string][]string{
	"spans":           {"range", "--span-keys=30", "--key-order=uniform"},
	"limited spans":   {"range", "--span-keys=30", "--key-order=shuffled", "--limit=7"},
	"spans of one":    {"range", "--span-keys=1"},
	"only keys":       {"range", "--span-keys=30", "--keys-only"},
	"only counts":     {"range", "--span-keys=30", "--count-only"},
	"all keys":        {"range", "--span-keys=1000"},
	"a prefix":        {"range", "d/00", "--prefix"},
	"a short prefix":  {"range", "d/", "--prefix", "--limit=150"},
	"a named span":    {"range", "d/000A", "d/0015"},
	"a named key":     {"range", "d/000A"},
	"single keys":     {"range"},
	"spans and puts":  {"mixed", "--span-keys=30", "--require-found"},
	"spans, may lack": {"mixed", "--span-keys=30"},
}

// TestSpansAreVerified checks that right answers are accepted and wrong ones are not.
func TestSpansAreVerified(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		common := []string{"--total=25", "--clients=3", "--key-size=4", "--key-space-size=200", "--val-size=50", "--seed=5",
			"--endpoints=" + member.Endpoint}
		succeed(t, w, append(common, "put", "--total=200", "--prefix=d/")...)
		read := func(args []string) (failed int, errors map[string]int) {
			prefix := map[string]string{"range": "--key-prefix=d/", "mixed": "--prefix=d/"}[args[0]]
			status, result, stderr := callJSON(t, w, slices.Concat(args, common, []string{"--verify", prefix})...)
			if (status == ExitOK) != (result.Failed == 0) || result.Codes["Check"] != result.Failed ||
				result.Outcomes.Failed != result.Failed {
				t.Errorf("%q: status %d, %d failed, outcomes %+v, codes %v, %s", args, status, result.Failed,
					result.Outcomes, result.Codes, stderr)
			}
			if made := configured(t, result); !made.Verify || made.Named() != (made.KeyOrder == "") || made.KeySpace != 200 {
				t.Errorf("%q: configured %s", args, result.Configured)
			}
			return result.Failed, result.Errors
		}
		for name, args := range spanCalls {
			if failed, errors := read(args); failed > 0 {
				t.Errorf("%s: of right answers %d failed: %v", name, failed, errors)
			}
		}
		for name, spoil := range map[string]func(*etcdserverpb.RangeResponse){
			"the last key is missing": func(a *etcdserverpb.RangeResponse) {
				a.Count--
				a.Kvs = a.Kvs[:max(len(a.Kvs)-1, 0)]
			},
			"a value is another one": func(a *etcdserverpb.RangeResponse) {
				for _, kv := range a.Kvs[min(1, len(a.Kvs)):] {
					kv.Value = append(slices.Clone(kv.Value[:max(len(kv.Value)-1, 0)]), '-')
				}
			},
			"two keys in the wrong order": func(a *etcdserverpb.RangeResponse) {
				if len(a.Kvs) > 1 {
					a.Kvs[0], a.Kvs[1] = a.Kvs[1], a.Kvs[0]
				}
			},
			"a key of others": func(a *etcdserverpb.RangeResponse) {
				if len(a.Kvs) > 1 {
					a.Kvs[1] = &mvccpb.KeyValue{Key: append(slices.Clone(a.Kvs[0].Key), '0'), Value: a.Kvs[1].Value}
				}
			},
			"more is said": func(a *etcdserverpb.RangeResponse) { a.More = !a.More },
		} {
			member.Spoil.Store(&spoil)
			for reads, args := range spanCalls {
				// What the corrupted answer holds: one key has no order, and a count has no keys.
				few := strings.HasSuffix(reads, "key") || strings.Contains(reads, "one") || reads == "single keys" ||
					reads == "only counts"
				alike := name == "the last key is missing" && reads == "spans, may lack" ||
					few && slices.Contains([]string{"a value is another one", "two keys in the wrong order", "a key of others"}, name)
				if failed, errors := read(args); (failed == 0) != alike {
					t.Errorf("%s, %s: %d failed: %v", reads, name, failed, errors)
				}
			}
			member.Spoil.Store(nil)
		}
		cluster.Set("d/000A-", nil)
		for reads, want := range map[string]bool{
			"all keys": false, "a prefix": false, "a named span": false,
			"a named key": true, "single keys": true, "spans of one": true,
		} {
			if failed, errors := read(spanCalls[reads]); (failed == 0) != want {
				t.Errorf("%s, with a key of others: %d failed: %v", reads, failed, errors)
			}
		}
	})
}
