//go:build plumbing

package transport

import (
	"crypto/tls"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"containernet-env/benchmark_image/internal/h2"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestAgainstGRPCGo runs loads against grpc-go's server in settings that change the protocol.
func TestAgainstGRPCGo(t *testing.T) {
	for name, c := range map[string]struct {
		server  []grpc.ServerOption
		client  h2.Options
		valSize int
		total   int
	}{
		"plain":                {valSize: 64, total: 1000},
		"one call at a time":   {server: []grpc.ServerOption{grpc.MaxConcurrentStreams(1)}, valSize: 64, total: 300},
		"no header table":      {server: []grpc.ServerOption{grpc.HeaderTableSize(0)}, valSize: 64, total: 300},
		"small header table":   {server: []grpc.ServerOption{grpc.HeaderTableSize(200)}, valSize: 64, total: 300},
		"unbuffered writes":    {server: []grpc.ServerOption{grpc.WriteBufferSize(0)}, valSize: 5000, total: 300},
		"large values":         {valSize: 1 << 20, total: 60},
		"large values, window": {client: h2.Options{Window: 65535}, valSize: 300_000, total: 100},
		"large windows": {server: []grpc.ServerOption{grpc.InitialWindowSize(1 << 24),
			grpc.InitialConnWindowSize(1 << 24)}, valSize: 1 << 20, total: 60},
		"old connections": {server: []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: 60 * time.Millisecond, MaxConnectionAgeGrace: 10 * time.Second,
		})}, valSize: 64, total: 6000},
		"the last stream numbers": {client: h2.Options{FirstStream: math.MaxInt32 - 20}, valSize: 64, total: 300},
	} {
		for with, version := range map[string]uint16{"": 0, " over TLS 1.2": tls.VersionTLS12,
			" over TLS 1.3": tls.VersionTLS13} {
			t.Run(name+with, func(t *testing.T) {
				options := append(slices.Clone(c.server), grpc.MaxRecvMsgSize(math.MaxInt32))
				protocol := etcd.Protocol{HTTP2: c.client}
				if version != 0 {
					authority := etcdtest.NewAuthority(t)
					options = append(options, etcdtest.Secured(authority.Server(version)))
					protocol.Secured = trusting(authority, authority)
				}
				cluster := etcdtest.Start(t, 2, options...)
				o := Options{Endpoints: cluster.Endpoints(), Conns: 4, DialTimeout: time.Minute,
					RequestTimeout: time.Minute}
				transport, err := Open(t.Context(), protocol, o)
				if err != nil {
					t.Fatal(err)
				}
				defer transport.Close()
				values := keys.NewValues(c.valSize, 0)
				writes := puts(nil, c.total, 20)
				writes.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(c.total, true, 0), Values: values}
				reads := writes
				reads.Targeter = &load.Reads{KeySize: 4, Order: keys.NewOrder(c.total, true, 0), Verify: values}
				reads.RequireFound = true
				rewrites := writes
				rewrites.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(c.total, true, 0), Values: values, Txn: true}
				for _, o := range []load.Options{writes, rewrites, reads} {
					if result := load.NewRun(o).Attack(t.Context(), transport); result.Failed != 0 || result.Reason != "" {
						t.Errorf("%d of %d failed: %v, reason %q", result.Failed, c.total, result.Errors, result.Reason)
					}
				}
				if got := len(cluster.Keys()); got != c.total {
					t.Errorf("%d keys of %d were written", got, c.total)
				}
				opened := 0
				for _, m := range cluster.Members {
					opened += m.Connections()
				}
				if reconnects := name == "old connections" || name == "the last stream numbers"; (opened > 4) != reconnects {
					t.Errorf("%d connections were opened", opened)
				}
			})
		}
	}
}
