package client

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/etcdtest"
	"containernet-env/benchmark_image/internal/report"
)

// argumentsOf is the variable of the environment that makes the test's program a benchmark-client.
const argumentsOf = "BENCHMARK_CLIENT_ARGUMENTS"

// TestAGeneratorThatStoodStillSaysSo stops the client for a quarter of a run, in which 500 requests were due.
func TestAGeneratorThatStoodStillSaysSo(t *testing.T) {
	for name := range Transports {
		cluster := etcdtest.Start(t, 1)
		member := cluster.Members[0]
		arguments := "put --output=json --total=1000 --rate=500 --clients=8 --transport=" + name + " --endpoints=" + member.Endpoint
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
			t.Errorf("%s: %v, stderr %s", name, err, stderr.String())
		}
		var result report.Result
		if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
			t.Fatalf("%v: %s", err, stdout.String())
		}
		// What came due while the rest was sent is late too, and not by the stop alone.
		s := result.Schedule
		t.Logf("%s: %d late, %d of them by the generator, worst %.3f s", name, s.Late, s.GeneratorLate, s.WorstLagS)
		if s.Late < 450 || s.GeneratorLate < 450 || s.GeneratorLate < s.Late/2 || !strings.Contains(stderr.String(), "the generator itself was too slow") {
			t.Errorf("%s: %+v, stderr %s", name, *s, stderr.String())
		}
	}
}
