//go:build plumbing

package client

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
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

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
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
	c := assert.Got(grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(security)))(t)
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
	output := assert.Got(os.Create(filepath.Join(t.TempDir(), "log")))(t)
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
		address = fmt.Sprintf("127.0.0.1:%d", lowest+mathrand.IntN(ports))
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

// write puts a file into a folder of the test.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	assert.OK(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestCertificatesAndPasswordsAreReadFromFiles(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	users := &etcdtest.Users{Name: "root", Password: "a secret"}
	cluster := etcdtest.Start(t, 2, etcdtest.Secured(authority.Server(tls.VersionTLS13)), users.Option())
	ca, certificate, key := authority.Files()
	args := []string{"put", "--endpoints=" + strings.Join(cluster.Endpoints(), ","), "--total=100", "--clients=10",
		"--conns=2", "--dial-timeout=60s",
		"--cacert=" + ca, "--cert=" + certificate, "--key=" + key, "--user=root"}
	with := func(more ...string) []string { return append(append([]string(nil), args...), more...) }
	t.Setenv(spec.PasswordVariable, "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{with(), "log in as \"root\": there is neither a password file nor the environment variable BENCHMARK_PASSWORD"},
		{with("--password-file=/not/there"), "read the password of \"root\": open /not/there: no such file or directory"},
		{with("--password-file=" + write(t, "\nsesame")), "the first line of"},
		{with("--password-file=" + write(t, "sesame")), "authentication failed, invalid user ID or password"},
		{with("--password-file="+write(t, "a secret"), "--user=nobody"),
			"authentication failed, invalid user ID or password"},
		{with("--cacert=/not/there"), "read the CA: open /not/there: no such file or directory"},
		{with("--cacert=" + key), "holds no certificate in PEM form"},
		{with("--cert=/not/there"), "read the client's certificate: open /not/there: no such file or directory"},
		{with("--key=" + ca), "read the client's certificate: " + certificate + " and " + ca + ": tls: "},
		{with("--cacert=" + write(t, strings.Repeat("x", spec.MaxSecret+1))), "is larger than 1048576 bytes"},
	} {
		status, _, stderr := call(t, nil, c.args...)
		assert.That(t, status == ExitFailed && strings.Contains(stderr, c.want) && strings.Count(stderr, "\n") == 1 &&
			!strings.Contains(stderr, "sesame"), "%q: status %d, %q, want one line with %q", c.args[9:], status, stderr,
			c.want)
	}
	assert.That(t, len(cluster.Keys()) == 0, "requests were sent")
	for _, line := range []string{"a secret", "a secret\n", "a secret\r\nsecond line"} {
		status, _, stderr := call(t, nil, with("--password-file="+write(t, line))...)
		assert.That(t, status == ExitOK, "%q: status %d, %s", line, status, stderr)
	}
	t.Setenv(spec.PasswordVariable, "a secret")
	status, stdout, stderr := call(t, nil, with("--output=json")...)
	assert.That(t, status == ExitOK && len(cluster.Keys()) == 100 && !strings.Contains(stdout+stderr, "a secret"),
		"status %d, %d keys, %s%s", status, len(cluster.Keys()), stdout, stderr)
}

