//go:build plumbing

package transport

import (
	"context"
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestWhatIsRefusedIsSaidAtOnce has members and clients whose certificates do not fit each other.
func TestWhatIsRefusedIsSaidAtOnce(t *testing.T) {
	good, other := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	server := func(version uint16, change func(*tls.Config)) *tls.Config {
		config := good.Server(version)
		if change != nil {
			change(config)
		}
		return config
	}
	serves := func(certificate tls.Certificate) func(*tls.Config) {
		return func(config *tls.Config) { config.Certificates = []tls.Certificate{certificate} }
	}
	for name, c := range map[string]struct {
		change func(*tls.Config)
		client store.Security
		want   []string // in TLS 1.2 and 1.3, or in both
	}{
		"another CA": {nil, trusting(other, good), []string{"certificate signed by unknown authority"}},
		"expired": {serves(good.Issue(-time.Hour, "127.0.0.1")), trusting(good, good),
			[]string{"certificate has expired or is not yet valid"}},
		"another address": {serves(good.Issue(time.Hour, "127.0.0.2")), trusting(good, good),
			[]string{"certificate is valid for 127.0.0.2, not 127.0.0.1"}},
		"no address": {serves(good.Issue(time.Hour, "localhost")), trusting(good, good),
			[]string{"doesn't contain any IP SANs"}},
		"no client certificate": {nil, trusting(good, nil),
			[]string{"refuses the connection: tls: handshake failure", "refuses the connection: tls: certificate required"}},
		"client of another CA": {nil, trusting(good, other),
			[]string{"refuses the connection: tls: unknown certificate authority",
				"refuses the connection: tls: unknown certificate authority"}},
		"no HTTP/2": {nil, secure.New(&tls.Config{RootCAs: good.Pool(),
			Certificates: []tls.Certificate{good.Issue(time.Hour)}}, "h3"), []string{"no application protocol"}},
		"a plain member": {nil, trusting(good, good), []string{"does not speak TLS"}},
		"a plain client": {nil, nil, []string{"closes new connections: does it speak TLS?"}},
	} {
		for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			var options []grpc.ServerOption
			if name != "a plain member" {
				options = append(options, etcdtest.Secured(server(version, c.change)))
			}
			cluster := etcdtest.Start(t, 2, options...)
			for _, o := range []Options{
				{Endpoints: cluster.Endpoints(), Conns: 4, DialTimeout: time.Minute, RequestTimeout: time.Minute},
				{Endpoints: cluster.Endpoints(), Conns: 4, DialTimeout: time.Minute, RequestTimeout: time.Minute,
					TargetLeader: true},
			} {
				if c.client == nil {
					o.DialTimeout, o.TargetLeader = time.Second, false // a member that closes connections may stop doing so
				}
				transport, err := Open(t.Context(), etcd.Protocol{Secured: c.client}, o)
				if err == nil {
					transport.Close()
					t.Errorf("%s: it was opened", name)
					continue
				}
				want := c.want[i%len(c.want)]
				if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, "127.0.0.1:") && !o.TargetLeader {
					t.Errorf("%s, version %x, leader %v: %q, want %q", name, version, o.TargetLeader, text, want)
				}
			}
			if len(cluster.Keys()) > 0 || cluster.Members[0].Requests.Load() > 0 {
				t.Errorf("%s: requests were sent", name)
			}
		}
	}
}

// TestALeaderElsewhereIsReachedOverTLS follows the address with TLS in the list of members.
func TestALeaderElsewhereIsReachedOverTLS(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	cluster := etcdtest.Start(t, 3, etcdtest.Secured(authority.Server(tls.VersionTLS13)))
	cluster.Secured = true
	cluster.Elect(3)
	o := Options{Endpoints: cluster.Endpoints()[:1], Conns: 2, TargetLeader: true, DialTimeout: 10 * time.Second,
		RequestTimeout: time.Second}
	transport, err := Open(t.Context(), etcd.Protocol{Secured: trusting(authority, authority)}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	if result := load.NewRun(puts(nil, 20, 2)).Attack(t.Context(),
		transport); result.Failed != 0 || cluster.Members[2].Requests.Load() != 20 {
		t.Errorf("%d failed, the leader got %d requests: %v", result.Failed, cluster.Members[2].Requests.Load(),
			result.Errors)
	}
}

// TestARefusalConcernsTheLeaderAlone: in a run, a member's new certificate that is not trusted keeps the load from that
// member alone, and at the end it is said why the load is not there.
func TestARefusalConcernsTheLeaderAlone(t *testing.T) {
	good, other := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	config, replaced := good.Server(tls.VersionTLS13), other.Server(tls.VersionTLS13)
	var renewed atomic.Pointer[string] // the member with another certificate
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if member := renewed.Load(); member != nil && hello.Conn.LocalAddr().String() == *member {
			return replaced, nil
		}
		return nil, nil
	}
	cluster := etcdtest.Start(t, 3, etcdtest.Secured(config))
	o := Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true, DialTimeout: time.Minute,
		RequestTimeout: time.Second}
	transport, err := Open(t.Context(), etcd.Protocol{Secured: trusting(good, good)}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	renewed.Store(&cluster.Members[1].Endpoint)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hang.Midway(500 * time.Millisecond) // by then it is refused; it would be tried again for a minute
		cancel()
	}()
	if transport.moveTo(ctx, cluster.Members[1].Endpoint) {
		t.Error("the load moved to a member that is not trusted")
	}
	if err := transport.LeaderLost(); err == nil || !strings.Contains(err.Error(),
		cluster.Members[1].Endpoint+": ") || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("the leader is lost: %v", err)
	}
	if !transport.moveTo(t.Context(), cluster.Members[2].Endpoint) || transport.LeaderLost() != nil {
		t.Errorf("the load did not move to a member that is trusted: %v", transport.LeaderLost())
	}
	if got := transport.target(0, 0).member; got != cluster.Members[2].Endpoint {
		t.Errorf("requests go to %s", got)
	}
}
