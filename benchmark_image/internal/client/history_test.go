package client

import (
	"bytes"
	"maps"
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
func judge(t *testing.T, path string, events []history.Event) *verify.Result {
	t.Helper()
	file, err := os.Open(path)
	assert.OK(t, err)
	defer file.Close()
	var log *history.Log
	if events != nil {
		log = &history.Log{Whole: true, Events: events}
	}
	result, err := verify.Judge(file, log, verify.Limits{Time: time.Minute})
	assert.OK(t, err)
	return result
}

// each is true for one write or read of so many, counted from 1.
func each(n int) func(number int) bool { return func(number int) bool { return number%n == n/2 } }

// TestAStoreThatKeepsItsPromisesIsFoundTo, over loads of which each leaves its versions to the next.
func TestAStoreThatKeepsItsPromisesIsFoundTo(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := startLoaded(t, w)
		dataset := cluster.Value("000")
		for _, args := range [][]string{
			{"mixed", "--verify", "--total=3000", "--warmup=500"},
			{"txn", "--total=2000", "--prefix="},
			{"mixed", "--verify", "--total=2000", "--key-order=zipfian", "--ratio=0.1", "--consistency=s"},
			{"range", "--verify", "--total=2000"},
			{"put", "--total=2000"},
		} {
			result, path := keep(t, w, cluster, args...)
			judged := judge(t, path, cluster.Events())
			assert.That(t, result.Failed == 0 && judged.Verdict == verify.Holds && judged.Judged >= 1500 &&
				judged.Judged == judged.Operations, "%q: %d failed, %v; %+v", args, result.Failed, result.Errors, judged)
			got, want := judged.Operations, result.Requests
			assert.That(t, got == want || got == want+500, "%q: the history has %d of %d operations", args, got, want)
			assert.That(t, !bytes.Equal(cluster.Value("000"), dataset), "%q: no version was written", args)
		}
		changed := bytes.Clone(dataset)
		changed[5]++
		cluster.Set("000", changed)
		_, result, _ := callJSON(t, w, slices.Concat(mixedArgs, []string{"range", "--verify", "--total=40",
			endpointsOf(cluster)})...)
		assert.That(t, result.Failed == 1, "of 40 reads of a key that was changed %d failed", result.Failed)
	})
}

// TestBrokenPromisesAreFound has stores that break one promise in 2,000, or more. A stale read breaks none while the
// last write of its key is under way.
func TestBrokenPromisesAreFound(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		for name, c := range map[string]struct {
			broken  etcdtest.Broken
			reason  string
			online  string // how requests fail that find it out; empty: none need to
			without bool   // it is found without the store's own history
		}{
			"a lost write":        {etcdtest.Broken{Lose: each(2000)}, "lost a write", "", false},
			"many lost writes":    {etcdtest.Broken{Lose: each(50)}, "", "an older version", true},
			"stale reads":         {etcdtest.Broken{Stale: each(200)}, "", "a linearizable read", true},
			"stale reads, untold": {etcdtest.Broken{Stale: each(200), Revisions: true}, "", "an older version", true},
			"refused writes":      {etcdtest.Broken{Refuse: each(50)}, "", "", true},
		} {
			cluster := startLoaded(t, w)
			cluster.Broken = c.broken
			result, path := keep(t, w, cluster, "mixed", "--verify", "--total=4200", "--ratio=0.5")
			judged := judge(t, path, cluster.Events())
			v := judged.Violation
			assert.That(t, judged.Verdict == verify.Violated && strings.Contains(judged.Reason, c.reason) &&
				judged.Judged >= 1000 && v != nil && len(v.Operations) <= 6, "%s: %+v: %+v", name, judged, v)
			alone := judge(t, path, nil)
			assert.That(t, !c.without || alone.Verdict == verify.Violated, "%s, without the store's history: %+v", name, alone)
			found := func(text string) bool { return strings.Contains(text, c.online) }
			assert.That(t, c.online == "" || slices.ContainsFunc(slices.Collect(maps.Keys(result.Errors)), found),
				"%s: no request found %q: %v", name, c.online, result.Errors)
		}
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

// TestSpansAreVerified has right answers, and wrong ones of which the last key is missing. Package load has more.
func TestSpansAreVerified(t *testing.T) {
	const mayLack = "mixed --span-keys=30"
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		member := etcdtest.Simulate(w, 1, nil).Members[0]
		common := []string{"--total=25", "--clients=3", "--key-size=4", "--key-space-size=200", "--val-size=50", "--seed=5",
			"--endpoints=" + member.Endpoint}
		succeed(t, w, append(common, "put", "--total=200", "--prefix=d/")...)
		spoil := func(a *etcdserverpb.RangeResponse) {
			a.Count--
			a.Kvs = a.Kvs[:max(len(a.Kvs)-1, 0)]
		}
		for _, spoiled := range []*func(*etcdserverpb.RangeResponse){nil, &spoil} {
			member.Spoil.Store(spoiled)
			for _, args := range []string{
				"range --span-keys=30 --key-order=uniform", "range --span-keys=30 --key-order=shuffled --limit=7",
				"range --span-keys=1", "range --span-keys=30 --keys-only", "range --span-keys=30 --count-only",
				"range --span-keys=1000", "range d/00 --prefix", "range d/ --prefix --limit=150", "range d/000A d/0015",
				"range d/000A", "range", "mixed --span-keys=30 --require-found", mayLack,
			} {
				prefix := map[bool]string{true: "--prefix=d/", false: "--key-prefix=d/"}[strings.HasPrefix(args, "mixed")]
				status, r, stderr := callJSON(t, w, slices.Concat(strings.Fields(args), common,
					[]string{"--verify", prefix})...)
				right := spoiled == nil || args == mayLack
				assert.That(t, (status == ExitOK) == right && (r.Failed == 0) == right && r.Codes["Check"] == r.Failed &&
					r.Outcomes.Failed == r.Failed && strings.Contains(stderr, "answers held no key") == (r.Empty > 0),
					"%q, spoiled %v: status %d, %d failed, outcomes %+v, codes %v, %s", args, spoiled != nil, status, r.Failed,
					r.Outcomes, r.Codes, stderr)
				made := configured(t, r)
				assert.That(t, made.Verify && made.Named() == (made.KeyOrder == "") && made.KeySpace == 200, "%q: configured %s",
					args, r.Configured)
			}
		}
	})
}
