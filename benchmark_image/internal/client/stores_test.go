//go:build plumbing

package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/verify"
)

// TestAgainstEtcd runs loads against real servers, has grpc-go look at what is there, and kills the leader while a load
// writes and reads: the load follows the next one, no acknowledged write is lost, and what is unknown is reported as
// that.
func TestAgainstEtcd(t *testing.T) {
	t.Parallel()
	s := startCluster(t, 3)
	for _, load := range []struct {
		args   string
		empty  int // answers
		failed int // checks of answers
	}{
		{args: "put --total=2000 --clients=50 --conns=6 --sequential-keys --val-size=256"},
		{args: "put --total=100 --clients=5 --key-size=4 --prefix=odd/ --val-size=64"},
		{args: "put --total=9 --clients=3 --conns=3 --key-size=3 --prefix=large/ --val-size=1048576 --seed=5"},
		{args: "range --total=2000 --clients=20 --conns=6 --key-size=8 --key-space-size=2000 --val-size=256 --verify"},
		{args: "range --total=100 --key-size=4 --key-space-size=100 --key-prefix=odd/ --val-size=64 --verify"},
		{args: "range --total=9 --key-size=3 --key-space-size=9 --key-prefix=large/ --val-size=1048576 --seed=5 --verify"},
		{args: "range --total=20 absent", empty: 20},
		{args: "mixed --total=600 --clients=10 --conns=3 --key-size=8 --key-space-size=2000 --val-size=256 --verify"},
		{args: "put --total=10 --val-size=0 --prefix=empty/"},
		{args: "txn --total=9 --key-size=3 --prefix=large/ --val-size=700000"},
		{args: "range --total=100 --consistency=s large/ --prefix --require-found"},
		{args: "range --total=100 00000000 --from-key --limit=10 --keys-only --require-found"},
		{args: "range --total=100 large/ large0 --count-only --require-found"},
		{args: "range --total=100 foo foo3", empty: 100},
		{args: "range --total=9 larger --prefix", empty: 9},
		{args: "range --total=9 ю --from-key", empty: 9},
		{args: "range --total=400 --clients=9 --conns=2 --key-size=8 --key-space-size=2000 --val-size=256 --verify " +
			"--span-keys=50 --key-order=uniform"},
		{args: "range --total=400 --key-size=8 --key-space-size=2000 --val-size=256 --verify --span-keys=50 --limit=9 " +
			"--consistency=s"},
		{args: "range --total=50 0000 --prefix --key-size=8 --key-space-size=2000 --val-size=256 --verify --keys-only"},
		{args: "mixed --total=400 --clients=9 --key-size=8 --key-space-size=2000 --val-size=256 --verify --require-found " +
			"--span-keys=50"},
		{args: "range --total=600 --clients=9 --key-size=8 --key-space-size=2000 --consistency=s --val-size=256 --verify"},
		{args: "put --total=50 --target-leader --prefix=leader/"},
		{args: "txn --total=300 --clients=8 --conns=3 --key-size=8 --key-space-size=2000 --val-size=33"},
		{args: "txn --total=5 --prefix=nowhere/", failed: 5},
	} {
		status, result, stderr := callJSON(t, nil, append(strings.Fields(load.args), s.flags()...)...)
		if (status == ExitOK) != (load.failed == 0) || result.Failed != load.failed ||
			result.Codes["Check"] != load.failed || result.Empty != load.empty || result.Outcomes.Unknown != 0 {
			t.Errorf("%s: status %d, %d failed, %d empty: %v, %s", load.args, status, result.Failed, result.Empty,
				result.Errors, stderr)
		}
	}
	revision, keys := stored(t, s.endpoints[0])
	assert.That(t, revision == 2984 && keys == 2000+100+9+10+50, "%d keys at revision %d", keys, revision)
	args := append(s.flags(), "--key-size=3", "--key-space-size=40", "--val-size=64", "--clients=12", "--conns=6")
	exit, result, stderr := callJSON(t, nil, append(args, "put", "--total=40", "--target-leader")...)
	assert.Must(t, exit == ExitOK && result.Leader != nil, "%v", stderr)
	leader := slices.Index(s.endpoints, *result.Leader)
	go func() {
		<-hang.Midway(1500 * time.Millisecond)
		_ = s.processes[leader].Kill() // the test shows if it did not
	}()
	path := filepath.Join(t.TempDir(), "history.jsonl.gz")
	_, result, stderr = callJSON(t, nil, append(args, "mixed", "--verify", "--duration=8s", "--request-timeout=3s",
		"--rate=300", "--target-leader", "--history", "--history-file="+path)...)
	if n := len(result.LeaderChanges); n == 0 || result.LeaderChanges[n-1].Leader == s.endpoints[leader] ||
		result.Outcomes.Unknown+result.Failed == 0 || result.OK < 500 || result.Codes["Check"] > 0 {
		t.Errorf("%+v, leader changes %v: %v, %s", result.Outcomes, result.LeaderChanges, result.Errors, stderr)
	}
	judged := judge(t, path, nil)
	assert.That(t, judged.Verdict != verify.Violated && judged.Judged >= 500, "%+v", judged)
}

