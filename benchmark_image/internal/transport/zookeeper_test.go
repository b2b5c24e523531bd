package transport

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/zookeeper"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

func openZooKeeper(t *testing.T, w *worldtest.World, o Options) (*Transport, error) {
	t.Helper()
	return openWith(t, w, zookeeper.New(""), o)
}

func zooKeeper(t *testing.T, w *worldtest.World, o Options) *Transport {
	t.Helper()
	transport, err := openZooKeeper(t, w, o)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// TestZooKeeper sends all kinds of requests to three members that serve the same store.
func TestZooKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		const total = 300
		cluster := zookeepertest.Simulate(w, 3)
		cluster.Elect(2)
		transport := zooKeeper(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 6})
		writes := puts(w, total, 12)
		values := keys.NewValues(40_000, 0)
		writes.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: values}
		again, rewrites, reads := writes, writes, writes
		again.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: values}
		rewrites.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: values, Txn: true}
		reads.Targeter = &load.Reads{KeySize: 4, Order: keys.NewOrder(total, true, 0), Verify: values, Complete: true}
		reads.RequireFound = true
		for _, o := range []load.Options{writes, again, rewrites, reads} {
			if result := load.NewRun(o).Attack(t.Context(), transport); result.Failed != 0 || result.Reason != "" ||
				result.Second != 0 {
				t.Errorf("%d of %d failed: %v, reason %q, %d second tries", result.Failed, total, result.Errors, result.Reason,
					result.Second)
			}
		}
		if got := len(cluster.Paths()); got != total || transport.Leader() != cluster.Members[1].Endpoint {
			t.Errorf("%d znodes, leader %q", got, transport.Leader())
		}
		transport.Close()
		for i, m := range cluster.Members {
			w.Until(func() bool { return m.Closed.Load() == 2 })
			if m.Sessions.Load() != 2 || m.Requests.Load() != 4*total/3 || m.Syncs.Load() != total/3 {
				t.Errorf("member %d: %d sessions, %d requests, %d syncs", i, m.Sessions.Load(), m.Requests.Load(), m.Syncs.Load())
			}
		}
	})
}

// TestSecondTriesAreCounted: a run that knows nothing of the keys finds them there, and each that is new not.
func TestSecondTriesAreCounted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := zookeepertest.Simulate(w, 1)
		for _, want := range []int{0, 1} {
			transport := zooKeeper(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1})
			if result := load.NewRun(puts(w, 50, 1)).Attack(t.Context(), transport); result.Second != want || result.Failed != 0 {
				t.Errorf("%d second tries, want %d; %v", result.Second, want, result.Errors)
			}
		}
		if got := cluster.Members[0].Requests.Load(); got != 101 {
			t.Errorf("100 puts were %d requests", got)
		}
	})
}

func TestZooKeeperMembersThatOpenNoSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		for want, serve := range map[string]func(net.Conn){
			"it has no quorum, or too many connections": func(c net.Conn) { _, _ = zookeepertest.ReadPacket(c) },
			"refuses a session": func(c net.Conn) {
				_, _ = c.Write(zookeepertest.Opened(0))
				_, _ = zookeepertest.ReadPacket(c)
			},
			"breaks ZooKeeper's protocol: a packet of 1213486160 bytes": func(c net.Conn) {
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				_, _ = zookeepertest.ReadPacket(c)
			},
			"does not speak ZooKeeper's protocol": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		} {
			endpoint := w.Serve(serve)
			_, err := openZooKeeper(t, w, Options{Endpoints: []string{endpoint}, Conns: 1, DialTimeout: 300 * time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want something with %q", err, want)
			}
		}
	})
}

