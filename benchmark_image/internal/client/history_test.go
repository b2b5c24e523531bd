package client

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/verify"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// mixedArgs are a load whose reads are checked, of 40 keys that hold a data set.
var mixedArgs = []string{"--key-size=3", "--key-space-size=40", "--val-size=64", "--clients=12", "--conns=3"}

// startLoaded starts a cluster that holds the data set of mixedArgs.
func startLoaded(t *testing.T, w *worldtest.World) *etcdtest.Cluster {
	t.Helper()
	cluster := etcdtest.Simulate(w, 3, nil)
	succeed(t, w, append(mixedArgs, "put", "--total=40", endpointsOf(cluster))...)
	return cluster
}

// keep runs a load that keeps a history.
func keep(t *testing.T, w *worldtest.World, cluster *etcdtest.Cluster, args ...string) (result report.Result,
	path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.jsonl.gz")
	args = append(append([]string{args[0], "--history", "--history-file=" + path, endpointsOf(cluster)}, mixedArgs...),
		args[1:]...)
	_, result, stderr := callJSON(t, w, args...)
	assert.Must(t, result.History != nil && result.History.Lost == 0, "history %+v: %s", result.History, stderr)
	return result, path
}

// judge judges a history beside the store's own, if there is one.
func judge(t *testing.T, path string, events []etcdtest.Event) *verify.Result {
	t.Helper()
	file, err := os.Open(path)
	assert.OK(t, err)
	defer file.Close()
	var log *history.Log
	if events != nil {
		log = &history.Log{Whole: true}
		for _, e := range events {
			log.Events = append(log.Events, history.Event{Revision: e.Revision, Key: e.Key, Value: string(e.Value)})
		}
	}
	result, err := verify.Judge(file, log, verify.Limits{Time: time.Minute})
	assert.OK(t, err)
	return result
}

// once is true for one write of 2,000, counted from 1.
func once(number int) bool { return number%2000 == 1000 }

// often is true for one read of 200: one that is stale breaks no promise while the last write of its key is under way.
func often(number int) bool { return number%200 == 100 }

func TestAStoreThatKeepsItsPromisesIsFoundTo(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := startLoaded(t, w)
		for _, args := range [][]string{
			{"mixed", "--verify", "--total=3000", "--warmup=500"},
			{"mixed", "--verify", "--total=2000", "--key-order=zipfian", "--ratio=0.1", "--consistency=s"},
			{"put", "--total=2000"},
			{"txn", "--total=2000", "--prefix="},
			{"range", "--verify", "--total=2000"},
		} {
			result, path := keep(t, w, cluster, args...)
			judged := judge(t, path, cluster.Events())
			assert.That(t, result.Failed == 0 && judged.Verdict == verify.Holds && judged.Judged >= 1500 &&
				judged.Judged == judged.Operations, "%q: %d failed, %v; %+v", args, result.Failed, result.Errors, judged)
			got, want := judged.Operations, result.Requests
			assert.That(t, got == want || got == want+500, "%q: the history has %d of %d operations", args, got, want)
		}
	})
}

// TestBrokenPromisesAreFound has stores that break one promise in 2,000, or more.
func TestBrokenPromisesAreFound(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		for name, c := range map[string]struct {
			broken  etcdtest.Broken
			reason  string
			online  string // how requests fail that find it out; empty: none need to
			without bool   // it is found without the store's own history
		}{
			"a lost write":                  {etcdtest.Broken{Lose: once}, "lost a write that it had acknowledged", "", false},
			"stale reads that tell":         {etcdtest.Broken{Stale: often}, "", "a linearizable read", true},
			"stale reads that do not tell":  {etcdtest.Broken{Stale: often, Revisions: true}, "", "an older version", true},
			"a failed write, applied twice": {etcdtest.Broken{Twice: once}, "", "", false},
			"many lost writes": {etcdtest.Broken{Lose: func(n int) bool { return n%50 == 0 }}, "",
				"an older version", true},
			"many failed ones, all of which": {etcdtest.Broken{Twice: func(n int) bool { return n%50 == 0 }}, "", "", true},
		} {
			cluster := startLoaded(t, w)
			cluster.Broken = c.broken
			result, path := keep(t, w, cluster, "mixed", "--verify", "--total=4200", "--ratio=0.5")
			judged := judge(t, path, cluster.Events())
			assert.That(t, judged.Verdict == verify.Violated && strings.Contains(judged.Reason, c.reason) &&
				judged.Judged >= 1000, "%s: %+v", name, judged)
			v := judged.Violation
			assert.That(t, v != nil && len(v.Operations) <= 6, "%s: the violation is %+v", name, v)
			if c.without {
				alone := judge(t, path, nil)
				assert.That(t, alone.Verdict == verify.Violated, "%s, without the store's history: %+v", name, alone)
			}
			found := c.online == ""
			for text := range result.Errors {
				found = found || strings.Contains(text, c.online)
			}
			assert.That(t, found, "%s: no request found %q: %v", name, c.online, result.Errors)
		}
	})
}

