//go:build plumbing

package client

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
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
	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/verify"
)

// realLoad is a load of a real store. ODD stands for a prefix of keys that URLs and paths must encode, LARGE for the
// size of values that the store just takes.
type realLoad struct {
	args   string
	empty  int // answers
	failed int // checks of answers
}

// usual are loads of every store.
var usual = []realLoad{
	{args: "put --total=2000 --clients=50 --conns=6 --sequential-keys --val-size=256"},
	{args: "put --total=100 --clients=5 --key-size=4 --prefix=ODD --val-size=64"},
	{args: "put --total=9 --clients=3 --conns=3 --key-size=3 --prefix=large/ --val-size=LARGE --seed=5"},
	{args: "range --total=2000 --clients=20 --conns=6 --key-size=8 --key-space-size=2000 --val-size=256 --verify"},
	{args: "range --total=100 --key-size=4 --key-space-size=100 --key-prefix=ODD --val-size=64 --verify"},
	{args: "range --total=9 --key-size=3 --key-space-size=9 --key-prefix=large/ --val-size=LARGE --seed=5 --verify"},
	{args: "range --total=20 absent", empty: 20},
	{args: "mixed --total=600 --clients=10 --conns=3 --key-size=8 --key-space-size=2000 --val-size=256 --verify"},
}

// relaxed are loads of stores with leaders, transactions and reads that are not linearizable.
var relaxed = []realLoad{
	{args: "range --total=600 --clients=9 --key-size=8 --key-space-size=2000 --consistency=s --val-size=256 --verify"},
	{args: "put --total=50 --target-leader --prefix=leader/"},
	{args: "txn --total=300 --clients=8 --conns=3 --key-size=8 --key-space-size=2000 --val-size=33"},
	{args: "txn --total=5 --prefix=nowhere/", failed: 5},
}

// ofEtcd are loads of ranges, and of values that only etcd takes.
var ofEtcd = []realLoad{
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
}

// oddPrefix is ODD.
const oddPrefix = "ключ %/\"\\?&#+/.../"

// TestAgainstRealStores runs loads against real servers, has other clients look at what is there, and kills a leader.
func TestAgainstRealStores(t *testing.T) {
	for name, c := range map[string]struct {
		start func(t *testing.T) *servers
		loads []realLoad
		large string
		look  func(t *testing.T, endpoints []string)
	}{
		"etcd": {func(t *testing.T) *servers { return startCluster(t, 3) }, slices.Concat(usual, ofEtcd, relaxed), "1048576",
			func(t *testing.T, endpoints []string) {
				revision, keys := stored(t, endpoints[0])
				assert.That(t, revision == 2984 && keys == 2000+100+9+10+50, "%d keys at revision %d", keys, revision)
			}},
		"zookeeper": {func(t *testing.T) *servers { return startZooKeeper(t, 3, 3) }, slices.Concat(usual, relaxed),
			"1000000", func(t *testing.T, endpoints []string) {
				there := reference(t, endpoints...)
				large, _, err := there.Get("/large%2F000")
				children, _, problem := there.Children("/")
				assert.That(t, err == nil && problem == nil && len(children) == 2000+100+9+50+1 && len(large) == 1_000_000,
					"%d znodes, a large one has %d bytes: %v, %v", len(children), len(large), err, problem)
				if _, text, _ := call(t, nil, "put", "--store=zookeeper", "--total=2000", "--endpoints="+endpoints[0],
					"--sequential-keys"); !strings.Contains(text, "\nSecond tries: 1 writes took two round trips") {
					t.Errorf("the text has no second tries: %.600s", text)
				}
			}},
		"http": {func(t *testing.T) *servers { return startReplicas(t, 3) }, usual, "1048576",
			func(t *testing.T, endpoints []string) {
				query := url.QueryEscape(oddPrefix + "0000")
				status, body := get(t, "http://"+endpoints[1]+"/v0/entity?id="+query)
				assert.That(t, status == 200 && len(body) == 64, "net/http finds %d %q", status, body)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.start(t)
			for _, load := range c.loads {
				args := strings.Fields(load.args)
				for i := range args {
					args[i] = strings.NewReplacer("ODD", oddPrefix, "LARGE", c.large).Replace(args[i])
				}
				const path = "-path=/v0/entity?id={key}&ack=2&from=2"
				if name == "http" && args[0] != "range" {
					args = append(args, "--put"+path)
				}
				if name == "http" && args[0] != "put" {
					args = append(args, "--get"+path)
				}
				status, result, stderr := callJSON(t, nil, append(args, s.flags()...)...)
				if (status == ExitOK) != (load.failed == 0) || result.Failed != load.failed ||
					result.Codes["Check"] != load.failed || result.Empty != load.empty || result.Outcomes.Unknown != 0 {
					t.Errorf("%s: status %d, %d failed, %d empty: %v, %s", load.args, status, result.Failed, result.Empty,
						result.Errors, stderr)
				}
			}
			c.look(t, s.endpoints)
			if name != "http" {
				s.aLeaderIsKilled(t)
			}
		})
	}
}

