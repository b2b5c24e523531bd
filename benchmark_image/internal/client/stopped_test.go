package client

import (
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// disturbed runs a load of a member 1 ms away, to which something happens after a second.
func disturbed(t *testing.T, arguments string, happens func(w *worldtest.World, m *etcdtest.Member)) (
	result report.Result, complaints string) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *worldtest.World) {
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
	if result.OK != 8000 || result.PauseS < 0.99 || result.PauseS > 1 || result.TotalS != 2.6 {
		t.Errorf("%+v in %v s: %v, reason %v, a pause of %v s", result.Outcomes, result.TotalS, result.Errors, result.Reason,
			result.PauseS)
	}
}

// TestAGeneratorThatWasPausedReportsIt stops the client for a quarter of a run, in which 500 requests were due.
func TestAGeneratorThatWasPausedReportsIt(t *testing.T) {
	result, complaints := disturbed(t, "put --total=1000 --rate=500 --clients=8", stopForASecond)
	// Of them, those of the last 10 ms are not late. Some that are due while the backlog is sent, 8 each 2 ms, are late,
	// and not because of the generator.
	if s := result.Schedule; s.Late < 495 || s.Late > 695 || s.GeneratorLate < 490 || s.GeneratorLate > s.Late ||
		!strings.Contains(complaints, "the generator itself was too slow") {
		t.Errorf("%+v, stderr %s", *s, complaints)
	}
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
		if !holds {
			t.Errorf("it does not hold that %s; %+v, stderr %s", what, *result.Schedule, stderr)
		}
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
