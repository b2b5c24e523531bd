package client

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// configured reads what a result says of the load.
func configured(t *testing.T, result report.Result) *spec.Spec {
	t.Helper()
	s, problem := spec.ParseBody(spec.Operation(result.Operation), result.Configured)
	assert.Must(t, problem == nil, "%v", problem)
	return s
}

func TestAnOverloadedOpenLoopReportsIt(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		cluster.Members[0].Hang()
		status, result, stderr := callJSON(t, w, "put", "--duration=400ms", "--rate=1000", "--clients=2",
			"--request-timeout=100ms", "--dial-timeout=1s",
			"--endpoints="+cluster.Members[0].Endpoint)
		o := result.Outcomes
		assert.That(t, status == ExitFailed && o.OK == 0 && o.Unknown >= 2 && o.Unsent >= 50 &&
			o.Failed+o.Unknown+o.Unsent <= result.Requests && result.Requests == 400,
			"status %d, %+v, %d requests, stderr %s", status, o, result.Requests, stderr)
		assert.That(t, result.Schedule.FellBehind && result.Schedule.Unsent == o.Unsent && result.ResponseTime == nil &&
			result.Codes["DeadlineExceeded"] == o.Unknown-result.Abandoned, "%+v, codes %v", *result.Schedule, result.Codes)
	})
}

func TestRequestsThatHangAtTheEndAreInTheText(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		go func() {
			w.Until(func() bool { return member.Requests.Load() > 50 })
			member.Hang()
		}()
		status, stdout, stderr := call(t, w, "put", "--total=1000000", "--clients=7", "--run-timeout=500ms",
			"--endpoints="+member.Endpoint)
		if status != ExitFailed || !strings.Contains(stderr, "; 7 requests were cut off by the end and may have happened") {
			t.Errorf("status %d, stderr %s", status, stderr)
		}
		assert.That(t,
			strings.Contains(stdout, "\nLeft out: 0 failed, 7 unknown (7 of these cut off by the end), 0 never sent; ") &&
				strings.Contains(stdout, " requests, 7 left out):\n"), "stdout %s", stdout)
	})
}

func TestAWarmupThatFailsIsReported(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		succeed(t, w, "put", "--total=20", "--key-size=2", endpointsOf(cluster))
		read := []string{"range", "--total=20", "--warmup=40", "--key-size=2", "--key-space-size=40", "--require-found",
			"--endpoints=" + cluster.Members[0].Endpoint}
		status, result, stderr := callJSON(t, w, read...)
		if w := result.Warmup; status != ExitOK || w.OK != 20 || w.Failed != 20 || w.Unknown != 0 || w.Abandoned != 0 {
			t.Errorf("status %d, %+v", status, *result.Warmup)
		}
		assert.That(t, strings.Contains(stderr, "of 40 requests of the warm-up 20 failed and 0 may have happened"),
			"stderr %q", stderr)
		if _, stdout, _ := call(t, w, read...); !strings.HasSuffix(stdout,
			"\nWarm-up: 20 ok, 20 failed, 0 unknown (0 of these cut off by the end)\n") {
			t.Errorf("stdout %s", stdout)
		}
	})
}

func TestAWarmupIsInNoFigure(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		endpoint := "--endpoints=" + cluster.Members[0].Endpoint
		status, result, stderr := callJSON(t, w, "put", endpoint, "--total=100", "--clients=4", "--warmup=50")
		assert.That(t, status == ExitOK && result.OK == 100 && result.Requests == 100 && result.Clients == 4 &&
			result.Warmup.OK == 50, "status %d, %+v, stderr %s", status, result, stderr)
		// Each request writes a key of its own, in the warm-up too.
		got := cluster.Members[0].Requests.Load()
		assert.That(t, got == 150 && len(cluster.Keys()) == 150, "%d requests wrote %d keys", got, len(cluster.Keys()))
		rows := 0
		for _, row := range result.Timeline {
			rows += row.OK
		}
		assert.That(t, result.ResponseTime.Count == 100 && result.RateOffered == nil && rows == result.OK,
			"%d latencies, the timeline has %d of %d", result.ResponseTime.Count, rows, result.OK)
		result = succeed(t, w, "put", endpoint, "--duration=100ms", "--rate=400", "--warmup=50ms", "--clients=4")
		assert.That(t, *result.RateOffered == 400 && result.OK == 40 && result.Warmup.OK == 20, "%+v, warm-up %+v", result,
			result.Warmup)
		status, stdout, _ := call(t, w, "put", endpoint, "--total=20", "--rate=2000", "--clients=4")
		assert.That(t, status == ExitOK && strings.Contains(stdout, "  Offered:\t2000.0000 requests/sec\n") &&
			strings.Contains(stdout, "99.9% in -\n"), "status %d, stdout %s", status, stdout)
	})
}

