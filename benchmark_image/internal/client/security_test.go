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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

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
	input, err := json.Marshal(&given)
	assert.OK(t, err)
	both, alone := t.TempDir(), t.TempDir() // with copies of the test's program
	self, err := os.ReadFile("/proc/self/exe")
	assert.OK(t, err)
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
		assert.That(t, status == c.status && carried == c.carried && strings.Contains(stderr.String(), c.want) &&
			strings.Count(stderr.String(), "\n") == min(len(c.want), 1),
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.OK(t, err)
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

func TestTokensAreOnTheFirstLineOfTheirFile(t *testing.T) {
	for content, want := range map[string]string{
		"t-1\r\nrest": "t-1", "t-1": "t-1", "": "is empty", "\nt-1": "is empty", "a b\n": "visible ASCII",
		"\u00fc": "visible ASCII", "a\x00": "visible ASCII",
	} {
		file := filepath.Join(t.TempDir(), "token")
		assert.OK(t, os.WriteFile(file, []byte(content), 0o600))
		got, err := token(&spec.Spec{TokenFile: file})
		if err != nil {
			got = err.Error()
		}
		assert.That(t, strings.Contains(got, want) && (err == nil) == (got == want), "%q: %q, want %q", content, got, want)
	}
	found, problem := token(&spec.Spec{})
	assert.That(t, found == "" && problem == nil, "without a file: %q, %v", found, problem)
	_, fault := token(&spec.Spec{TokenFile: filepath.Join(t.TempDir(), "none")})
	assert.That(t, fault != nil, "a file that is not there has a token")
}
