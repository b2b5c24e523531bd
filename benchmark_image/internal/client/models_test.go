package client

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/etcdtest"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/reporttest"
)

func callJSON(t *testing.T, args ...string) (status int, result report.Result, stderr string) {
	t.Helper()
	status, stdout, stderr := call(t, append(args, "--output=json")...)
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatalf("%q: %v, stdout %q, stderr %s", args, err, stdout, stderr)
	}
	reporttest.Check(t, []byte(stdout))
	return status, result, stderr
}

// checkStall judges a run of 2000 requests at 500/s over which the member stood still for 1 s: 500 requests were due
// in that time, and their response times lie evenly between 0 and 1 s. That is a quarter of all, so one in 20 took
// longer than 0.8 s. Only the requests that were under way when it stopped see it in their service time.
func checkStall(t *testing.T, result report.Result, stderr string) {
	t.Helper()
	response, service := result.ResponseTime.PercentilesS["95"], result.ServiceTime.PercentilesS["95"]
	t.Logf("response time p95 %.3f s, max %.3f s; service time p95 %.4f s; offered %.1f/s, achieved %.1f/s; %+v, own %+v",
		*response, result.ResponseTime.MaxS, *service, *result.RateOffered, *result.RateAchieved, *result.Schedule, *result.Schedule.OwnLateness)
	if *response < 0.7 || *response > 0.9 {
		t.Errorf("response time p95 is %.3f s, want 0.8 +- 0.1", *response)
	}
	if *service > 0.05 {
		t.Errorf("service time p95 is %.4f s, want less than 0.05", *service)
	}
	if result.OK != 2000 || result.Outcomes.Unsent != 0 || *result.RateOffered != 500 || math.Abs(*result.RateAchieved-500) > 25 {
		t.Errorf("%d ok, %+v, offered %v/s, achieved %v/s", result.OK, result.Outcomes, *result.RateOffered, *result.RateAchieved)
	}
	if s := result.Schedule; !s.Behind || !s.ClientsShort || s.WorstLagS < 0.8 || s.WorstLagS > 1.2 || s.Late < 300 {
		t.Errorf("the schedule: %+v", *s)
	}
	if !strings.Contains(stderr, "the schedule was not kept") || !strings.Contains(stderr, "all clients were busy") {
		t.Errorf("stderr %q", stderr)
	}
	// The seconds in which the member stood still are seen in the timeline.
	fewest := 1000
	for _, row := range result.Timeline[:4] {
		fewest = min(fewest, row.OK)
	}
	if fewest > 450 {
		t.Errorf("the timeline shows no stall: %+v", result.Timeline)
	}
}

// stallArgs ask for 500/s over 4 s.
var stallArgs = []string{"put", "--total=2000", "--rate=500", "--clients=8", "--conns=2", "--key-size=8"}

// measureStall runs stallArgs while stall makes the member stand still for 1 s. Of a machine that is busy with other
// things the report tells: the generator itself is late, or many more than the 500 requests are, because what the stall
// left is sent slowly. It gets more chances; with none left there is nothing to judge.
func measureStall(t *testing.T, endpoint string, stall func()) {
	t.Helper()
	const chances = 4
	for chance := range chances {
		stalled := make(chan struct{})
		go func() {
			defer close(stalled)
			stall()
		}()
		status, result, stderr := callJSON(t, append(stallArgs, "--endpoints="+endpoint)...)
		<-stalled
		if s := result.Schedule; s.LateOwn > 20 || s.Late > 650 {
			t.Logf("chance %d: the machine is busy: %d requests were late, %d of them by the generator", chance+1, s.Late, s.LateOwn)
			continue
		}
		if status != ExitOK {
			t.Errorf("status %d, stderr %s", status, stderr)
		}
		checkStall(t, result, stderr)
		return
	}
	t.Skip("the machine is too busy with other things to keep a schedule of 500/s")
}

