//go:build plumbing

package transport

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestRequestsDoNotAllocate counts what the whole process allocates while a member answers from memory.
func TestRequestsDoNotAllocate(t *testing.T) {
	const total = 50_000
	order, values := keys.NewOrder(1, true, 0), keys.NewValues(8, 0)
	endpoint := etcdtest.CannedMember(t, values.At(0))
	transport := openFor(t, nil, Options{Endpoints: []string{endpoint}, Conns: 4})
	reads := puts(nil, total, 40)
	reads.Targeter = &load.Reads{KeySize: 1, Order: order}
	verified := reads
	verified.Targeter = &load.Reads{KeySize: 1, Order: order, Verify: values}
	open := puts(nil, total, 40)
	open.Pacer = load.NewOpenLoop(load.Constant(100_000), total, 0, total)
	for i, o := range []load.Options{puts(nil, total, 40), puts(nil, total, 40), reads, verified, open} {
		n, result := countMallocs(t, transport, o)
		if result.Failed != 0 {
			t.Fatal(result.Errors)
		}
		t.Logf("load %d: %d allocations for %d requests", i, n, total)
		if n > total/50 {
			t.Errorf("load %d: %d allocations for %d requests", i, n, total)
		}
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
			transport := openFor(b, nil, Options{Endpoints: []string{etcdtest.CannedMember(b, []byte("value"))}, Conns: c.conns})
			reads := puts(nil, b.N, c.clients)
			reads.Targeter = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 0),
				Span: load.Request{Serializable: true}}
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
	endpoint := etcdtest.RawMember(t, func(c net.Conn) {
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
		if err != nil {
			t.Fatal(err)
		}
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
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool { return m.Answer(stream) == nil })(connection)
			}
		}()
		judged := make(chan netip.AddrPort, 10)
		transport, err := Open(t.Context(), etcd.Protocol{}, Options{Endpoints: []string{endpoint}, Conns: 2,
			DialTimeout: time.Minute, RequestTimeout: time.Minute,
			Permit: func(of string, address netip.AddrPort) error {
				if of != endpoint {
					t.Errorf("%s is judged as %s", endpoint, of)
				}
				judged <- address
				return nil
			}})
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
		} else {
			if result := load.NewRun(puts(nil, 20, 2)).Attack(t.Context(), transport); result.Failed != 0 {
				t.Errorf("%s: %v", endpoint, result.Errors)
			}
			transport.Close()
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		found := false
		for range len(judged) {
			found = found || (<-judged).Addr().WithZone("").String() == c.judged
		}
		if !found {
			t.Errorf("%s: %s was not judged", endpoint, c.judged)
		}
	}
}

// TestALeaderIsFollowedAfterAnExpiry has the questions after the leader carry new tokens, too.
func TestALeaderIsFollowedAfterAnExpiry(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	users := &etcdtest.Users{Name: "root", Password: "secret"}
	cluster := etcdtest.Start(t, 2, etcdtest.Secured(authority.Server(tls.VersionTLS13)), users.Option())
	protocol := etcd.Protocol{Secured: trusting(authority, authority), User: &etcd.User{Name: "root", Password: "secret"}}
	o := Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true, DialTimeout: time.Minute,
		RequestTimeout: time.Minute}
	transport, err := Open(t.Context(), protocol, o)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	run := load.NewRun(puts(nil, 10_000_000, 4))
	ended := make(chan load.Result)
	go func() { ended <- run.Attack(t.Context(), transport) }()
	users.Expire()
	cluster.Elect(2)
	hang.Until(t, "requests at the new leader", func() bool { return cluster.Members[1].Requests.Load() > 50 })
	run.Stop("enough")
	if result := <-ended; result.Failed != 0 {
		t.Errorf("%d failed: %v", result.Failed, result.Errors)
	}
}
