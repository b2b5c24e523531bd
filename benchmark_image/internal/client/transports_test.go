package client

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"containernet-env/benchmark_image/internal/etcd"
	"containernet-env/benchmark_image/internal/membership"
)

// asProgram makes the test program behave as benchmark-client, which has no grpc-go.
const asProgram = "TEST_AS_BENCHMARK_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		Process("test")
	}
	// What package grpcgo does, which these tests cannot import.
	Transports["grpc"] = func(ctx context.Context, o membership.Options) (Transport, error) {
		t, err := etcd.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	if arguments := os.Getenv(argumentsOf); arguments != "" {
		os.Exit(Main(context.Background(), "test", strings.Fields(arguments), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// program is a copy of the test program that behaves as benchmark-client.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "benchmark-client")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

// TestTheClientHasNothingOfTheOtherTransport looks at what is linked into it: grpc-go alone doubles its memory.
func TestTheClientHasNothingOfTheOtherTransport(t *testing.T) {
	list := func(program string) string {
		out, err := exec.Command("go", "list", "-deps", "../../cmd/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		return "\n" + string(out)
	}
	client, other := list("benchmark-client"), list("benchmark-client-grpc")
	for _, unwanted := range []string{"google.golang.org/grpc", "google.golang.org/protobuf/proto", "net/http"} {
		if strings.Contains(client, "\n"+unwanted+"\n") || !strings.Contains(other, "\n"+unwanted+"\n") {
			t.Errorf("%s is to be in benchmark-client-grpc, and not in benchmark-client", unwanted)
		}
	}
}

// TestTheOtherTransportIsAProgramBesideThisOne checks that it gets all arguments, and that its exit status counts.
func TestTheOtherTransportIsAProgramBesideThisOne(t *testing.T) {
	args := []string{"put", "--total=7", "--transport", "grpc", "--prefix=a b"}
	c := program(t, args...)
	other := filepath.Join(filepath.Dir(c.Path), "benchmark-client-grpc")
	script := "#!/bin/sh\nprintf '%s|' \"$0\" \"$@\"\nexit 7\n"
	if err := os.WriteFile(other, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if want := strings.Join(append([]string{other}, args...), "|") + "|"; string(out) != want || c.ProcessState.ExitCode() != 7 {
		t.Errorf("it printed %q (%v), want %q and status 7", out, err, want)
	}
}

func TestTheOtherTransportCanBeMissing(t *testing.T) {
	c := program(t, "put", "--transport=grpc")
	out, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != ExitFailed || !strings.Contains(string(out), "benchmark-client-grpc: no such file") {
		t.Errorf("status %d: %s", c.ProcessState.ExitCode(), out)
	}
}

// TestWhatIsWrongIsSaidBeforeTheOtherTransportIsLookedFor checks that a usage error stays one.
func TestWhatIsWrongIsSaidBeforeTheOtherTransportIsLookedFor(t *testing.T) {
	c := program(t, "put", "--transport=grpc", "--clients=0")
	out, _ := c.CombinedOutput()
	if c.ProcessState.ExitCode() != ExitUsage || !strings.Contains(string(out), "--clients") {
		t.Errorf("status %d: %s", c.ProcessState.ExitCode(), out)
	}
}

// contents is the revision of a store, and each key with its version and value.
func contents(t *testing.T, endpoint string) string {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	all, err := etcdserverpb.NewKVClient(connection).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %d keys\n", all.Header.Revision, all.Count)
	for _, kv := range all.Kvs {
		fmt.Fprintf(&b, "%q version %d: %q\n", kv.Key, kv.Version, kv.Value)
	}
	return b.String()
}

// TestBothTransportsLeaveTheSameStore runs the same loads through both, each against a real server of its own.
func TestBothTransportsLeaveTheSameStore(t *testing.T) {
	left := make(map[string]string)
	for name := range Transports {
		endpoint, _ := startEtcd(t)
		for _, args := range []string{
			"put --total=3000 --clients=60 --conns=7 --sequential-keys --val-size=100",
			"put --total=900 --clients=20 --conns=2 --key-size=5 --prefix=again/ --key-space-size=300",
			"put --total=30 --clients=10 --conns=2 --key-size=3 --prefix=large/ --val-size=700000 --seed=5",
			"put --total=10 --val-size=0 --prefix=empty/",
			"txn --total=3000 --clients=60 --conns=7 --sequential-keys --val-size=100",
			"txn --total=30 --clients=10 --conns=2 --key-size=3 --prefix=large/ --val-size=700000 --seed=5",
			"range --total=4000 --clients=60 --conns=7 --key-size=8 --key-space-size=3000 --require-found",
			"range --total=500 --clients=5 --consistency=s large/000 large/00z --require-found --limit=3",
			"range --total=50 again/ --prefix --keys-only --require-found",
		} {
			status, _, stderr := call(t, append(strings.Fields(args), "--transport="+name, "--endpoints="+endpoint, "--dial-timeout=30s")...)
			if status != ExitOK {
				t.Errorf("%s through %s: %s", args, name, stderr)
			}
		}
		left[name] = contents(t, endpoint)
	}
	if left["h2"] != left["grpc"] || !strings.HasPrefix(left["h2"], "revision 6971, 3340 keys\n") {
		t.Errorf("h2 leaves %.200s\ngrpc leaves %.200s", left["h2"], left["grpc"])
	}
}

// TestTransactions writes only what holds the value that it must.
func TestTransactions(t *testing.T) {
	for name := range Transports {
		endpoint, _ := startEtcd(t)
		keys := []string{"--total=500", "--clients=20", "--conns=3", "--key-size=4", "--val-size=100", "--transport=" + name, "--endpoints=" + endpoint, "--dial-timeout=30s"}
		missing, _, _ := callJSON(t, append(keys, "txn")...)
		put, _, _ := callJSON(t, append(keys, "put")...)
		before := contents(t, endpoint)
		if missing != ExitFailed || put != ExitOK || !strings.HasPrefix(before, "revision 501, 500 keys\n") {
			t.Fatalf("%s: status %d and %d: %.200s", name, missing, put, before)
		}
		status, result, stderr := callJSON(t, append(keys, "txn", "--seed=1")...)
		if status != ExitFailed || result.Outcomes.Failed != 500 || result.Codes["Check"] != 500 || contents(t, endpoint) != before {
			t.Errorf("%s: with another seed: status %d, %+v, stderr %s", name, status, result.Outcomes, stderr)
		}
		status, result, stderr = callJSON(t, append(keys, "txn", "--warmup=10")...)
		after := strings.NewReplacer("revision 501", "revision 1011", "version 1", "version 2").Replace(before)
		got := strings.ReplaceAll(contents(t, endpoint), "version 3", "version 2") // of those that the warm-up wrote
		if status != ExitOK || result.OK != 500 || result.Operation != "txn" || got != after {
			t.Errorf("%s: status %d, %+v, stderr %s; the store: %.200s", name, status, result.Outcomes, stderr, got)
		}
	}
}