func TestAStallShowsInTheResponseTime(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	member := cluster.Members[0]
	measureStall(t, member.Endpoint, func() {
		before := member.Requests.Load()
		waitUntil(t, func() bool { return member.Requests.Load() > before+500 })
		member.Hang()
		<-time.After(time.Second) // the length of the stall is what is measured
		member.Release()
	})
}

func waitUntil(t *testing.T, condition func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Error("waited 20 s")
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAnOverloadedOpenLoopSaysSo(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cluster.Members[0].Hang()
	status, result, stderr := callJSON(t, "put", "--duration=400ms", "--rate=1000", "--clients=2", "--request-timeout=100ms",
		"--endpoints="+cluster.Members[0].Endpoint)
	o := result.Outcomes
	if status != ExitFailed || o.OK != 0 || o.Unknown < 2 || o.Unsent < 50 || o.Failed+o.Unknown+o.Unsent > result.Requests || result.Requests != 400 {
		t.Errorf("status %d, %+v, %d requests, stderr %s", status, o, result.Requests, stderr)
	}
	if !result.Schedule.Behind || result.Schedule.Unsent != o.Unsent || result.ResponseTime != nil || result.Codes["DeadlineExceeded"] != o.Unknown-result.Abandoned {
		t.Errorf("%+v, codes %v", *result.Schedule, result.Codes)
	}
}

func TestRequestsThatHangAtTheEndAreInTheText(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	member := cluster.Members[0]
	go func() {
		waitUntil(t, func() bool { return member.Requests.Load() > 50 })
		member.Hang()
	}()
	status, stdout, stderr := call(t, "put", "--total=1000000", "--clients=7", "--run-timeout=500ms", "--endpoints="+member.Endpoint)
	if status != ExitFailed || !strings.Contains(stderr, "; 7 requests were cut off by the end and may have happened") {
		t.Errorf("status %d, stderr %s", status, stderr)
	}
	if !strings.Contains(stdout, "\nLeft out: 0 failed, 7 unknown (7 of these cut off by the end), 0 never sent; ") || !strings.Contains(stdout, " requests, 7 left out):\n") {
		t.Errorf("stdout %s", stdout)
	}
}

func TestDurations(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	endpoint := "--endpoints=" + cluster.Members[0].Endpoint
	for _, args := range [][]string{{"--clients=3"}, {"--rate=1000", "--arrival=poisson", "--clients=5"}, {"--rate=1000", "--clients=5"}} {
		before := cluster.Members[0].Requests.Load()
		status, result, stderr := callJSON(t, append([]string{"put", "--duration=300ms", endpoint}, args...)...)
		sent := int(cluster.Members[0].Requests.Load() - before)
		if status != ExitOK || result.OK != sent || result.Requests != sent+result.Outcomes.Unsent || result.TotalS < 0.2 || result.TotalS > 5 {
			t.Errorf("%q: status %d, %d of %d ok, %d sent, took %v s, stderr %s", args, status, result.OK, result.Requests, sent, result.TotalS, stderr)
		}
		if result.Asked.Total != nil || *result.Asked.DurationS != 0.3 || (result.Schedule == nil) != (result.Asked.RatePerS == nil) {
			t.Errorf("%q: asked %+v", args, result.Asked)
		}
	}
}

func TestStepsAndWarmup(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	endpoint := "--endpoints=" + cluster.Members[0].Endpoint
	status, result, stderr := callJSON(t, "put", endpoint, "--total=100", "--steps=clients=1,4,2", "--warmup=50")
	if status != ExitOK || len(result.Steps) != 3 || result.OK != 300 || result.Requests != 300 || result.Clients != 4 || result.Warmup.OK != 50 {
		t.Errorf("status %d, %+v, stderr %s", status, result, stderr)
	}
	if got := cluster.Members[0].Requests.Load(); got != 350 || len(cluster.Keys()) != 100 {
		t.Errorf("%d requests wrote %d keys", got, len(cluster.Keys()))
	}
	sum, rows := 0, 0
	for i, step := range result.Steps {
		sum += step.OK
		if step.Clients != []int{1, 4, 2}[i] || step.ResponseTime.Count != 100 || step.RateOffered != nil {
			t.Errorf("step %d: %+v", i, step)
		}
	}
	for _, row := range result.Timeline {
		rows += row.OK
	}
	if sum != result.OK || rows != result.OK {
		t.Errorf("the steps have %d, the timeline %d of %d", sum, rows, result.OK)
	}
	status, result, stderr = callJSON(t, "put", endpoint, "--duration=100ms", "--steps=rate=100,400", "--warmup=50ms", "--clients=4")
	if status != ExitOK || len(result.Steps) != 2 || *result.Steps[0].RateOffered != 100 || result.Steps[1].Requests != 40 || result.RateOffered != nil || result.Warmup.OK != 5 {
		t.Errorf("status %d, %+v, warm-up %+v, stderr %s", status, result, result.Warmup, stderr)
	}
	status, stdout, _ := call(t, "put", endpoint, "--total=20", "--steps=rate=1000,2000", "--clients=4")
	if status != ExitOK || !strings.Contains(stdout, "Step 2 of 2: 4 clients, 2000 requests/sec\n\nSummary:") || !strings.Contains(stdout, "99.9% in -\n") {
		t.Errorf("status %d, stdout %s", status, stdout)
	}
}

func TestMixedLoadsAreChecked(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	endpoints := "--endpoints=" + strings.Join(cluster.Endpoints(), ",")
	keys := []string{"--key-size=4", "--key-space-size=200", "--val-size=100", endpoints, "--seed=5"}
	if status, _, stderr := callJSON(t, append([]string{"put", "--total=200"}, keys...)...); status != ExitOK {
		t.Fatal(stderr)
	}
	for _, order := range []string{"sequential", "shuffled", "uniform", "zipfian"} {
		status, result, stderr := callJSON(t, append([]string{"mixed", "--total=1000", "--clients=7", "--ratio=0.3", "--verify", "--require-found", "--key-order=" + order}, keys...)...)
		put, read := result.ByOperation["put"], result.ByOperation["range"]
		if status != ExitOK || put.OK+read.OK != 1000 || put.OK < 230 || put.OK > 370 || read.ServiceTime.Count != read.OK {
			t.Errorf("%s: status %d, %d puts, %d ranges, stderr %s", order, status, put.OK, read.OK, stderr)
		}
		if status, _, stderr := callJSON(t, append([]string{"range", "--total=300", "--verify", "--key-order=" + order}, keys...)...); status != ExitOK {
			t.Errorf("%s: reads: %s", order, stderr)
		}
	}
	if len(cluster.Keys()) != 200 {
		t.Errorf("%d keys", len(cluster.Keys()))
	}
	for _, change := range []string{"--seed=6", "--val-size=99", "--key-space-size=201"} {
		args := append(append([]string{"range", "--total=201", "--verify"}, keys...), change)
		status, result, _ := callJSON(t, args...)
		if status != ExitFailed || result.Outcomes.Failed == 0 || result.Codes["Check"] != result.Failed {
			t.Errorf("%s: status %d, %+v, codes %v, errors %v", change, status, result.Outcomes, result.Codes, result.Errors)
		}
	}
}

func TestTargetMember(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	endpoints := cluster.Endpoints()
	status, result, stderr := callJSON(t, "put", "--total=30", "--conns=2", "--endpoints="+strings.Join(endpoints, ","), "--target-member="+endpoints[1])
	if status != ExitOK || cluster.Members[1].Requests.Load() != 30 || result.Connections != 2 || len(result.Endpoints) != 3 || result.Asked.Target != endpoints[1] {
		t.Errorf("status %d, %+v, stderr %s", status, result, stderr)
	}
}
