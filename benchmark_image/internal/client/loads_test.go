package client

import (
	"bytes"
	"context"
	"maps"
	"math"
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
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/verify"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// configured reads what a result says of the load.
func configured(t *testing.T, result report.Result) *spec.Spec {
	t.Helper()
	s, problem := spec.ParseBody(spec.Operation(result.Operation), result.Configured)
	assert.Must(t, problem == nil, "%v", problem)
	return s
}

func TestWarmups(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		endpoint := endpointsOf(cluster)
		result := succeed(t, w, "put", endpoint, "--total=100", "--clients=4", "--warmup=50")
		rows := 0
		for _, row := range result.Timeline {
			rows += row.OK
		}
		// Each request writes a key of its own, in the warm-up too.
		got := []int{result.OK, result.Requests, result.Clients, result.Warmup.OK, len(cluster.Keys()),
			int(cluster.Members[0].Requests.Load()), result.ResponseTime.Count, rows}
		assert.Equal(t, got, []int{100, 100, 4, 50, 150, 150, 100, 100}, "%+v", result)
		assert.That(t, result.RateOffered == nil, "%v requests/s were offered", result.RateOffered)
		result = succeed(t, w, "put", endpoint, "--duration=100ms", "--rate=400", "--warmup=50ms", "--clients=4")
		assert.That(t, *result.RateOffered == 400 && result.OK == 40 && result.Warmup.OK == 20, "%+v, warm-up %+v", result,
			result.Warmup)
		status, stdout, _ := call(t, w, "put", endpoint, "--total=20", "--rate=2000", "--clients=4")
		assert.That(t, status == ExitOK && strings.Contains(stdout, "  Offered:\t2000.0000 requests/sec\n") &&
			strings.Contains(stdout, "99.9% in -\n"), "status %d, stdout %s", status, stdout)
		succeed(t, w, "put", "--total=20", "--key-size=2", "--prefix=r/", endpoint)
		status, stdout, stderr := call(t, w, "range", "--total=20", "--warmup=40", "--key-size=2", "--key-space-size=40",
			"--key-prefix=r/", "--require-found", "--consistency=s", endpoint)
		assert.That(t, status == ExitOK && strings.Contains(stderr, "of 40 requests of the warm-up 20 failed and 0 may have "+
			"happened") && strings.HasPrefix(stdout, "bench with serializable range\n\nSummary:\n") &&
			strings.HasSuffix(stdout, "\nWarm-up: 20 ok, 20 failed, 0 unknown (0 of these cut off by the end)\n"),
			"status %d, stderr %q, stdout %s", status, stderr, stdout)
	})
}

// TestThroughputWithinADuration: answers to the warm-up that come within it stand for those that come after it. Without
// a warm-up nothing is answered in the first round trip, of 130 ms.
func TestThroughputWithinADuration(t *testing.T) {
	for warmup, perS := range map[string]float64{"1s": 200, "0": 187.5} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			cluster := etcdtest.Simulate(w, 1, nil)
			cluster.Members[0].Listener.Latency = 65 * time.Millisecond
			result := succeed(t, w, "put", "--rate=200", "--clients=100", "--duration=2s", "--warmup="+warmup,
				endpointsOf(cluster))
			assert.That(t, result.RequestsPerS == perS && result.OK == 400 && result.ResponseTime.Count == 400,
				"warm-up %s: %v/s, %d requests", warmup, result.RequestsPerS, result.OK)
		})
	}
}

// TestTheRateOfAPoissonScheduleIsItsOwn: by chance it has 43 requests in 2 s, where 40 are offered, and the next one is
// due after 2.03 s.
func TestTheRateOfAPoissonScheduleIsItsOwn(t *testing.T) {
	next := load.NewPoisson(20, keys.NewDraw(3, keys.StreamArrival).At).Start(43)
	for length, perS := range map[string]float64{"--duration=2s": 43 / 2., "--total=43": 43 / next.Seconds()} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			result := succeed(t, w, "put", "--rate=20", "--arrival=poisson", "--load-seed=3", length,
				endpointsOf(etcdtest.Simulate(w, 1, nil)))
			assert.That(t, result.OK == 43 && *result.RateAchieved == perS, "%s: %v/s, want %v", length, *result.RateAchieved,
				perS)
		})
	}
}

// TestALoadSeedLeavesTheValuesAlone: it changes which keys are used when, and what was written is verified all the
// same.
func TestALoadSeedLeavesTheValuesAlone(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		keysOf := func(args ...string) []string {
			cluster := etcdtest.Simulate(w, 1, nil)
			common := []string{"--key-size=4", "--key-space-size=100", "--val-size=64", endpointsOf(cluster)}
			succeed(t, w, slices.Concat([]string{"put", "--total=50"}, args, common)...)
			written := cluster.Keys()
			succeed(t, w, append(common, "put", "--total=100", "--seed=5", "--load-seed=6")...)
			succeed(t, w, append(common, "range", "--total=100", "--verify", "--seed=5", "--load-seed=7",
				"--key-order=uniform")...)
			return written
		}
		first, again, other := keysOf("--seed=5", "--load-seed=1"), keysOf("--seed=9", "--load-seed=1"),
			keysOf("--seed=5", "--load-seed=2")
		assert.That(t, len(first) == 50 && slices.Equal(first, again) && !slices.Equal(first, other),
			"keys %q, with another seed %q, with another load seed %q", first, again, other)
	})
}

