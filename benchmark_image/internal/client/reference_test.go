//go:build plumbing

package client

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/grpcref"
)

// throughGRPCGo runs a load as the program does, but through the reference.
func throughGRPCGo(t *testing.T, args ...string) (result *report.Result) {
	t.Helper()
	root := command("test", func(s *spec.Spec, _ display) error {
		connections, err := grpcref.Open(s.Endpoints[0], s.Conns)
		if err != nil {
			return err
		}
		defer connections.Close()
		b := &benchmark{spec: s}
		b.run(t.Context(), connections)
		result = report.New(b.setting)
		return nil
	})
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return result
}

// again is the prefix of keys that are put more than once.
const again = "again/"

// contents is the revision of a store, and each key with its version and value. Of a value that a transaction wrote, it
// has the length and the number of the request: the name of its writer differs from run to run.
func contents(t *testing.T, endpoint string) string {
	t.Helper()
	connection, err := grpcref.Dial(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	all, err := etcdserverpb.NewKVClient(connection).Range(ctx,
		&etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %d keys\n", all.Header.Revision, all.Count)
	for _, kv := range all.Kvs {
		value := strconv.Quote(string(kv.Value))
		if kv.Version > 1 && !bytes.HasPrefix(kv.Key, []byte(again)) {
			value = fmt.Sprintf("%d bytes of request %s", len(kv.Value), kv.Value[9:keys.NameSize])
		}
		fmt.Fprintf(&b, "%q version %d: %s\n", kv.Key, kv.Version, value)
	}
	return b.String()
}

// TestTheReferenceLeavesTheSameStore runs the same loads through our transport and through grpc-go, each against a real
// server of its own.
func TestTheReferenceLeavesTheSameStore(t *testing.T) {
	t.Parallel()
	ours := startEtcd(t)
	other := startEtcd(t)
	for _, load := range []string{
		"put --total=3000 --clients=60 --conns=7 --sequential-keys --val-size=100",
		"put --total=900 --clients=20 --conns=2 --key-size=5 --prefix=" + again + " --key-space-size=300",
		"put --total=30 --clients=10 --conns=2 --key-size=3 --prefix=large/ --val-size=700000 --seed=5",
		"put --total=10 --val-size=0 --prefix=empty/",
		"txn --total=3000 --clients=60 --conns=7 --sequential-keys --val-size=100",
		"txn --total=30 --clients=10 --conns=2 --key-size=3 --prefix=large/ --val-size=700000 --seed=5",
		"range --total=4000 --clients=60 --conns=7 --key-size=8 --key-space-size=3000 --require-found",
		"range --total=500 --clients=5 --consistency=s large/000 large/00z --require-found --limit=3",
		"range --total=50 " + again + " --prefix --keys-only --require-found",
	} {
		args := append(strings.Fields(load), "--dial-timeout=30s")
		if status, _, stderr := call(t, nil, append(args, "--endpoints="+ours)...); status != ExitOK {
			t.Errorf("%s: %s", load, stderr)
		}
		if result := throughGRPCGo(t, append(args, "--endpoints="+other)...); result.OK != result.Requests {
			t.Errorf("%s through grpc-go: %d ok: %v", load, result.OK, result.Errors)
		}
	}
	got, want := contents(t, ours), contents(t, other)
	if got != want || !strings.HasPrefix(got, "revision 6971, 3340 keys\n") {
		t.Errorf("ours leaves %.200s\ngrpc-go leaves %.200s", got, want)
	}
}