// TestALoadSeedLeavesTheValuesAlone: it changes which keys are used when, and what was written is verified all the
// same.
func TestALoadSeedLeavesTheValuesAlone(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		keysOf := func(args ...string) []string {
			cluster := etcdtest.Simulate(w, 1, nil)
			common := []string{"--key-size=4", "--key-space-size=100", "--val-size=64", "--endpoints=" +
				cluster.Members[0].Endpoint}
			succeed(t, w, slices.Concat([]string{"put", "--total=50"}, args, common)...)
			written := cluster.Keys()
			succeed(t, w, append(common, "put", "--total=100", "--seed=5", "--load-seed=6")...)
			succeed(t, w, append(common, "range", "--total=100", "--verify", "--seed=5", "--load-seed=7",
				"--key-order=uniform")...)
			return written
		}
		first, again, other := keysOf("--seed=5", "--load-seed=1"), keysOf("--seed=9", "--load-seed=1"), keysOf("--seed=5",
			"--load-seed=2")
		assert.That(t, len(first) == 50 && slices.Equal(first, again) && !slices.Equal(first, other),
			"%d keys, the same with another seed: %v, with another load seed: %v", len(first), slices.Equal(first, again),
			slices.Equal(first, other))
	})
}

func TestMixedLoadsAreChecked(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		keys := []string{"--key-size=4", "--key-space-size=200", "--val-size=100", endpointsOf(cluster), "--seed=5"}
		succeed(t, w, append(keys, "put", "--total=200")...)
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

func TestTargetMember(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		endpoints := cluster.Endpoints()
		result := succeed(t, w, "put", "--total=30", "--conns=2", endpointsOf(cluster), "--target-member="+endpoints[1])
		assert.That(t, cluster.Members[1].Requests.Load() == 30 && result.Connections == 2 && len(result.Endpoints) == 3 &&
			configured(t, result).TargetMember == endpoints[1], "%+v", result)
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

// disturbed runs a load of a member 1 ms away, to which something happens after a second.
func disturbed(t *testing.T, arguments string, happens func(w *worldtest.World, m *etcdtest.Member)) (
	result report.Result, complaints string) {
	t.Helper()
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		member := etcdtest.Simulate(w, 1, nil).Members[0]
		w.After(time.Second, func() { happens(w, member) })
		_, result, complaints = callJSON(t, w, append(strings.Fields(arguments), "--endpoints="+member.Endpoint)...)
	})
	return result, complaints
}

func stopForASecond(w *worldtest.World, _ *etcdtest.Member) { w.StopProcess(time.Second) }

// TestAClosedLoopReportsItsPause: its figures show a stop as slow requests only. Nothing fails that was answered
// meanwhile, although the deadlines have passed, and the time without a success that ends a run.
func TestAClosedLoopReportsItsPause(t *testing.T) {
	result, _ := disturbed(t, "put --total=8000 --clients=10 --conns=10 --request-timeout=800ms --stall-timeout=900ms",
		stopForASecond)
	// The process is to run every 10 ms.
	assert.That(t, result.OK == 8000 && result.PauseS >= 0.99 && result.PauseS <= 1 && result.TotalS == 2.6,
		"%+v in %v s: %v, reason %v, a pause of %v s", result.Outcomes, result.TotalS, result.Errors, result.Reason,
		result.PauseS)
}

