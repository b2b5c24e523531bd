//go:build plumbing

package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/h2"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// serve serves each connection with a function, until the test ends.
func serve(t testing.TB, listener net.Listener, connection func(net.Conn)) (endpoint string) {
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
	return listener.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	return listener
}

// canned is a member that answers every request with the same bytes, and never makes a client wait for a window. The
// answer to a range holds a key with the value, in which a put's answer has no field.
func canned(t testing.TB, value []byte) (endpoint string) {
	return serve(t, listen(t), func(c net.Conn) {
		settings := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}
		m, err := etcdtest.Greet(c, settings)
		if err == nil && m.Framer.WriteWindowUpdate(0, 1<<30) == nil && m.Framer.WriteWindowUpdate(0, 1<<29) == nil {
			answerAll(c, value)
		}
	})
}

// answerAll answers every complete request with the same bytes, but for the stream.
func answerAll(c net.Conn, value []byte) {
	const data, ends = 0, 1
	in, out := make([]byte, 0, 1<<16), make([]byte, 0, 1<<16)
	answer := append([]byte{0x0a, 2, 0x18, 7, 0x12, byte(5 + len(value)), 0x0a, 1, '0', 0x2a,
		byte(len(value))}, value...)
	answer = append(answer, 0x20, 1)
	answer = append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...)
	first := true
	for {
		n, err := c.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in, out = in[:len(in)+n], out[:0]
		rest := in
		for len(rest) >= 9 {
			length := 9 + (int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2]))
			if len(rest) < length {
				break
			}
			if stream := binary.BigEndian.Uint32(rest[5:]); rest[3] == data && rest[4]&ends != 0 {
				out = etcdtest.AppendAnswer(out, stream, first, answer)
				first = false
			}
			rest = rest[length:]
		}
		in = in[:copy(in[:cap(in)], rest)]
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// TestRequestsDoNotAllocate counts what the whole process allocates while a member answers from memory.
func TestRequestsDoNotAllocate(t *testing.T) {
	const total = 50_000
	order, values := keys.NewOrder(1, true, 0), keys.NewValues(8, 0)
	endpoint := canned(t, values.At(0))
	transport := openFor(t, nil, Options{Endpoints: []string{endpoint}, Conns: 4})
	reads := puts(nil, total, 40)
	reads.Targeter = &load.Reads{KeySize: 1, Order: order}
	verified := reads
	verified.Targeter = &load.Reads{KeySize: 1, Order: order, Verify: values}
	open := puts(nil, total, 40)
	open.Pacer = load.NewOpenLoop(load.Constant(100_000), total, 0, total)
	for i, o := range []load.Options{puts(nil, total, 40), puts(nil, total, 40), reads, verified, open} {
		n, result := countMallocs(t, transport, o)
		assert.Must(t, result.Failed == 0, "%v", result.Errors)
		t.Logf("load %d: %d allocations for %d requests", i, n, total)
		assert.That(t, n <= total/50, "load %d: %d allocations for %d requests", i, n, total)
	}
}

// countMallocs runs a load and counts what the process allocates meanwhile.
func countMallocs(t *testing.T, transport *Transport, o load.Options) (n uint64, result load.Result) {
	run := load.NewRun(o)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result = run.Attack(t.Context(), transport)
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, result
}

// BenchmarkSerializableRanges drives one client process's loop as fast as it goes: the member, in the same process,
// does no more than to answer.
func BenchmarkSerializableRanges(b *testing.B) {
	const least, settled = 100_000, 500_000
	for _, c := range []struct{ conns, clients int }{{10, 100}, {100, 1000}, {3000, 3000}} {
		b.Run(fmt.Sprintf("%d/%d", c.conns, c.clients), func(b *testing.B) {
			transport := openFor(b, nil, Options{Endpoints: []string{canned(b, []byte("value"))}, Conns: c.conns})
			reads := puts(nil, b.N, c.clients)
			reads.Targeter = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 0),
				Span: store.Request{Serializable: true}}
			b.ResetTimer()
			result := load.NewRun(reads).Attack(b.Context(), transport)
			if rate := float64(b.N) / result.Took.Seconds(); result.Failed != 0 {
				b.Error(result.Errors)
			} else if b.ReportMetric(rate, "ranges/s"); rate < least && b.N > settled && c.conns < c.clients {
				b.Errorf("%.0f ranges/s", rate)
			}
		})
	}
}