// aLeaderIsKilled while a load writes and reads: the load follows the next one, no acknowledged write is lost, and what
// is unknown is reported as that.
func (s *servers) aLeaderIsKilled(t *testing.T) {
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

// TestZooKeeperWithoutAQuorum: no session can be opened, and the message says why.
func TestZooKeeperWithoutAQuorum(t *testing.T) {
	s := startZooKeeper(t, 3, 1)
	for args, want := range map[string]string{"put": "it has no quorum", "put --target-leader": "knows of none"} {
		_, _, stderr := callJSON(t, nil, append(strings.Fields(args), "--store=zookeeper", "--dial-timeout=2s",
			"--endpoints="+s.endpoints[0])...)
		assert.That(t, strings.Contains(stderr, want), "%s: %s, want %q", args, stderr, want)
	}
}

// TestRevisionsOfZooKeeper compares those in the answers to writes with those that the znodes have.
func TestRevisionsOfZooKeeper(t *testing.T) {
	s := startZooKeeper(t, 3, 3)
	path := filepath.Join(t.TempDir(), "history")
	status, result, stderr := callJSON(t, nil, append(s.flags(), "mixed", "--total=6000", "--clients=60", "--conns=9",
		"--key-space-size=300", "--key-size=4", "--val-size=60", "--verify", "--history", "--history-file="+path)...)
	file, err := os.Open(path)
	assert.OK(t, err)
	defer file.Close()
	highest := make(map[string]int64)
	if _, err = history.Read(file, func(o history.Operation) {
		if o.Op == history.Put && o.Outcome == history.OK {
			highest[o.Key] = max(highest[o.Key], o.Revision)
		}
	}); err != nil || status != ExitOK || len(highest) < 250 {
		t.Fatalf("%d keys were written, %+v: %v, %s", len(highest), result.Outcomes, err, stderr)
	}
	there := reference(t, s.endpoints...)
	_, problem := there.Sync("/")
	assert.OK(t, problem)
	for key, revision := range highest {
		if _, stat, err := there.Get("/" + key); err != nil || stat.Mzxid != revision {
			t.Errorf("%s was written at %x, and the last answer had %x: %v", key, stat.Mzxid, revision, err)
		}
	}
}

// TestSessionsOfZooKeeperExpire stops a server for longer than the timeout of sessions: they are closed by it then, and
// the load opens new ones.
func TestSessionsOfZooKeeperExpire(t *testing.T) {
	s := startZooKeeper(t, 1, 1, "maxSessionTimeout=1000")
	ended := make(chan report.Result)
	go func() {
		_, result, _ := callJSON(t, nil, append(s.flags(), "put", "--duration=6s", "--clients=8", "--conns=4",
			"--rate=200", "--request-timeout=500ms")...)
		ended <- result
	}()
	for _, signal := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		<-hang.Midway(2 * time.Second) // of the load
		assert.OK(t, s.processes[0].Signal(signal))
	}
	result := <-ended
	last := result.Timeline[len(result.Timeline)-1]
	assert.That(t, result.Outcomes.Unknown != 0 && last.OK >= 100 && last.Failed+last.Unknown == 0,
		"%+v, in the last second %+v: %v", result.Outcomes, last, result.Errors)
	children, _, err := reference(t, s.endpoints...).Children("/")
	if n := len(children) - 1; err != nil || n < result.OK || n > result.OK+result.Outcomes.Unknown {
		t.Errorf("%d znodes, %+v: %v", n, result.Outcomes, err)
	}
}

// TestServicesOverTLS, with an agreement on HTTP/1.1, and without any.
func TestServicesOverTLS(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	ca, certificate, key := authority.Files()
	for _, protocols := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}, nil} {
		var values sync.Map
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
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
			"--cacert="+ca, "--cert="+certificate, "--key="+key, "--key-space-size=50", "--key-size=4", "--val-size=3000")
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