// TestWrongAnswersFailALoad has stores of which the data set is there, and which then break their promises.
func TestWrongAnswersFailALoad(t *testing.T) {
	every := func(int) bool { return true }
	for name, c := range map[string]struct {
		broken  etcdtest.Broken
		spoil   func(*etcdserverpb.RangeResponse)
		args    string
		least   int
		message string // of all failures; empty: any
	}{
		"drops writes":            {broken: etcdtest.Broken{Lose: every}, args: "--verify --require-found", least: 30},
		"drops writes, is frozen": {broken: etcdtest.Broken{Lose: every, Frozen: true}, args: "--verify", least: 30},
		// Also loads that verify nothing else find it.
		"a revision of the past": {broken: etcdtest.Broken{Stale: func(n int) bool { return n%50 == 0 }}, least: 1,
			message: "a linearizable read was answered at a revision below one reported before it began"},
		"a write of the run that is yet to come": {spoil: func(a *etcdserverpb.RangeResponse) {
			for _, kv := range a.Kvs {
				copy(kv.Value[9:15], "00zzzz")
			}
		}, args: "--verify", least: 30},
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			cluster := startLoaded(t, w)
			if cluster.Broken = c.broken; c.spoil != nil {
				for _, m := range cluster.Members {
					m.Spoil.Store(&c.spoil)
				}
			}
			args := append(append(strings.Fields(c.args), mixedArgs...), "mixed", "--total=400", endpointsOf(cluster))
			status, result, _ := callJSON(t, w, args...)
			assert.That(t, status == ExitFailed && result.Codes["Check"] >= c.least &&
				result.Codes["Check"] == result.Failed && (c.message == "" || result.Errors[c.message] == result.Failed),
				"%s: status %d, codes %v, errors %v", name, status, result.Codes, result.Errors)
		})
	}
}

// TestMixedLoadsCanBeReadAfterwards has loads of several runs leave their versions.
func TestMixedLoadsCanBeReadAfterwards(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := startLoaded(t, w)
		before := string(cluster.Value("000"))
		for _, args := range [][]string{{"mixed", "--verify"}, {"txn"}, {"mixed", "--verify", "--ratio=0.2"},
			{"range", "--verify"}} {
			succeed(t, w, slices.Concat(args, mixedArgs, []string{"--total=400", endpointsOf(cluster)})...)
		}
		got := string(cluster.Value("000"))
		assert.That(t, got != before, "no version was written")
		value := []byte(before)
		value[5]++
		cluster.Set("000", value)
		status, result, _ := callJSON(t, w, append([]string{"range", "--verify", "--total=40", endpointsOf(cluster)},
			mixedArgs...)...)
		assert.That(t, status == ExitFailed && result.Failed == 1, "of 40 reads of a key that was changed %d failed",
			result.Failed)
	})
}

// TestOutcomesThatAreUnknown has writes that are carried out although they fail with an unknown outcome.
func TestOutcomesThatAreUnknown(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := startLoaded(t, w)
		member := cluster.Members[0]
		go func() {
			for range 3 {
				before := member.Requests.Load()
				w.Until(func() bool { return member.Requests.Load() > before+200 })
				member.Hang()
				w.Until(func() bool { return member.Requests.Load() > 0 })
				w.Sleep(30 * time.Millisecond) // it hangs for longer than requests may take
				member.Release()
			}
			refuse := status.Error(codes.Unavailable, "etcdserver: request timed out")
			member.Fail.Store(&refuse)
			w.Sleep(20 * time.Millisecond) // for so long it refuses what it carries out
			member.Fail.Store(nil)
		}()
		result, path := keep(t, w, cluster, "mixed", "--verify", "--duration=2s", "--request-timeout=10ms")
		judged := judge(t, path, cluster.Events())
		assert.That(t, result.Outcomes.Unknown != 0 && judged.Unknown != 0 && judged.Verdict == verify.Holds &&
			judged.Resolved == judged.Unknown, "%d unknown, %+v", result.Outcomes.Unknown, judged)
		alone := judge(t, path, nil)
		assert.That(t, alone.Verdict == verify.Undecided, "without the store's history: %+v", alone)
	})
}

func TestAHistoryThatCannotBeKeptFailsTheRun(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := startLoaded(t, w)
		args := append([]string{"put", "--total=10", "--history", "--history-file=/nowhere/history", endpointsOf(cluster)},
			mixedArgs...)
		status, result, _ := callJSON(t, w, args...)
		assert.That(t, status == ExitFailed && result.Reason != nil &&
			strings.Contains(*result.Reason, "/nowhere/history") && result.Done == 0, "status %d, %+v", status, result)
	})
}

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

// TestSpansAreVerified checks that right answers are accepted and wrong ones are not, of which package load has more.
func TestSpansAreVerified(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		common := []string{"--total=25", "--clients=3", "--key-size=4", "--key-space-size=200", "--val-size=50", "--seed=5",
			"--endpoints=" + member.Endpoint}
		succeed(t, w, append(common, "put", "--total=200", "--prefix=d/")...)
		read := func(args []string) (failed int, errors map[string]int) {
			prefix := map[string]string{"range": "--key-prefix=d/", "mixed": "--prefix=d/"}[args[0]]
			status, result, stderr := callJSON(t, w, slices.Concat(args, common, []string{"--verify", prefix})...)
			assert.That(t, (status == ExitOK) == (result.Failed == 0) && result.Codes["Check"] == result.Failed &&
				result.Outcomes.Failed == result.Failed, "%q: status %d, %d failed, outcomes %+v, codes %v, %s", args, status,
				result.Failed, result.Outcomes, result.Codes, stderr)
			if made := configured(t, result); !made.Verify || made.Named() != (made.KeyOrder == "") || made.KeySpace != 200 {
				t.Errorf("%q: configured %s", args, result.Configured)
			}
			return result.Failed, result.Errors
		}
		for name, args := range spanCalls {
			failed, errors := read(args)
			assert.That(t, failed <= 0, "%s: of right answers %d failed: %v", name, failed, errors)
		}
		spoil := func(a *etcdserverpb.RangeResponse) {
			a.Count--
			a.Kvs = a.Kvs[:max(len(a.Kvs)-1, 0)]
		}
		member.Spoil.Store(&spoil) // the last key is missing
		for name, args := range spanCalls {
			if failed, errors := read(args); (failed == 0) != (name == "spans, may lack") {
				t.Errorf("%s: of wrong answers %d failed: %v", name, failed, errors)
			}
		}
	})
}