// TestHTTPRequestsDoNotAllocate counts what the whole process allocates while a member answers from memory.
func TestHTTPRequestsDoNotAllocate(t *testing.T) {
	value := keys.NewValues(8, 0)
	endpoint := serve(t, listen(t), func(c net.Conn) {
		in, answer := make([]byte, 1<<16), []byte("HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: 4\r\n\r\ntrue")
		read := []byte("HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: 8\r\n\r\n" + string(value.At(0)))
		for {
			n, err := c.Read(in) // one request at a time, in one piece
			if err != nil {
				return
			}
			out := answer
			if bytes.HasPrefix(in[:n], []byte("GET")) {
				out = read
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	for name, protocol := range map[string]store.Protocol{"consul": consul.Protocol{}, "http": service} {
		transport, err := Open(t.Context(), protocol, Options{Endpoints: []string{endpoint}, Conns: 4,
			DialTimeout: time.Minute, RequestTimeout: time.Minute})
		assert.OK(t, err)
		const total = 50_000
		reads := puts(nil, total, 40)
		reads.Targeter = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 0), Verify: value}
		for i, o := range []load.Options{puts(nil, total, 40), puts(nil, total, 40), reads} {
			if n, result := countMallocs(t, transport, o); result.Failed != 0 || n > total/50 {
				t.Errorf("%s, load %d: %d allocations for %d requests, %v", name, i, n, total, result.Errors)
			}
		}
		transport.Close()
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
		listener, err := net.Listen("tcp", c.listen)
		if err != nil {
			if strings.HasPrefix(c.listen, "[") {
				t.Logf("no IPv6 here: %v", err)
				continue
			}
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		endpoint := fmt.Sprintf(c.endpoint, port)
		serve(t, listener, etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Answer(stream) == nil
		}))
		judged := make(chan netip.AddrPort, 10)
		transport, err := Open(t.Context(), etcd.Protocol{}, Options{Endpoints: []string{endpoint}, Conns: 2,
			DialTimeout: time.Minute, RequestTimeout: time.Minute,
			Permit: func(of string, address netip.AddrPort) error {
				assert.That(t, of == endpoint, "%s is judged as %s", endpoint, of)
				judged <- address
				return nil
			}})
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
		} else {
			result := load.NewRun(puts(nil, 20, 2)).Attack(t.Context(), transport)
			assert.That(t, result.Failed == 0, "%s: %v", endpoint, result.Errors)
			transport.Close()
		}
		problem := listener.Close()
		assert.That(t, problem == nil, "%v", problem)
		found := false
		for range len(judged) {
			found = found || (<-judged).Addr().WithZone("").String() == c.judged
		}
		assert.That(t, found, "%s: %s was not judged", endpoint, c.judged)
	}
}

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
				assert.OK(t, err)
				defer transport.Close()
				values, order := keys.NewValues(c.valSize, 0), keys.NewOrder(c.total, true, 0)
				for _, targeter := range []load.Targeter{
					&load.Puts{KeySize: 4, Order: order, Values: values},
					&load.Puts{KeySize: 4, Order: order, Values: values, Txn: true},
					&load.Reads{KeySize: 4, Order: order, Verify: values},
				} {
					o := puts(nil, c.total, 20)
					o.Targeter, o.RequireFound = targeter, true
					if result := load.NewRun(o).Attack(t.Context(), transport); result.Failed != 0 || result.Reason != "" {
						t.Errorf("%d of %d failed: %v, reason %q", result.Failed, c.total, result.Errors, result.Reason)
					}
				}
				got := len(cluster.Keys())
				assert.That(t, got == c.total, "%d keys of %d were written", got, c.total)
				opened := 0
				for _, m := range cluster.Members {
					opened += m.Connections()
				}
				reconnects := name == "old connections" || name == "the last stream numbers"
				assert.That(t, (opened > 4) == reconnects, "%d connections were opened", opened)
			})
		}
	}
}

// TestRefusedConnectionsFailAtOnce has members and clients whose certificates do not fit each other.
func TestRefusedConnectionsFailAtOnce(t *testing.T) {
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
			assert.That(t, len(cluster.Keys()) == 0 && cluster.Members[0].Requests.Load() == 0, "%s: requests were sent",
				name)
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
	assert.OK(t, err)
	defer transport.Close()
	result := load.NewRun(puts(nil, 20, 2)).Attack(t.Context(), transport)
	assert.That(t, result.Failed == 0 && cluster.Members[2].Requests.Load() == 20,
		"%d failed, the leader got %d requests: %v", result.Failed, cluster.Members[2].Requests.Load(), result.Errors)
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
	assert.OK(t, err)
	defer transport.Close()
	renewed.Store(&cluster.Members[1].Endpoint)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hang.Midway(500 * time.Millisecond) // by then it is refused; it would be tried again for a minute
		cancel()
	}()
	assert.That(t, !transport.moveTo(ctx, cluster.Members[1].Endpoint), "the load moved to a member that is not trusted")
	problem := transport.LeaderLost()
	assert.That(t, problem != nil && strings.Contains(problem.Error(), cluster.Members[1].Endpoint+": ") &&
		strings.Contains(problem.Error(), "unknown authority"), "the leader is lost: %v", problem)
	assert.That(t, transport.moveTo(t.Context(), cluster.Members[2].Endpoint) && transport.LeaderLost() == nil,
		"the load did not move to a member that is trusted: %v", transport.LeaderLost())
	got := transport.target(0, 0).member
	assert.That(t, got == cluster.Members[2].Endpoint, "requests go to %s", got)
}
