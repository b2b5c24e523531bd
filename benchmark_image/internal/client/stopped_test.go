package client

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// argumentsOf is the variable of the environment that makes the test's program a benchmark-client.
const argumentsOf = "BENCHMARK_CLIENT_ARGUMENTS"

func TestMain(m *testing.M) {
	if arguments := os.Getenv(argumentsOf); arguments != "" {
		os.Exit(Main(context.Background(), "test", strings.Fields(arguments), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// TestAGeneratorThatStoodStillSaysSo stops the client for a quarter of a run, in which 500 requests were due.
func TestAGeneratorThatStoodStillSaysSo(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	member := cluster.Members[0]
	arguments := "put --output=json --total=1000 --rate=500 --clients=8 --endpoints=" + member.Endpoint
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
	var result report.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	// Requests that came due while the backlog was sent are late too, and not by the stop alone.
	s := result.Schedule
	t.Logf("%d late, %d of them by the generator, worst %.3f s", s.Late, s.GeneratorLate, s.WorstLagS)
	if s.Late < 450 || s.GeneratorLate < 450 || s.GeneratorLate < s.Late/2 || !strings.Contains(stderr.String(), "the generator itself was too slow") {
		t.Errorf("%+v, stderr %s", *s, stderr.String())
	}
}
