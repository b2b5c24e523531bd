package client

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// argumentsOf is the variable of the environment that makes the test's program a benchmark-client.
const argumentsOf = "BENCHMARK_CLIENT_ARGUMENTS"

func TestMain(m *testing.M) {
	// A copy of the test's program is the program that it is named as.
	switch filepath.Base(os.Args[0]) {
	case "benchmark-client":
		Process("test", nil)
	case "benchmark-client-tls":
		Process("test", secure.Files)
	}
	if arguments := os.Getenv(argumentsOf); arguments != "" {
		os.Exit(Main(context.Background(), "test", nil, strings.Fields(arguments), os.Stdout, os.Stderr))
	}
	os.Exit(runTests(m))
}

// programFolder holds programs that tests share.
var programFolder string

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "client-test-")
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			panic(err)
		}
	}()
	programFolder = folder
	return m.Run()
}

// stopForASecond runs the client and stops it for a second once it has sent 200 requests.
func stopForASecond(t *testing.T, arguments string) (result report.Result, complaints string) {
	t.Helper()
	cluster := etcdtest.Start(t, 1)
	member := cluster.Members[0]
	arguments += " --output=json --endpoints=" + member.Endpoint
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), argumentsOf+"="+arguments)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return member.Requests.Load() > 200 })
	if err := command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	<-time.After(time.Second) // the length of the stop is what is measured
	if err := command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%v, stderr %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	t.Logf("a pause of %.3f s", result.PauseS)
	// It may have been stopped right before it was to run, or right after that.
	if result.PauseS < 0.85 || result.PauseS > 2 {
		t.Errorf("the longest pause is %v s", result.PauseS)
	}
	if result.CPUS <= 0 || result.CPUS > 60 || result.RunDelayS == nil {
		t.Errorf("it took %v s of CPU time and waited for a core for %v", result.CPUS, result.RunDelayS)
	}
	return result, stderr.String()
}

// TestAClosedLoopTellsItsPause: its figures show a stop as slow requests only. Nothing fails that was answered
// meanwhile, although the deadlines have passed, and the time without a success that ends a run.
func TestAClosedLoopTellsItsPause(t *testing.T) {
	result, _ := stopForASecond(t,
		"put --total=100000 --clients=200 --conns=200 --request-timeout=800ms --stall-timeout=900ms")
	if result.OK != 100_000 {
		t.Errorf("%+v: %v, reason %v", result.Outcomes, result.Errors, result.Reason)
	}
}

// TestAGeneratorThatStoodStillSaysSo stops the client for a quarter of a run, in which 500 requests were due.
func TestAGeneratorThatStoodStillSaysSo(t *testing.T) {
	result, complaints := stopForASecond(t, "put --total=1000 --rate=500 --clients=8")
	// Requests that came due while the backlog was sent are late too, and not by the stop alone.
	s := result.Schedule
	t.Logf("%d late, %d of them by the generator, worst %.3f s", s.Late, s.GeneratorLate, s.WorstLagS)
	if s.Late < 450 || s.GeneratorLate < 450 || s.GeneratorLate < s.Late/2 || !strings.Contains(complaints,
		"the generator itself was too slow") {
		t.Errorf("%+v, stderr %s", *s, complaints)
	}
}