// TestAGeneratorThatWasPausedReportsIt stops the client for a quarter of a run, in which 500 requests were due.
func TestAGeneratorThatWasPausedReportsIt(t *testing.T) {
	result, complaints := disturbed(t, "put --total=1000 --rate=500 --clients=8", stopForASecond)
	// Of them, those of the last 10 ms are not late. Some that are due while the backlog is sent, 8 each 2 ms, are late,
	// and not because of the generator.
	s := result.Schedule
	assert.That(t, s.Late >= 495 && s.Late <= 695 && s.GeneratorLate >= 490 && s.GeneratorLate <= s.Late &&
		strings.Contains(complaints, "the generator itself was too slow"), "%+v, stderr %s", *s, complaints)
}

// TestAStallShowsInTheResponseTime lets the member answer nothing for a second: 500 of 2000 requests were due in that
// time, and their response times are spread evenly from 0 to 1 s. That is a quarter of all, so one in 20 takes longer
// than 0.8 s. Only the requests in flight see it in their service time.
func TestAStallShowsInTheResponseTime(t *testing.T) {
	result, stderr := disturbed(t, "put --total=2000 --rate=500 --clients=8 --conns=2 --key-size=8",
		func(w *worldtest.World, m *etcdtest.Member) {
			m.Hang()
			w.After(time.Second, m.Release)
		})
	expect := func(what string, holds bool) {
		assert.That(t, holds, "it does not hold that %s; %+v, stderr %s", what, *result.Schedule, stderr)
	}
	response, service := result.ResponseTime.PercentilesS["95"], result.ServiceTime.PercentilesS["95"]
	expect("the p95 of the response time is about 0.8 s", *response > 0.79 && *response < 0.83)
	expect("the p95 of the service time is 2 ms", *service > 0.0019 && *service < 0.0021)
	expect("all are ok", result.OK == 2000 && result.Outcomes.Unsent == 0)
	expect("the rate is 500/s", *result.RateOffered == 500 && *result.RateAchieved > 499)
	s := result.Schedule
	expect("the schedule was left for a second", s.FellBehind && s.WorstLagS > 0.98 && s.WorstLagS < 1 && s.Late > 490)
	expect("that is not by the generator", s.ClientsShort && s.GeneratorLate == 0)
	expect("stderr says so", strings.Contains(stderr, "the schedule was not kept") &&
		strings.Contains(stderr, "all clients were busy"))
}

// TestAnyNumberOfPoissonStartsBeginsAtOnce: to compute those of a day at the highest rate takes half an hour.
func TestAnyNumberOfPoissonStartsBeginsAtOnce(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		ended := make(chan int)
		var stdout, stderr strings.Builder
		go func() {
			ended <- mainIn(ctx, w, "dev", secure.Files,
				strings.Fields("put --total=80000000000 --rate=1000000 --arrival=poisson --clients=4 "+
					"--key-space-size=100 --output=json --endpoints="+member.Endpoint), &stdout, &stderr)
		}()
		w.Until(func() bool { return member.Requests.Load() > 20 })
		cancel(ErrCancelled)
		<-ended
		var result report.Result
		assert.OK(t, json.Unmarshal([]byte(stdout.String()), &result))
		o := result.Outcomes
		assert.That(t, o.OK != 0 && o.Failed == 0 && strings.HasPrefix(result.Problem(), "cancelled") &&
			*result.RateAchieved > 0, "%+v, %s", o, stderr.String())
	})
}

// TestTheLastStartOfAPoissonSchedule: where it is not computed, it is before the time that stands for it, and close to
// that.
func TestTheLastStartOfAPoissonSchedule(t *testing.T) {
	s := spec.Default(spec.Put)
	s.Rate, s.Arrival = 1000, spec.Poisson
	for _, total := range []int{1, countedAhead, countedAhead + 1} {
		s.Total = total
		b := &benchmark{spec: &s}
		options, _ := b.options(t.Context())
		exact := options.Pacer.Last()
		got := b.plan(&options).LastStart
		if total <= countedAhead && got != exact || got < exact || float64(got-exact) > 0.004*math.Max(float64(exact), 1) {
			t.Errorf("%d requests: the last start is %v, planned is %v", total, exact, got)
		}
	}
}