// TestSessionsLive: one that is idle for several times its timeout is kept by pings.
func TestSessionsLive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := zookeepertest.Simulate(w, 1)
		cluster.Timeout = 300
		member := cluster.Members[0]
		transport := zooKeeper(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 3})
		w.Until(func() bool { return member.Pings.Load() >= 30 })
		result := load.NewRun(puts(w, 10, 3)).Attack(t.Context(), transport)
		if result.Failed > 0 || member.Sessions.Load() != 3 {
			t.Errorf("%v, %d sessions", result.Errors, member.Sessions.Load())
		}
	})
}

// TestNobodyIsAskedWhoLeads: a proxy may take the question for something else.
func TestNobodyIsAskedWhoLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		for _, leaderless := range []bool{true, false} {
			cluster := zookeepertest.Simulate(w, 2)
			transport := zooKeeper(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2, Leaderless: leaderless})
			words := cluster.Members[0].Words.Load() + cluster.Members[1].Words.Load()
			if leader := transport.Leader(); (words == 0) != leaderless || (leader == "") != leaderless {
				t.Errorf("leaderless %v: %d questions, the leader %q", leaderless, words, leader)
			}
		}
	})
}

func TestTargetLeaderOfZooKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := zookeepertest.Simulate(w, 3)
		transport := zooKeeper(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true,
			RequestTimeout: 30 * time.Second})
		o := puts(w, 1_000_000, 1000)
		o.Pacer = load.NewOpenLoop(load.Constant(500), 1_000_000, 0, 1_000_000)
		_, end := begin(t, o, transport)
		for _, leader := range []int{1, 3, 1} {
			cluster.Elect(leader)
			m := cluster.Members[leader-1]
			before := m.Requests.Load()
			w.Until(func() bool { return m.Requests.Load() > before+20 })
		}
		// One that hangs, and still says that it leads in an epoch that is over.
		cluster.Members[0].Hang()
		cluster.Elect(2)
		w.Until(func() bool { return cluster.Members[1].Requests.Load() > 20 })
		cluster.Members[0].Release()
		if result := end(); result.Failed != 0 {
			t.Errorf("%d failed: %v", result.Failed, result.Errors)
		}
		var leaders []string
		for _, change := range transport.LeaderChanges() {
			leaders = append(leaders, change.Leader)
		}
		want := []string{cluster.Members[2].Endpoint, cluster.Members[0].Endpoint, cluster.Members[1].Endpoint}
		if strings.Join(leaders, " ") != strings.Join(want, " ") || transport.Connections() != 2 ||
			transport.LeaderLost() != nil {
			t.Errorf("leader changes %v, want %v; %d connections, %v", leaders, want, transport.Connections(),
				transport.LeaderLost())
		}
	})
}

func TestNoLeaderOfZooKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := zookeepertest.Simulate(w, 2)
		cluster.Elect(0)
		for _, endpoints := range [][]string{cluster.Endpoints(), {w.Serve(func(net.Conn) {})}} {
			_, err := openZooKeeper(t, w, Options{
				Endpoints: endpoints, Conns: 1, TargetLeader: true, DialTimeout: 300 * time.Millisecond,
			})
			if err == nil || !strings.Contains(err.Error(), "no leader was found: "+endpoints[0]) &&
				!strings.Contains(err.Error(), "no leader was found: "+endpoints[len(endpoints)-1]) {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestQuestionsForTheLeaderArePermitted: they lead to no address to which a load may not.
func TestQuestionsForTheLeaderArePermitted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := zookeepertest.Simulate(w, 2)
		cluster.Elect(2)
		allowed := cluster.Members[0].Endpoint
		_, err := openZooKeeper(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1, TargetLeader: true,
			DialTimeout: 300 * time.Millisecond, Permit: func(_ string, address netip.AddrPort) error {
				if address.String() != allowed {
					return errors.New("not here")
				}
				return nil
			}})
		if err == nil || cluster.Members[0].Words.Load() == 0 || cluster.Members[1].Words.Load() > 0 {
			t.Errorf("%v; %d and %d questions", err, cluster.Members[0].Words.Load(), cluster.Members[1].Words.Load())
		}
	})
}