func TestMixedLoadsAreChecked(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		keys := []string{"--key-size=4", "--key-space-size=200", "--val-size=100", endpointsOf(cluster), "--seed=5"}
		target := cluster.Members[1]
		result := succeed(t, w, append(keys, "put", "--total=200", "--conns=2", "--target-member="+target.Endpoint)...)
		assert.That(t, target.Requests.Load() == 200 && result.Connections == 2 && len(result.Endpoints) == 3 &&
			configured(t, result).TargetMember == target.Endpoint, "%+v", result)
		for _, order := range []string{"sequential", "shuffled", "uniform", "zipfian"} {
			result := succeed(t, w, append(keys, "mixed", "--total=1000", "--clients=7", "--ratio=0.3", "--verify",
				"--require-found", "--key-order="+order)...)
			put, read := result.ByOperation["put"], result.ByOperation["range"]
			assert.That(t, put.OK >= 230 && put.OK <= 370 && read.ServiceTime.Count == read.OK, "%s: %d puts, %d ranges",
				order, put.OK, read.OK)
			succeed(t, w, append(keys, "range", "--total=300", "--verify", "--key-order="+order)...)
		}
		assert.That(t, len(cluster.Keys()) == 200, "%d keys", len(cluster.Keys()))
		for _, change := range []string{"--seed=6", "--val-size=99", "--key-space-size=201"} {
			args := append(append([]string{"range", "--total=201", "--verify"}, keys...), change)
			status, result, _ := callJSON(t, w, args...)
			assert.That(t, status == ExitFailed && result.Outcomes.Failed != 0 && result.Codes["Check"] == result.Failed,
				"%s: status %d, %+v, codes %v, errors %v", change, status, result.Outcomes, result.Codes, result.Errors)
		}
	})
}

// TestWhatEndsARun has a member that no longer answers, or that is gone: the time for opening connections, which no
// scenario sets, ends no run that is to measure a failover.
func TestWhatEndsARun(t *testing.T) {
	hangs, stops := (*etcdtest.Member).Hang, (*etcdtest.Member).Stop
	for args, c := range map[string]struct {
		happens func(*etcdtest.Member)
		reason  string
		total   float64 // s
	}{
		"--request-timeout=100ms --total=1000 --stall-timeout=300ms":      {hangs, "no request succeeded for 300ms", 0.4},
		"--request-timeout=100ms --duration=1500ms --stall-timeout=300ms": {hangs, "no request succeeded for 300ms", 0.4},
		"--request-timeout=100ms --duration=1500ms":                       {hangs, "", 1.6}, // a failover is measured through
		"--request-timeout=100ms --total=120 --stall-timeout=0":           {hangs, "", 1.4},
		"--total=1000000":                                        {stops, "no member could be reached for 300ms", 0.401},
		"--total=1000000 --stall-timeout=700ms":                  {stops, "no request succeeded for 700ms", 0.799},
		"--duration=1500ms --stall-timeout=0":                    {stops, "", 1.5},
		"--total=1000000 --stall-timeout=0 --run-timeout=1500ms": {stops, "the run timeout of 1.5s was reached", 1.5},
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			member := etcdtest.Simulate(w, 1, nil).Members[0]
			w.After(100*time.Millisecond, func() { c.happens(member) })
			_, result, _ := callJSON(t, w, append([]string{"put", "--dial-timeout=300ms", "--clients=2",
				"--endpoints=" + member.Endpoint}, strings.Fields(args)...)...)
			reason := ""
			if result.Reason != nil {
				reason = *result.Reason
			}
			// A client pauses for 100 ms after each failure: no busy loop.
			assert.That(t, reason == c.reason && math.Abs(result.TotalS-c.total) <= 0.02 && result.OK != 0 &&
				result.Failed <= 32, "%s: reason %q after %v s, %+v", args, reason, result.TotalS, result.Outcomes)
		})
	}
}

