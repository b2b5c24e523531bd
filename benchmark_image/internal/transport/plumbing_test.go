//go:build plumbing

package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// serve serves each connection to an address with a function, until the test ends.
func serve(t testing.TB, address string, connection func(net.Conn)) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				connection(c)
				_ = c.Close() // the client may have gone already
			}()
		}
	}()
	return listener, nil
}

// TestRequestsDoNotAllocate counts what the whole process allocates while a member answers from memory. Package etcd
// counts for the messages of its protocol.
func TestRequestsDoNotAllocate(t *testing.T) {
	const total = 50_000
	order, value := keys.NewOrder(1, true, 0), keys.NewValues(8, 0)
	listener, err := serve(t, "127.0.0.1:0", func(c net.Conn) {
		in, header := make([]byte, 1<<16), "HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: "
		written, read := []byte(header+"4\r\n\r\ntrue"), []byte(header+"8\r\n\r\n"+string(value.At(0)))
		for n, err := c.Read(in); err == nil; n, err = c.Read(in) { // one request at a time, in one piece
			out := written
			if bytes.HasPrefix(in[:n], []byte("GET")) {
				out = read
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	assert.OK(t, err)
	for name, protocol := range map[string]store.Protocol{"consul": consul.Protocol{}, "http": service} {
		o := Options{Spec: &spec.Spec{Endpoints: []string{listener.Addr().String()}, Conns: 4}}
		transport := assert.Got(openWith(t, nil, protocol, o))(t)
		reads, open := puts(nil, total, 40), puts(nil, total, 40)
		reads.Targeter = &load.Reads{KeySize: 1, Order: order, Verify: value}
		open.Pacer = load.NewOpenLoop(load.Constant(100_000), total, 0)
		for i, o := range []load.Options{puts(nil, total, 40), puts(nil, total, 40), reads, open} {
			run := load.NewRun(o)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			result := run.Attack(t.Context(), transport)
			runtime.ReadMemStats(&after)
			n := after.Mallocs - before.Mallocs
			assert.That(t, result.Failed == 0 && n <= total/50, "%s, load %d: %d allocations for %d requests, %v", name, i, n,
				total, result.Errors)
		}
	}
}

// TestEveryFormOfAnEndpoint opens connections to one member by its addresses and its name.
func TestEveryFormOfAnEndpoint(t *testing.T) {
	for _, c := range []struct{ listen, endpoint, judged string }{
		{"127.0.0.1:0", "127.0.0.1:%s", "127.0.0.1"},
		{"127.0.0.1:0", "[::ffff:127.0.0.1]:%s", "127.0.0.1"},
		{"127.0.0.1:0", "localhost:%s", "127.0.0.1"},
		{"[::1]:0", "[::1]:%s", "::1"},
		{"[::1]:0", "[::1%%lo]:%s", "::1"},
	} {
		listener, err := serve(t, c.listen, etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Answer(stream) == nil
		}))
		if err != nil && strings.HasPrefix(c.listen, "[") {
			t.Logf("no IPv6 here: %v", err)
			continue
		}
		assert.OK(t, err)
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		endpoint, judged := fmt.Sprintf(c.endpoint, port), make(chan netip.AddrPort, 10)
		permit := func(of string, address netip.AddrPort) error {
			assert.That(t, of == endpoint, "%s is judged as %s", endpoint, of)
			judged <- address
			return nil
		}
		options := Options{Spec: &spec.Spec{Endpoints: []string{endpoint}, Conns: 2}, Permit: permit}
		transport, err := openWith(t, nil, etcd.Protocol{}, options)
		assert.Must(t, err == nil, "%s: %v", endpoint, err)
		result, found := load.NewRun(puts(nil, 20, 2)).Attack(t.Context(), transport), false
		for range len(judged) {
			found = found || (<-judged).Addr().WithZone("").String() == c.judged
		}
		assert.That(t, found && result.Failed == 0, "%s: %s was judged: %v; %v", endpoint, c.judged, found, result.Errors)
	}
}

// TestRefusedConnectionsFailAtOnce has members and clients whose certificates do not fit each other.
func TestRefusedConnectionsFailAtOnce(t *testing.T) {
	good, other := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	expired, elsewhere := good.Issue(-time.Hour, "127.0.0.1"), good.Issue(time.Hour, "127.0.0.2")
	named := good.Issue(time.Hour, "localhost")
	for name, c := range map[string]struct {
		serves *tls.Certificate // nil: a good one
		client store.Security
		want   []string // in TLS 1.2 and 1.3, or in both
	}{
		"another CA": {nil, trusting(other, good), []string{"certificate signed by unknown authority"}},
		"expired":    {&expired, trusting(good, good), []string{"certificate has expired or is not yet valid"}},
		"another address": {&elsewhere, trusting(good, good),
			[]string{"certificate is valid for 127.0.0.2, not 127.0.0.1"}},
		"no address": {&named, trusting(good, good), []string{"doesn't contain any IP SANs"}},
		"no client certificate": {nil, trusting(good, nil),
			[]string{"refuses the connection: tls: handshake failure", "refuses the connection: tls: certificate required"}},
		"client of another CA": {nil, trusting(good, other),
			[]string{"refuses the connection: tls: unknown certificate authority"}},
		"no HTTP/2": {nil, secure.New(&tls.Config{RootCAs: good.Pool(),
			Certificates: []tls.Certificate{good.Issue(time.Hour)}}, "h3"), []string{"no application protocol"}},
		"a plain member": {nil, trusting(good, good), []string{"does not speak TLS"}},
		"a plain client": {nil, nil, []string{"closes new connections: does it speak TLS?"}},
	} {
		for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			config, options := good.Server(version), []grpc.ServerOption(nil)
			if c.serves != nil {
				config.Certificates = []tls.Certificate{*c.serves}
			}
			if name != "a plain member" {
				options = append(options, etcdtest.Secured(config))
			}
			cluster := etcdtest.Start(t, 2, options...)
			for _, leader := range []bool{false, true} {
				o := Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: 4, TargetLeader: leader}}
				if c.client == nil {
					o.DialTimeout, o.TargetLeader = time.Second, false // a member that closes connections may stop doing so
				}
				_, err := openWith(t, nil, etcd.Protocol{Secured: c.client}, o)
				text, want := fmt.Sprint(err), c.want[i%len(c.want)]
				assert.That(t, err != nil && strings.Contains(text, want) &&
					(o.TargetLeader || strings.Contains(text, "127.0.0.1:")), "%s, version %x, leader %v: %q, want %q", name,
					version, o.TargetLeader, text, want)
			}
			assert.That(t, len(cluster.Keys()) == 0 && cluster.Members[0].Requests.Load() == 0, "%s: requests were sent",
				name)
		}
	}
}