// TestFailedPutsAreNotInTheStore fills a store. etcd answers that its space is exceeded also to puts that it has
// applied.
func TestFailedPutsAreNotInTheStore(t *testing.T) {
	t.Parallel()
	endpoint := startEtcd(t, "--quota-backend-bytes=2097152")
	status, result, stderr := callJSON(t, nil, "put", "--total=2000", "--clients=100", "--conns=10", "--val-size=20000",
		"--target-leader", "--endpoints="+endpoint, "--dial-timeout=30s")
	_, keys := stored(t, endpoint)
	if o := result.Outcomes; status != ExitFailed || result.Codes["ResourceExhausted"] < 100 || int(keys) < o.OK ||
		int(keys) > o.OK+o.Unknown {
		t.Errorf("status %d, %+v, codes %v, %d keys in the store: %s", status, o, result.Codes, keys, stderr)
	}
}

// oddPrefix is one of keys that URLs must encode.
const oddPrefix = "ключ %/\"\\?&#+/.../"

// TestServicesOverTLS, with an agreement on HTTP/1.1, and without any.
func TestServicesOverTLS(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	ca, certificate, key := authority.Files()
	for _, protocols := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}, nil} {
		var values sync.Map
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				assert.That(t, strings.HasPrefix(r.URL.Path, "/"+oddPrefix), "the path is %q", r.URL.Path)
				value, _ := io.ReadAll(r.Body)
				values.Store(r.URL.Path, value)
			} else if value, ok := values.Load(r.URL.Path); ok {
				_, _ = w.Write(value.([]byte))
			} else {
				w.WriteHeader(http.StatusGone)
			}
		}))
		server.TLS = authority.Server(tls.VersionTLS13)
		server.StartTLS()
		server.TLS.NextProtos = protocols
		status, result, stderr := callJSON(t, nil, "mixed", "--total=300", "--verify", "--store=http", "--put-path=/{key}",
			"--get-path=/{key}", "--get-codes=200", "--absent-codes=410", "--endpoints="+server.Listener.Addr().String(),
			"--cacert="+ca, "--cert="+certificate, "--key="+key, "--key-space-size=50", "--key-size=4", "--val-size=100000",
			"--prefix="+oddPrefix)
		assert.That(t, status == ExitOK && result.Done == 300, "%q: %d of %d failed: %v, %s", protocols, result.Failed,
			result.Done, result.Errors, stderr)
		server.Close()
	}
}

// dialGRPC prepares a connection of grpc-go.
func dialGRPC(t *testing.T, endpoint string, security credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(security))
	assert.OK(t, err)
	t.Cleanup(func() { _ = c.Close() }) // the only error is that it is closed already
	return c
}