// TestTheProgramWithTLSTakesOver gives loads over TLS to the program that has none.
func TestTheProgramWithTLSTakesOver(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	users := &etcdtest.Users{Name: "root", Password: "a secret"}
	cluster := etcdtest.Start(t, 1, etcdtest.Secured(authority.Server(tls.VersionTLS13)), users.Option())
	plain := etcdtest.Start(t, 1, users.Option())
	ca, certificate, key := authority.Files()
	load := []string{"put", "--total=50", "--user=root", "--endpoints=" + plain.Members[0].Endpoint}
	secured := append(load[:3:3], "--endpoints="+cluster.Members[0].Endpoint, "--cacert="+ca, "--cert="+certificate,
		"--key="+key)
	given := spec.Default(spec.Put)
	given.Endpoints, given.Total, given.User = cluster.Endpoints(), 50, "root"
	given.CAFile, given.CertFile, given.KeyFile = ca, certificate, key
	input := assert.Got(json.Marshal(&given))(t)
	both, alone := t.TempDir(), t.TempDir() // with copies of the test's program
	self := assert.Got(os.ReadFile("/proc/self/exe"))(t)
	missing := filepath.Join(alone, "benchmark-client-tls")
	const client = "/benchmark-client"
	for _, path := range []string{both + client, both + client + "-tls", alone + client} {
		assert.OK(t, os.WriteFile(path, self, 0o700))
	}
	for _, c := range []struct {
		folder, program string
		args            []string
		status          int
		carried         int64
		want            string
	}{
		{both, "benchmark-client", secured, ExitOK, 50, ""},
		{both, "benchmark-client", append(secured[:7:7], "--output=xml"), ExitUsage, 0, "--output"},
		{both, "benchmark-client", append(secured[:7:7], "--user=nobody"), ExitFailed, 0, "authentication failed"},
		{both, "benchmark-client-tls", secured, ExitOK, 50, ""},
		{both, "benchmark-client-tls", []string{"run"}, ExitOK, 50, ""},
		{both, "benchmark-client", []string{"run"}, ExitUsage, 0,
			"standard input: caFile: benchmark-client has no TLS; give this load to benchmark-client-tls"},
		{alone, "benchmark-client", secured, ExitUsage, 0, "TLS is in a program of its own, " + missing +
			": no such file or directory; put it there: "},
		{alone, "benchmark-client", load, ExitOK, 50, ""},
	} {
		requests := func() int64 { return cluster.Members[0].Requests.Load() + plain.Members[0].Requests.Load() }
		before := requests()
		command := exec.Command(filepath.Join(c.folder, c.program), c.args...)
		command.Env = append(os.Environ(), spec.PasswordVariable+"=a secret")
		command.Stdin = bytes.NewReader(input)
		var stderr strings.Builder
		command.Stderr = &stderr
		_ = command.Run() // the status is judged
		carried := requests() - before
		status := command.ProcessState.ExitCode()
		lines := slices.DeleteFunc(strings.SplitAfter(stderr.String(), "\n"), func(line string) bool {
			return line == "" || strings.Contains(line, "the generator itself was paused") // by a busy machine
		})
		assert.That(t, status == c.status && carried == c.carried && len(lines) == min(len(c.want), 1) &&
			strings.Contains(strings.Join(lines, ""), c.want),
			"%s %q: status %d, %d requests, %q, want %d, %d and a line with %q", c.program, c.args, status, carried, &stderr,
			c.status, c.carried, c.want)
	}
}

