package transport

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world"
)

// fullListener has a queue of new connections that is full: the kernel drops the packets of further ones.
func fullListener(t *testing.T) net.Listener {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer func() { _ = file.Close() }()
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(fd, loopback), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(file) // it does not listen again, which would change the length of the queue
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // a test may have closed it
	for range 10 {
		filler, err := net.DialTimeout("tcp", listener.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return listener
		}
		t.Cleanup(func() { _ = filler.Close() })
	}
	t.Fatal("the queue does not fill up")
	return nil
}

// within runs f in the loop.
func (l *loop) within(f func()) {
	done := make(chan struct{})
	l.poller.post(func() { f(); close(done) })
	<-done
}

func TestAMemberThatDoesNotAcceptAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(net.Listener)
		want string // error; empty: none
	}{
		"it accepts later": {func(listener net.Listener) {
			serve := etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true })
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go serve(connection)
			}
		}, ""},
		"it is closed":  {func(listener net.Listener) { _ = listener.Close() }, "connect: connection refused"},
		"it never does": {func(net.Listener) {}, "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for TCP
			listener := fullListener(t)
			l, err := newLoop(world.Real(), etcd.Protocol{}, nil, 10*time.Second, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			member := l.newConn(listener.Addr().String())
			l.connectAll([]*conn{member})
			waitFor(t, "an attempt to connect", func() (connecting bool) {
				l.within(func() { connecting = len(l.links) > 0 && l.links[0] != nil && l.links[0].connecting })
				return connecting
			})
			begin := time.Now()
			go c.then(listener)
			waitFor(t, "its end", func() bool { return member.isReady.Load() || member.lastError.Load() != nil })
			if got := member.lastError.Load(); (got == nil) != (c.want == "") || got != nil && (*got).Error() != c.want {
				t.Errorf("the error is %v, want %q", *got, c.want)
			}
			if took := time.Since(begin); c.want == "i/o timeout" && (took < handshake/2 || took > 2*handshake) {
				t.Errorf("it took %v", took)
			}
		})
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
			DialTimeout: 10 * time.Second, RequestTimeout: 10 * time.Second,
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
			if result := load.NewRun(puts(20, 2)).Attack(t.Context(), transport); result.Failed != 0 {
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

// TestConnectionsShareTheirTimers counts what would wake the loop up once many connections are open.
func TestConnectionsShareTheirTimers(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 300})
	timers, expected := 0, 0
	transport.loop.within(func() { timers, expected = len(transport.loop.timers), len(transport.loop.expected) })
	if timers > 4 || expected != 300 {
		t.Errorf("%d timers for %d connections", timers, expected)
	}
	waitFor(t, "the list of connections that are not ready to be empty", func() (empty bool) {
		transport.loop.within(func() { empty = len(transport.loop.expected) == 0 })
		return empty
	})
}
