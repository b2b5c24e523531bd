//go:build plumbing

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/report"
)

// TestAgainstEtcd runs against the real server.
func TestAgainstEtcd(t *testing.T) {
	t.Parallel()
	endpoint, _ := startEtcd(t)
	for _, c := range []struct {
		args  []string
		empty int
	}{
		{[]string{"put", "--total=2000", "--clients=50", "--conns=5", "--sequential-keys", "--val-size=256",
			"--target-leader"}, 0},
		{[]string{"put", "--total=500", "--clients=5", "--key-size=16", "--prefix=random/"}, 0},
		{[]string{"range", "--total=4000", "--clients=50", "--conns=5", "--key-size=8", "--key-space-size=2000",
			"--require-found"}, 0},
		{[]string{"range", "--total=100", "--consistency=s", "random/", "--prefix", "--require-found"}, 0},
		{[]string{"range", "--total=100", "00000000", "--from-key", "--limit=10", "--keys-only", "--require-found"}, 0},
		{[]string{"range", "--total=100", "random/", "random0", "--count-only", "--require-found"}, 0},
		{[]string{"range", "--total=100", "foo", "foo3"}, 100},
		{[]string{"range", "--total=400", "--clients=9", "--conns=2", "--key-size=8", "--key-space-size=2000",
			"--val-size=256", "--verify",
			"--span-keys=50", "--key-order=uniform"}, 0},
		{[]string{"range", "--total=400", "--key-size=8", "--key-space-size=2000", "--val-size=256", "--verify",
			"--span-keys=50", "--limit=9", "--consistency=s"}, 0},
		{[]string{"range", "--total=50", "0000", "--prefix", "--key-size=8", "--key-space-size=2000", "--val-size=256",
			"--verify", "--keys-only"}, 0},
		{[]string{"range", "--total=50", "random/", "--prefix", "--key-size=16", "--key-prefix=random/",
			"--key-space-size=500", "--verify"}, 0},
		{[]string{"mixed", "--total=400", "--clients=9", "--key-size=8", "--key-space-size=2000", "--val-size=256",
			"--verify", "--require-found", "--span-keys=50"}, 0},
	} {
		status, stdout, stderr := call(t, nil, append(c.args, "--output=json", "--endpoints="+endpoint, "--dial-timeout=30s")...)
		var result report.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil {
			t.Fatalf("%q: %v, stderr %s", c.args, err, stderr)
		}
		if status != ExitOK || result.OK != result.Requests || result.Empty != c.empty || result.Leader == nil ||
			*result.Leader != endpoint {
			t.Errorf("%q: status %d, %s, stderr %s", c.args, status, stdout, stderr)
		}
	}
	var counted report.Result
	_, stdout, _ := call(t, nil, "range", "--endpoints="+endpoint, "--total=1", "--output=json", "00001", "00002",
		"--require-found")
	if err := json.Unmarshal([]byte(stdout), &counted); err != nil || counted.Empty != 1 {
		t.Errorf("2000 sequential keys end before 00001000: %s", stdout)
	}
}

// TestFailedPutsAreNotInTheStore fills a store. etcd says that its space is exceeded of puts that it has applied too.
func TestFailedPutsAreNotInTheStore(t *testing.T) {
	t.Parallel()
	endpoint, _ := startEtcd(t, "--quota-backend-bytes=2097152")
	status, result, stderr := callJSON(t, nil, "put", "--total=2000", "--clients=100", "--conns=10", "--val-size=20000",
		"--target-leader",
		"--endpoints="+endpoint, "--dial-timeout=30s")
	if status != ExitFailed || result.Codes["ResourceExhausted"] < 100 {
		t.Fatalf("status %d, codes %v, stderr %s", status, result.Codes, stderr)
	}
	stored := strings.Count(contents(t, endpoint), "\n") - 1
	if o := result.Outcomes; stored < o.OK || stored > o.OK+o.Unknown {
		t.Errorf("%+v, but the store has %d keys", o, stored)
	}
	t.Logf("%+v, %d keys in the store", result.Outcomes, stored)
}