// TestARefusalConcernsTheLeaderAlone: the leader is found by its address with TLS in the list of members. In a run, a
// member's new certificate that is not trusted keeps the load from that member alone, and at the end it is said why the
// load is not there.
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
	cluster.Secured = true
	cluster.Elect(3)
	transport, err := openWith(t, nil, etcd.Protocol{Secured: trusting(good, good)},
		Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints()[:1], Conns: 2, TargetLeader: true}})
	assert.OK(t, err)
	assert.Equal(t, transport.Leader, cluster.Members[2].Endpoint, "the leader's address with TLS")
	renewed.Store(&cluster.Members[1].Endpoint)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hang.Midway(500 * time.Millisecond) // by then it is refused; it would be tried again for a minute
		cancel()
	}()
	assert.That(t, !transport.moveTo(ctx, cluster.Members[1].Endpoint), "the load moved to a member that is not trusted")
	problem := transport.LeaderLost
	assert.That(t, problem != nil && strings.Contains(problem.Error(), cluster.Members[1].Endpoint+": ") &&
		strings.Contains(problem.Error(), "unknown authority"), "the leader is lost: %v", problem)
	assert.That(t, transport.moveTo(t.Context(), cluster.Members[0].Endpoint) && transport.LeaderLost == nil,
		"the load did not move to a member that is trusted: %v", transport.LeaderLost)
	assert.Equal(t, transport.target(0, 0).member, cluster.Members[0].Endpoint, "requests go to")
}