// TestDisturbances has a process that is stopped for a second, or a member that answers nothing for a second, a second
// after the begin.
func TestDisturbances(t *testing.T) {
	stops := func(w *worldtest.World, _ *etcdtest.Member) { w.StopProcess(time.Second) }
	for name, c := range map[string]struct {
		args    string
		happens func(w *worldtest.World, m *etcdtest.Member)
		holds   func(r report.Result, s *report.Schedule, stderr string) bool
	}{
		// A closed loop shows a stop as slow requests only. Nothing fails that was answered meanwhile, although the deadlines
		// have passed, and the time without a success that ends a run. The process is to run every 10 ms.
		"a pause in a closed loop": {"--total=8000 --clients=10 --conns=10 --request-timeout=800ms --stall-timeout=900ms",
			stops, func(r report.Result, _ *report.Schedule, _ string) bool {
				return r.OK == 8000 && r.PauseS >= 0.99 && r.PauseS <= 1 && r.TotalS == 2.6
			}},
		// In a quarter of the run 500 requests were due. Those of the last 10 ms are not late. Some that are due while the
		// backlog is sent, 8 each 2 ms, are late, and not because of the generator.
		"a pause in an open loop": {"--total=1000 --rate=500 --clients=8", stops,
			func(_ report.Result, s *report.Schedule, stderr string) bool {
				return s.Late >= 495 && s.Late <= 695 && s.GeneratorLate >= 490 && s.GeneratorLate <= s.Late &&
					strings.Contains(stderr, "the generator itself was too slow")
			}},
		"an overload": {"--duration=1400ms --rate=1000 --clients=2 --request-timeout=100ms --dial-timeout=1s",
			func(_ *worldtest.World, m *etcdtest.Member) { m.Hang() }, func(r report.Result, s *report.Schedule, _ string) bool {
				o := r.Outcomes
				return r.Requests == 1400 && o.OK > 990 && o.Unknown >= 2 && o.Unsent >= 50 && s.FellBehind &&
					s.Unsent == o.Unsent && o.OK+o.Failed+o.Unknown+o.Unsent == 1400 &&
					r.Codes["DeadlineExceeded"] == o.Unknown-r.Abandoned
			}},
		// 500 of 2000 requests were due in that second, and their response times are spread evenly from 0 to 1 s. That is a
		// quarter of all, so one in 20 takes longer than 0.8 s. Only the requests in flight see it in their service time.
		"a stall": {"--total=2000 --rate=500 --clients=8 --conns=2 --key-size=8",
			func(w *worldtest.World, m *etcdtest.Member) {
				m.Hang()
				w.After(time.Second, m.Release)
			}, func(r report.Result, s *report.Schedule, stderr string) bool {
				response, service := *r.ResponseTime.PercentilesS["95"], *r.ServiceTime.PercentilesS["95"]
				return response > 0.79 && response < 0.83 && service > 0.0019 && service < 0.0021 && r.OK == 2000 &&
					r.Outcomes.Unsent == 0 && *r.RateOffered == 500 && *r.RateAchieved > 499 && s.FellBehind &&
					s.WorstLagS > 0.98 && s.WorstLagS < 1 && s.Late > 490 && s.ClientsShort && s.GeneratorLate == 0 &&
					strings.Contains(stderr, "the schedule was not kept") && strings.Contains(stderr, "all clients were busy")
			}},
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			member := etcdtest.Simulate(w, 1, nil).Members[0]
			w.After(time.Second, func() { c.happens(w, member) })
			_, r, stderr := callJSON(t, w, append(strings.Fields(c.args), "put", "--endpoints="+member.Endpoint)...)
			assert.That(t, c.holds(r, r.Schedule, stderr), "%s: %+v, schedule %+v, stderr %s", name, r, r.Schedule, stderr)
		})
	}
}

// endsMidway is a context that ends after so many looks at it.
type endsMidway struct {
	context.Context
	looks int
}

func (c *endsMidway) Err() error {
	if c.looks--; c.looks >= 0 {
		return nil
	}
	return errCancelled
}

// TestAWarmupOfPoissonStartsEndsWithItsContext while its requests are counted, which would take half an hour.
func TestAWarmupOfPoissonStartsEndsWithItsContext(t *testing.T) {
	s := spec.Default(spec.Put)
	s.Rate, s.Arrival = spec.MaxRate, spec.Poisson
	for _, warmup := range []struct {
		duration time.Duration
		requests int
	}{{20 * time.Hour, 0}, {0, 72_000_000_000}} {
		s.WarmupDuration, s.WarmupRequests = warmup.duration, warmup.requests
		b := &benchmark{spec: &s, result: &report.Result{}}
		b.run(&endsMidway{t.Context(), 5}, nil) // a request would panic
		r := b.result
		assert.That(t, r.Reason != nil && *r.Reason == errCancelled.Error() && r.BeganNs == nil, "the result is %+v", r)
	}
}

// TestTheLastStartOfAPoissonSchedule: where it is not computed, it is before the time that stands for it, and close to
// that.
func TestTheLastStartOfAPoissonSchedule(t *testing.T) {
	s := spec.Default(spec.Put)
	s.Rate, s.Arrival = 1000, spec.Poisson
	for _, total := range []int{1, countedAhead, countedAhead + 1} {
		s.Total = total
		b := &benchmark{spec: &s}
		options := b.options(t.Context())
		exact := options.Pacer.Last()
		got := b.plan(&options).LastStart
		if total <= countedAhead && got != exact || got < exact || float64(got-exact) > 0.004*math.Max(float64(exact), 1) {
			t.Errorf("%d requests: the last start is %v, planned is %v", total, exact, got)
		}
	}
}

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
	file := assert.Got(os.Open(path))(t)
	defer file.Close()
	var log *history.Log
	if events != nil {
		log = &history.Log{Whole: true, Events: events}
	}
	return assert.Got(verify.Judge(file, log, verify.Limits{Time: time.Minute}))(t)
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