// TestALostQuorumEndsAMixedLoad: the member that is left still answers serializable reads.
func TestALostQuorumEndsAMixedLoad(t *testing.T) {
	t.Parallel()
	endpoints, processes := startCluster(t, 3)
	all := "--endpoints=" + strings.Join(endpoints, ",")
	keys := []string{"--key-size=4", "--key-space-size=100", "--dial-timeout=30s"}
	if status, _, stderr := callJSON(t, nil, append(keys, "put", "--total=100", "--clients=10", "--conns=3",
		all)...); status != ExitOK {
		t.Fatal(stderr)
	}
	for _, process := range processes[1:] {
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	status, result, stderr := callJSON(t, nil, append(keys, "mixed", "--total=10000000", "--clients=8", "--consistency=s",
		"--request-timeout=300ms",
		"--run-timeout=20s", "--endpoints="+endpoints[0])...)
	put, read := result.ByOperation["put"], result.ByOperation["range"]
	if status != ExitFailed || result.Reason == nil ||
		*result.Reason != "no put succeeded for 400ms" {
		t.Errorf("status %d: %s", status, stderr)
	}
	if put.OK != 0 || put.Unknown < 8 || put.Failed != 0 || read.Failed != 0 {
		t.Errorf("puts %d ok, %d failed, %d unknown; ranges %d ok, %d failed", put.OK, put.Failed, put.Unknown, read.OK,
			read.Failed)
	}
}

// etcdProgram is the real server, which the environment variable ETCD_BINARY names. It is required in CI, where
// a skipped test would never run.
func etcdProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("ETCD_BINARY")
	_, err := os.Stat(program)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("ETCD_BINARY must name the real server in CI: %v", err)
	default:
		t.Skipf("ETCD_BINARY does not name a program: %v", err)
	}
	return program
}

// startEtcd starts a real server that ends with the test.
func startEtcd(t *testing.T, flags ...string) (endpoint string, process *os.Process) {
	t.Helper()
	endpoints, processes := startCluster(t, 1, flags...)
	return endpoints[0], processes[0]
}

// startCluster starts a cluster of real servers that ends with the test. They do not wait for the disk, which no test
// needs.
func startCluster(t *testing.T, members int, flags ...string) (endpoints []string, processes []*os.Process) {
	t.Helper()
	program := etcdProgram(t)
	scheme := "http://"
	if slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--cert-file=") }) {
		scheme = "https://"
	}
	var peers, cluster []string
	for i := range members {
		endpoints, peers = append(endpoints, freePort(t)), append(peers, freePort(t))
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	for i := range members {
		processes = append(processes, startMember(t, exec.Command(program, append([]string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(t.TempDir(),
				"data"), "--log-level", "error", "--unsafe-no-fsync",
			"--listen-client-urls", scheme + endpoints[i], "--advertise-client-urls", scheme + endpoints[i],
			"--listen-peer-urls", "http://" + peers[i], "--initial-advertise-peer-urls", "http://" + peers[i],
			"--initial-cluster", strings.Join(cluster, ","),
		}, flags...)...)))
	}
	return endpoints, processes
}

func startMember(t *testing.T, command *exec.Cmd) *os.Process {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		if err := command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case <-ended:
		case <-hang.Midway(hang.Limit):
			t.Error("etcd does not end on SIGTERM")
			if err := command.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			log, err := os.ReadFile(output.Name())
			t.Logf("etcd: %s (%v)", log, err)
		}
	})
	return command.Process
}

// freePort is below those that the kernel gives to connections and to listeners of port 0: nobody else takes it before
// the server does.
func freePort(t *testing.T) (address string) {
	t.Helper()
	const lowest, ports = 10_000, 22_000
	for range 100 {
		address = fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(ports))
		if _, taken := portsGiven.LoadOrStore(address, nil); taken {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			if err := listener.Close(); err != nil {
				t.Error(err)
			}
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// portsGiven are the addresses that freePort gave to tests of this process.
var portsGiven sync.Map
