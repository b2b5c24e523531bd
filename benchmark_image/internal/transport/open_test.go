package transport

import (
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// within runs f in the loop.
func (l *loop) within(f func()) {
	done := make(chan struct{})
	l.poller.post(func() { f(); close(done) })
	<-done
}

// TestAMemberThatDoesNotAcceptAtOnce drops what opens a connection at first, which TCP sends again after 1 s.
func TestAMemberThatDoesNotAcceptAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*worldtest.Listener)
		want string // error; empty: none
		took time.Duration
	}{
		"it accepts later": {func(l *worldtest.Listener) { l.Drop(false) }, "", time.Second},
		"it is closed":     {func(l *worldtest.Listener) { l.Refuse(true) }, "connect: connection refused", time.Second},
		"it never does":    {func(*worldtest.Listener) {}, "i/o timeout", handshake},
	} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			cluster := etcdtest.Simulate(w, 1, nil)
			listener := cluster.Members[0].Listener
			listener.Latency = 0
			listener.Drop(true)
			w.After(time.Millisecond, func() { c.then(listener) })
			l, err := newLoop(w, etcd.Protocol{}, nil, 10*time.Second, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			member := l.newConn(cluster.Members[0].Endpoint)
			l.connectAll([]*conn{member})
			w.Until(func() bool { return member.isReady.Load() || member.lastError.Load() != nil })
			if got := member.lastError.Load(); (got == nil) != (c.want == "") || got != nil && (*got).Error() != c.want ||
				w.Since() < c.took || w.Since() > c.took+time.Millisecond {
				t.Errorf("%s: after %v the error is %v, want %q", name, w.Since(), got, c.want)
			}
		})
	}
}

// TestConnectionsShareTheirTimers counts what would wake the loop up once many connections are open.
func TestConnectionsShareTheirTimers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 300})
		timers, expected := 0, 0
		transport.loop.within(func() { timers, expected = len(transport.loop.timers), len(transport.loop.expected) })
		if timers > 4 || expected != 300 {
			t.Errorf("%d timers for %d connections", timers, expected)
		}
		w.Until(func() (empty bool) {
			transport.loop.within(func() { empty = len(transport.loop.expected) == 0 })
			return empty
		})
	})
}