// TestAgainstEtcdWithTLSAndUsers runs against the real server. Its tokens end after two seconds, whether they are used
// or not.
func TestAgainstEtcdWithTLSAndUsers(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	ca, certificate, key := authority.Files("127.0.0.1")
	private, public := tokenKeys(t)
	endpoint := startEtcd(t, "--cert-file="+certificate, "--key-file="+key, "--trusted-ca-file="+ca,
		"--client-cert-auth",
		"--auth-token=jwt,sign-method=ES256,ttl=2s,pub-key="+public+",priv-key="+private)
	addUsers(t, authority, endpoint)
	own := []string{"--endpoints=" + endpoint, "--cacert=" + ca, "--cert=" + certificate, "--key=" + key,
		"--user=writer", "--dial-timeout=30s"}
	t.Setenv(spec.PasswordVariable, "secret")
	for _, args := range [][]string{
		{"put", "--duration=5s", "--clients=20", "--conns=5", "--key-size=8", "--key-space-size=2000", "--prefix=allowed/"},
		{"put", "--total=2000", "--clients=50", "--conns=5", "--key-size=8", "--prefix=allowed/", "--sequential-keys",
			"--target-leader"},
		{"range", "--total=2000", "--clients=50", "--key-size=8", "--key-space-size=2000", "--key-prefix=allowed/",
			"--require-found"},
	} {
		status, result, stderr := callJSON(t, nil, append(args, own...)...)
		assert.That(t, status == ExitOK && result.OK == result.Requests && result.Requests > 0,
			"%q: status %d, %d of %d, %s", args, status, result.OK, result.Requests, stderr)
	}
	for _, c := range []struct{ want, args string }{
		{`write "forbidden/`, "put --prefix=forbidden/"},
		{`write "some/00000009"`, "put --prefix=some/ --key-size=8 --key-space-size=10"},
		{`read and write "forbidden/`, "txn --prefix=forbidden/ --key-size=8 --val-size=64"},
		{`write "forbidden/`, "mixed --prefix=forbidden/ --key-size=8 --key-space-size=10"},
		{`read "forbidden/`, "range --key-prefix=forbidden/ --key-size=8 --key-space-size=10 --consistency=s"},
		{`read the keys before "forbidden/`, "range --key-prefix=forbidden/ --key-size=8 --key-space-size=10 --span-keys=3"},
		{`read the keys before "b" from "allowed/"`, "range allowed/ b"},
	} {
		status, result, stderr := callJSON(t, nil, append(strings.Fields(c.args), append(own, "--total=20")...)...)
		wants := []string{"the user may not " + c.want,
			"nothing of the load was sent: " + endpoint + ": PermissionDenied: etcdserver: permission denied"}
		assert.That(t, status == ExitFailed && result.Done == 0 && strings.Contains(stderr, wants[0]) &&
			strings.Contains(stderr, wants[1]), "%s: status %d, %d requests, %s", c.args, status, result.Done, stderr)
	}
}

// tokenKeys writes a pair of keys with which etcd signs tokens.
func tokenKeys(t *testing.T) (private, public string) {
	t.Helper()
	key := assert.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	secret, err := x509.MarshalECPrivateKey(key)
	open, problem := x509.MarshalPKIXPublicKey(&key.PublicKey)
	assert.OK(t, errors.Join(err, problem))
	encoded := func(kind string, content []byte) string {
		return write(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})))
	}
	return encoded("EC PRIVATE KEY", secret), encoded("PUBLIC KEY", open)
}

// addUsers lets writer write and read below allowed/ and five keys below some/ alone, and makes the member ask for
// users.
func addUsers(t *testing.T, authority *etcdtest.Authority, endpoint string) {
	t.Helper()
	config := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{authority.Issue(time.Hour)}}
	auth := etcdserverpb.NewAuthClient(dialGRPC(t, endpoint, credentials.NewTLS(config)))
	ctx := hang.Context(t)
	do := func(_ any, err error) {
		t.Helper()
		assert.OK(t, err)
	}
	do(auth.UserAdd(ctx, &etcdserverpb.AuthUserAddRequest{Name: "root", Password: "root"}, grpc.WaitForReady(true)))
	do(auth.UserAdd(ctx, &etcdserverpb.AuthUserAddRequest{Name: "writer", Password: "secret"}))
	do(auth.RoleAdd(ctx, &etcdserverpb.AuthRoleAddRequest{Name: "root"}))
	do(auth.RoleAdd(ctx, &etcdserverpb.AuthRoleAddRequest{Name: "below"}))
	for from, before := range map[string]string{"allowed/": "allowed0", "some/00000000": "some/00000005"} {
		span := &authpb.Permission{PermType: authpb.READWRITE, Key: []byte(from), RangeEnd: []byte(before)}
		do(auth.RoleGrantPermission(ctx, &etcdserverpb.AuthRoleGrantPermissionRequest{Name: "below", Perm: span}))
	}
	do(auth.UserGrantRole(ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
	do(auth.UserGrantRole(ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: "writer", Role: "below"}))
	do(auth.AuthEnable(ctx, &etcdserverpb.AuthEnableRequest{}))
}
