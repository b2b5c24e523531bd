package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"containernet-env/benchmark_image/internal/direct"
	"containernet-env/benchmark_image/internal/etcd"
)

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
	for name := range transports {
		endpoint, _ := startEtcd(t)
		for _, args := range []string{
			"put --total=3000 --clients=60 --conns=7 --sequential-keys --val-size=100",
			"put --total=900 --clients=20 --conns=2 --key-size=5 --prefix=again/ --key-space-size=300",
			"put --total=30 --clients=10 --conns=2 --key-size=3 --prefix=large/ --val-size=700000 --seed=5",
			"put --total=10 --val-size=0 --prefix=empty/",
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
	if left["h2"] != left["grpc"] || !strings.HasPrefix(left["h2"], "revision 3941, 3340 keys\n") {
		t.Errorf("h2 leaves %.200s\ngrpc leaves %.200s", left["h2"], left["grpc"])
	}
}

// TestTransactions writes only what is unchanged.
func TestTransactions(t *testing.T) {
	endpoint, _ := startEtcd(t)
	transport, err := direct.Open(t.Context(), etcd.Options{
		Endpoints: []string{endpoint}, Conns: 1, TargetLeader: true, DialTimeout: 30 * time.Second, RequestTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	revision := int64(0)
	for i, c := range []struct {
		stale     bool
		succeeded bool
	}{{false, true}, {false, true}, {true, false}, {false, true}} {
		expected := revision
		if c.stale {
			expected--
		}
		answer, err := transport.PutIfUnchanged(t.Context(), []byte("k"), []byte{byte('0' + i)}, expected)
		if err != nil || answer.Succeeded != c.succeeded || answer.Member == 0 {
			t.Fatalf("transaction %d: %+v, %v", i, answer, err)
		}
		if answer.Succeeded {
			revision = answer.Revision
		}
	}
	if got, want := contents(t, endpoint), "revision 4, 1 keys\n\"k\" version 3: \"3\"\n"; got != want {
		t.Errorf("the store holds %s", got)
	}
}
