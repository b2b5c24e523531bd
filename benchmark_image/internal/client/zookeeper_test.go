//go:build plumbing

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/store/zookeeper"
)

// zooKeeperPath is the Java class path of the real server, which the environment variable ZOOKEEPER_CLASSPATH has.
func zooKeeperPath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ZOOKEEPER_CLASSPATH")
	if path == "" {
		t.Skip("ZOOKEEPER_CLASSPATH does not name ZooKeeper's jars: with Debian's package zookeeper it is " +
			"/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar")
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("there is no java")
	}
	return path
}

// startZooKeeper starts real servers that end with the test. They do not wait for the disk, which no test needs. lines
// are added to their configuration.
func startZooKeeper(t *testing.T, members int, lines ...string) (endpoints []string, processes []*os.Process) {
	t.Helper()
	path := zooKeeperPath(t)
	var servers []string
	for i := range members {
		endpoints = append(endpoints, freePort(t))
		servers = append(servers, fmt.Sprintf("server.%d=%s:%s", i+1, freePort(t), portOf(freePort(t))))
	}
	for i := range members {
		processes = append(processes, startZooKeeperMember(t, path, i, endpoints[i], servers, lines))
	}
	hang.Until(t, "a quorum", func() bool {
		leads := 0
		for _, endpoint := range endpoints {
			if mode := zooKeeperMode(endpoint); mode == "leader" || mode == "standalone" {
				leads++
			} else if mode != "follower" {
				return false
			}
		}
		return leads == 1
	})
	return endpoints, processes
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func startZooKeeperMember(t *testing.T, path string, i int, endpoint string, servers, lines []string) *os.Process {
	t.Helper()
	folder := t.TempDir()
	config := append([]string{"tickTime=200", "initLimit=50", "syncLimit=25", "dataDir=" + folder, "clientPort=" +
		portOf(endpoint), "clientPortAddress=127.0.0.1", "admin.enableServer=false", "maxClientCnxns=0", "forceSync=no"},
		lines...)
	if len(servers) > 1 {
		config = append(config, servers...)
	}
	file := filepath.Join(folder, "zoo.cfg")
	if err := errors.Join(os.WriteFile(file, []byte(strings.Join(config, "\n")), 0o600),
		os.WriteFile(filepath.Join(folder, "myid"), fmt.Append(nil, i+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	return startMember(t, exec.Command("java", "-Xmx192m", "-XX:+UseSerialGC", "-cp", path,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file))
}

// zooKeeperMode asks a server; empty: it does not say. The reference client does not understand these servers.
func zooKeeperMode(endpoint string) string {
	connection, err := net.DialTimeout("tcp", endpoint, hang.Limit)
	if err != nil {
		return ""
	}
	defer connection.Close()
	_ = connection.SetDeadline(hang.Deadline())
	_, _ = io.WriteString(connection, "srvr")
	text, _ := io.ReadAll(connection)
	_, mode, _ := strings.Cut(string(text), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}

// reference opens a session of the reference client.
func reference(t *testing.T, endpoints ...string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect(endpoints, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestAgainstZooKeeper runs every kind of load against the real server, and looks at what it leaves through the
// reference client.
func TestAgainstZooKeeper(t *testing.T) {
	endpoints, _ := startZooKeeper(t, 1)
	for _, c := range []struct {
		args   string
		empty  int
		second int // second tries; -1: some
	}{
		{"put --total=2000 --clients=50 --conns=5 --sequential-keys --val-size=256 --target-leader", 0, 0},
		{"put --total=2000 --clients=50 --conns=5 --sequential-keys --val-size=256", 0, -1},
		{"put --total=500 --clients=5 --key-size=16 --prefix=a/ü%", 0, -1},
		{"put --total=30 --clients=10 --conns=2 --key-size=3 --prefix=large/ --val-size=1000000 --seed=5", 0, -1},
		{"put --total=10 --val-size=0 --prefix=empty/", 0, -1},
		{"range --total=4000 --clients=50 --conns=5 --key-size=8 --key-space-size=2000 --val-size=256 --verify", 0, 0},
		{"range --total=4000 --clients=50 --conns=5 --key-size=8 --key-space-size=2000 --val-size=256 --verify " +
			"--consistency=s", 0, 0},
		{"range --total=90 --clients=9 --key-size=3 --key-space-size=30 --key-prefix=large/ --val-size=1000000 " +
			"--seed=5 --verify", 0, 0},
		{"range --total=90 --clients=9 --key-size=3 --key-space-size=30 --key-prefix=large/ --require-found", 0, 0},
		{"range --total=10 --key-size=8 --key-space-size=10 --key-prefix=empty/ --val-size=0 --verify", 0, 0},
		{"range --total=100 foo", 100, 0},
		{"txn --total=2000 --clients=60 --conns=7 --sequential-keys --val-size=100", 0, 0},
		{"mixed --total=4000 --clients=50 --conns=5 --key-space-size=100 --val-size=100 --prefix=m/ --verify", -1, -1},
	} {
		status, result, stderr := callJSON(t, nil, append(strings.Fields(c.args), "--store=zookeeper", "--dial-timeout=30s",
			"--endpoints="+endpoints[0])...)
		if status != ExitOK || result.OK != result.Requests || c.empty >= 0 && result.Empty != c.empty ||
			c.second >= 0 && result.SecondTries != c.second || result.Leader == nil || *result.Leader != endpoints[0] {
			t.Errorf("%s: status %d, %d ok, %d empty, %d second tries, stderr %s", c.args, status, result.OK, result.Empty,
				result.SecondTries, stderr)
		}
	}
	missing, result, _ := callJSON(t, nil, "txn", "--store=zookeeper", "--total=5", "--prefix=no", "--endpoints="+endpoints[0])
	if missing != ExitFailed || result.Outcomes.Failed != 5 || result.Codes["Check"] != 5 {
		t.Errorf("transactions of keys that are not there: %+v", result.Outcomes)
	}
	there := reference(t, endpoints...)
	children, _, err := there.Children("/")
	if want := 2000 + 500 + 30 + 10 + 100 + 1; err != nil || len(children) != want {
		t.Errorf("%d znodes, want %d: %v", len(children), want, err)
	}
	data, stat, err := there.Get("/00000000")
	if err != nil || len(data) != 100 || stat.Version != 2 {
		t.Errorf("/00000000 holds %d bytes of version %+v: %v", len(data), stat, err)
	}
	if data, _, err = there.Get("/large%2F000"); err != nil || len(data) != 1_000_000 {
		t.Errorf("a large value has %d bytes: %v", len(data), err)
	}
	if _, text, _ := call(t, nil, "put", "--store=zookeeper", "--total=2000", "--endpoints="+endpoints[0],
		"--sequential-keys"); !strings.Contains(text, "\nSecond tries: 1 writes took two round trips") {
		t.Errorf("the text says nothing of second tries: %.600s", text)
	}
}

// TestRevisionsOfZooKeeper compares those that writes are told with those that the znodes have, and judges the history.
func TestRevisionsOfZooKeeper(t *testing.T) {
	endpoints, _ := startZooKeeper(t, 3)
	file := filepath.Join(t.TempDir(), "history")
	status, result, stderr := callJSON(t, nil, "mixed", "--store=zookeeper", "--total=6000", "--clients=60", "--conns=9",
		"--key-space-size=300", "--key-size=4", "--val-size=60", "--verify", "--history", "--history-file="+file,
		"--endpoints="+strings.Join(endpoints, ","))
	if status != ExitOK {
		t.Errorf("%+v: %s", result.Outcomes, stderr)
	}
	highest := acknowledged(t, file)
	there := reference(t, endpoints...)
	if _, err := there.Sync("/"); err != nil {
		t.Fatal(err)
	}
	for key, revision := range highest {
		if _, stat, err := there.Get("/" + key); err != nil || stat.Mzxid != revision {
			t.Errorf("%s was written at %x, and the last answer told %x: %v", key, stat.Mzxid, revision, err)
		}
	}
	if len(highest) < 250 {
		t.Errorf("%d keys were written", len(highest))
	}
}

// acknowledged gives the highest revision at which each key was written, by a history.
func acknowledged(t *testing.T, file string) map[string]int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	highest := make(map[string]int64)
	_, err = history.Read(f, func(o history.Operation) {
		if o.Op == history.Put && o.Outcome == history.OK {
			highest[o.Key] = max(highest[o.Key], o.Revision)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return highest
}

// TestSessionsOfZooKeeperExpire stops a server for longer than the timeout of sessions: they are closed by it then, and
// the load opens new ones.
func TestSessionsOfZooKeeperExpire(t *testing.T) {
	endpoints, processes := startZooKeeper(t, 1, "maxSessionTimeout=1000")
	ended := make(chan report.Result)
	go func() {
		_, result, _ := callJSON(t, nil, "put", "--store=zookeeper", "--duration=6s", "--clients=8", "--conns=4", "--rate=200",
			"--request-timeout=500ms", "--endpoints="+endpoints[0])
		ended <- result
	}()
	<-hang.Midway(2 * time.Second) // of the load
	stop(t, processes[0], 2*time.Second)
	result := <-ended
	last := result.Timeline[len(result.Timeline)-1]
	if result.Outcomes.Unknown == 0 || last.OK < 100 || last.Failed+last.Unknown > 0 {
		t.Errorf("%+v, in the last second %+v: %v", result.Outcomes, last, result.Errors)
	}
	there := reference(t, endpoints...)
	children, _, err := there.Children("/")
	if n := len(children) - 1; err != nil || n < result.OK || n > result.OK+result.Outcomes.Unknown {
		t.Errorf("%d znodes, %+v: %v", n, result.Outcomes, err)
	}
}

// stop stops a process for a while.
func stop(t *testing.T, process *os.Process, d time.Duration) {
	t.Helper()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-hang.Midway(d)
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestTheLeaderOfZooKeeperIsKilled: the load follows the next one, and nothing that was acknowledged is lost.
func TestTheLeaderOfZooKeeperIsKilled(t *testing.T) {
	endpoints, processes := startZooKeeper(t, 3)
	leader := slices.IndexFunc(endpoints, func(endpoint string) bool { return zooKeeperMode(endpoint) == "leader" })
	file := filepath.Join(t.TempDir(), "history")
	ended := make(chan report.Result)
	go func() {
		_, result, _ := callJSON(t, nil, "put", "--store=zookeeper", "--duration=8s", "--clients=8", "--conns=4", "--rate=200",
			"--target-leader", "--request-timeout=1s", "--val-size=40", "--history", "--history-file="+file,
			"--endpoints="+strings.Join(endpoints, ","))
		ended <- result
	}()
	<-hang.Midway(2 * time.Second) // of the load
	if err := processes[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	result := <-ended
	others := slices.Delete(slices.Clone(endpoints), leader, leader+1)
	if len(result.LeaderChanges) != 1 || !slices.Contains(others, result.LeaderChanges[0].Leader) {
		t.Errorf("leader changes %v", result.LeaderChanges)
	}
	if last := result.Timeline[len(result.Timeline)-1]; last.OK < 100 || last.Failed+last.Unknown > 0 ||
		result.Outcomes.Failed+result.Outcomes.Unknown == 0 {
		t.Errorf("%+v, in the last second %+v: %v", result.Outcomes, last, result.Errors)
	}
	t.Logf("%+v, longest gap %.2f s: %v", result.Outcomes, result.LongestGapS, result.Errors)
	there := reference(t, others...)
	found, _, err := there.Children("/")
	if n := len(found) - 1; err != nil || n < result.OK || n > result.OK+result.Outcomes.Unknown {
		t.Errorf("%d znodes, %+v: %v", n, result.Outcomes, err)
	}
	for key := range acknowledged(t, file) {
		if !slices.Contains(found, key) {
			t.Errorf("%s was acknowledged and is lost", key)
		}
	}
}

// TestZooKeeperWithoutAQuorum: no session can be opened, and the message says why.
func TestZooKeeperWithoutAQuorum(t *testing.T) {
	path, endpoint := zooKeeperPath(t), freePort(t)
	servers := []string{"server.1=" + freePort(t) + ":" + portOf(freePort(t)), "server.2=" + freePort(t) + ":" +
		portOf(freePort(t)), "server.3=" + freePort(t) + ":" + portOf(freePort(t))}
	startZooKeeperMember(t, path, 0, endpoint, servers, nil)
	hang.Until(t, "the member", func() bool {
		c, err := net.Dial("tcp", endpoint)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	for _, c := range []struct{ args, want string }{
		{"put --total=5", "it has no quorum"}, {"put --total=5 --target-leader", "knows of none"},
	} {
		_, stdout, stderr := call(t, nil, append(strings.Fields(c.args), "--store=zookeeper", "--dial-timeout=2s", "--output=json",
			"--endpoints="+endpoint)...)
		var result report.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: %s (%v)", c.args, stderr, err)
		}
	}
}

// TestTheDefaultEndpointOfZooKeeper is where nobody listens in a test.
func TestTheDefaultEndpointOfZooKeeper(t *testing.T) {
	if _, err := net.Dial("tcp", zookeeper.DefaultEndpoint); err == nil {
		t.Skip("somebody listens there")
	}
	_, _, stderr := call(t, nil, "put", "--store=zookeeper", "--total=1", "--dial-timeout=100ms")
	if !strings.Contains(stderr, zookeeper.DefaultEndpoint) {
		t.Error(stderr)
	}
}
