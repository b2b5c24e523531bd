package transport

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestEveryConnectionIsPermitted compares the connections that members accept with those that were judged: those of the
// load, of the search for the leader, and of following it.
func TestEveryConnectionIsPermitted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		_, port, err := net.SplitHostPort(cluster.Members[0].Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		endpoints := append([]string{"localhost:" + port}, cluster.Endpoints()[1:]...)
		var judged atomic.Int64
		permit := func(endpoint string, address netip.AddrPort) error {
			judged.Add(1)
			if host, p, _ := net.SplitHostPort(endpoint); !address.Addr().IsPrivate() || host == "localhost" && p != port {
				t.Errorf("%v of %s", address, endpoint)
			}
			return nil
		}
		transport := openFor(t, w, Options{Endpoints: endpoints, Conns: 2, TargetLeader: true, Permit: permit})
		_, end := begin(t, puts(w, 1_000_000, 2), transport)
		cluster.Elect(2)
		w.Until(func() bool { return cluster.Members[1].Requests.Load() > 20 })
		if result := end(); result.Failed != 0 {
			t.Errorf("%d failed: %v", result.Failed, result.Errors)
		}
		accepted := 0
		w.Until(func() bool {
			accepted = 0
			for _, m := range cluster.Members {
				accepted += m.Connections()
			}
			return accepted >= int(judged.Load())
		})
		if want := 3 + 2 + 3 + 2; accepted != int(judged.Load()) || accepted < want { // localhost may have two addresses
			t.Errorf("%d connections, at least %d were expected, and %d were judged", accepted, want, judged.Load())
		}
	})
}

// TestALeaderThatMustNotBeAsked: what members tell of the leader does not lead a load elsewhere.
func TestALeaderThatMustNotBeAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 2, nil)
		allowed, other := cluster.Members[0].Endpoint, cluster.Members[1]
		o := Options{
			Endpoints: []string{allowed}, Conns: 2, TargetLeader: true,
			DialTimeout: 300 * time.Millisecond, RequestTimeout: 5 * time.Second,
			Permit: func(_ string, address netip.AddrPort) error {
				if address.String() != allowed {
					return errors.New("not here")
				}
				return nil
			},
		}
		transport := openFor(t, w, o)
		_, end := begin(t, puts(w, 1_000_000, 2), transport)
		cluster.Elect(2)
		w.Sleep(4 * o.DialTimeout) // within that, it would have been reached
		result, lost := end(), transport.LeaderLost()
		if result.Failed != 0 || lost == nil || !strings.Contains(lost.Error(), "not here") {
			t.Errorf("%d failed, leader lost: %v", result.Failed, transport.LeaderLost())
		}
		late, err := openWith(t, w, etcd.Protocol{}, o)
		if err == nil || !strings.Contains(err.Error(), other.Endpoint+": not here") {
			t.Errorf("another load, which begins there: %v", err)
			late.Close()
		}
		if other.Connections() != 0 {
			t.Errorf("%d connections to it", other.Connections())
		}
	})
}