// stored is the revision of an etcd, and how many keys it holds, as grpc-go and etcd's generated API read them.
func stored(t *testing.T, endpoint string) (revision, keys int64) {
	t.Helper()
	all, err := etcdserverpb.NewKVClient(dialGRPC(t, endpoint, insecure.NewCredentials())).Range(hang.Context(t),
		&etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true})
	assert.OK(t, err)
	return all.Header.Revision, all.Count
}

// servers are real ones of etcd, in member order. They end with the test, and do not wait for the disk, which no
// test needs.
type servers struct {
	endpoints []string
	processes []*os.Process
}

// flags are the flags of a load of these members.
func (s *servers) flags() []string {
	return []string{"--dial-timeout=30s", "--endpoints=" + strings.Join(s.endpoints, ",")}
}

// startEtcd starts a real server that ends with the test.
func startEtcd(t *testing.T, flags ...string) (endpoint string) {
	t.Helper()
	return startCluster(t, 1, flags...).endpoints[0]
}

// startCluster needs the server that a variable names: in CI it must, where a skipped test would never run.
func startCluster(t *testing.T, members int, flags ...string) *servers {
	t.Helper()
	server := os.Getenv("ETCD_BINARY")
	if _, err := os.Stat(server); err != nil {
		assert.Must(t, os.Getenv("CI") == "", "ETCD_BINARY must name the real server in CI: %v", err)
		t.Skipf("ETCD_BINARY does not name a program: %v", err)
	}
	scheme := "http://"
	if slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--cert-file=") }) {
		scheme = "https://"
	}
	s := &servers{}
	var peers, cluster []string
	for i := range members {
		s.endpoints, peers = append(s.endpoints, freePort(t)), append(peers, freePort(t))
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	for i, endpoint := range s.endpoints {
		own := []string{"--name", fmt.Sprintf("m%d", i), "--data-dir", t.TempDir() + "/data", "--log-level", "error",
			"--unsafe-no-fsync", "--listen-client-urls", scheme + endpoint, "--advertise-client-urls", scheme + endpoint,
			"--listen-peer-urls", "http://" + peers[i], "--initial-advertise-peer-urls", "http://" + peers[i],
			"--initial-cluster", strings.Join(cluster, ",")}
		s.processes = append(s.processes, startMember(t, exec.Command(server, append(own, flags...)...)))
	}
	return s
}

func startMember(t *testing.T, command *exec.Cmd) *os.Process {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "log"))
	assert.OK(t, err)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.OK(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		problem := command.Process.Signal(syscall.SIGTERM)
		assert.That(t, problem == nil || errors.Is(problem, os.ErrProcessDone), "%v", problem)
		select {
		case <-ended:
		case <-hang.Midway(hang.Limit):
			t.Errorf("%s does not end on SIGTERM: %v", command.Path, command.Process.Kill())
		}
		if t.Failed() {
			log, err := os.ReadFile(output.Name())
			t.Logf("%s: %s (%v)", command.Path, log, err)
		}
	})
	return command.Process
}

// freePort is below those that the kernel gives to connections and to listeners of port 0: no other process takes it
// before the server does.
func freePort(t *testing.T) (address string) {
	t.Helper()
	const lowest, ports = 10_000, 22_000
	for range 100 {
		address = fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(ports))
		if _, taken := portsGiven.LoadOrStore(address, nil); taken {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			err := listener.Close()
			assert.That(t, err == nil, "%v", err)
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// portsGiven are the addresses that freePort gave to tests of this process.
var portsGiven sync.Map

func TestMain(m *testing.M) {
	// A copy of the test's program is the program that it is named as.
	switch filepath.Base(os.Args[0]) {
	case "benchmark-client":
		Process("test", nil)
	case "benchmark-client-tls":
		Process("test", secure.Files)
	}
	os.Exit(m.Run())
}
