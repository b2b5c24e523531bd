package transport

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// openFor opens connections in a world; nil: the real one.
func openFor(t testing.TB, w *worldtest.World, o Options) *Transport {
	t.Helper()
	transport, err := openWith(t, w, etcd.Protocol{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// openWith closes the connections at the end.
func openWith(t testing.TB, w *worldtest.World, protocol store.Protocol, o Options) (*Transport, error) {
	t.Helper()
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 10 * time.Second
	}
	cleanup := t.Cleanup
	if w != nil {
		o.World, cleanup = w, w.Cleanup
	}
	transport, err := Open(t.Context(), protocol, o)
	if err == nil {
		cleanup(transport.Close)
	}
	return transport, err
}

// inWorld runs a test in a simulated world.
func inWorld(t *testing.T, test func(t *testing.T, w *worldtest.World)) {
	t.Helper()
	worldtest.Run(t, 1, test)
}

// puts is a load in a world; nil: the real one.
func puts(w *worldtest.World, total, clients int) load.Options {
	o := load.Options{
		Total: total, Clients: clients, Pacer: load.ClosedLoop{Total: total}, Stall: time.Minute,
		Targeter: &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: keys.NewValues(64, 0)},
	}
	if w != nil {
		o.World = w
	}
	return o
}

func TestConnectionsGoRoundTheMembers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		for _, c := range []struct {
			members, conns, clients int
			connections             []int // of each member
		}{
			{1, 4, 8, []int{4}},
			{3, 1, 1, []int{1, 1, 1}},
			{3, 2, 5, []int{1, 1, 1}},
			{3, 7, 2, []int{3, 2, 2}},
			{3, 3, 1, []int{1, 1, 1}},
			{3, 10, 30, []int{4, 3, 3}},
		} {
			cluster := etcdtest.Simulate(w, c.members, nil)
			transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: c.conns})
			result := load.NewRun(puts(w, 90, c.clients)).Attack(t.Context(), transport)
			if result.Failed != 0 || result.Reason != "" || len(cluster.Keys()) != 90 {
				t.Errorf("%+v: %d failed, reason %q, %d keys", c, result.Failed, result.Reason, len(cluster.Keys()))
			}
			sum := 0
			for i, m := range cluster.Members {
				sum += c.connections[i]
				if m.Connections() != c.connections[i] {
					t.Errorf("%+v: member %d has %d connections", c, i, m.Connections())
				}
				if got := m.Requests.Load(); got != int64(90/c.members) {
					t.Errorf("%+v: member %d got %d requests", c, i, got)
				}
			}
			if transport.Connections() != sum || transport.Leader() != cluster.Members[0].Endpoint {
				t.Errorf("%+v: %d connections, leader %q", c, transport.Connections(), transport.Leader())
			}
		}
	})
}

func TestTargetLeaderUsesOnlyTheLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		cluster.Elect(2)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true})
		load.NewRun(puts(w, 20, 2)).Attack(t.Context(), transport)
		if got := cluster.Members[1].Requests.Load(); got != 20 || transport.Leader() != cluster.Members[1].Endpoint ||
			transport.Connections() != 2 {
			t.Errorf("the leader got %d requests over %d connections, leader %q", got, transport.Connections(),
				transport.Leader())
		}
	})
}

func TestTargetLeaderFindsALeaderThatIsNotAmongTheEndpoints(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		cluster.Elect(3)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints()[:1], Conns: 2, TargetLeader: true})
		if want := cluster.Members[2].Endpoint; transport.Leader() != want {
			t.Errorf("the leader is %q, want %q", transport.Leader(), want)
		}
	})
}

func TestTargetLeaderDoesNotWaitForADeadFollower(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 2, nil)
		endpoints := append(cluster.Endpoints(), w.Nobody())
		transport := openFor(t, w, Options{Endpoints: endpoints, Conns: 1, TargetLeader: true, DialTimeout: time.Minute})
		if took := w.Since(); took > leaderPoll+10*time.Millisecond || transport.Leader() != endpoints[0] {
			t.Errorf("the leader %q was found after %v", transport.Leader(), took)
		}
	})
}

func TestTargetLeaderWithoutALeaderIsAnError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 2, nil)
		for leader, want := range map[uint64]string{0: "knows of none", 99: "member id 63"} {
			cluster.Elect(leader)
			_, err := Open(t.Context(), etcd.Protocol{}, Options{World: w,
				Endpoints: cluster.Endpoints(), Conns: 1, TargetLeader: true, DialTimeout: 200 * time.Millisecond,
				RequestTimeout: time.Second,
			})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("leader %d: %v, want something with %q", leader, err, want)
			}
		}
	})
}

func TestMembersThatCannotBeReached(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		for endpoint, want := range map[string]string{
			w.Nobody():             "connection refused",
			w.Listen(nil).Endpoint: "does not speak HTTP/2",
		} {
			_, err := Open(t.Context(), etcd.Protocol{}, Options{World: w, Endpoints: []string{endpoint}, Conns: 3, DialTimeout: 200 * time.Millisecond, RequestTimeout: time.Second})
			if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), endpoint) != 1 {
				t.Errorf("%v, want %q and the endpoint %s once", err, want, endpoint)
			}
		}
	})
}

// TestASilentMemberIsTheOnlyOneToBlame puts it first: waiting for it takes all the time there is, and each of the
// others is ready by then.
func TestASilentMemberIsTheOnlyOneToBlame(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster, silent := etcdtest.Simulate(w, 10, nil), w.Listen(nil).Endpoint
		transport := openFor(t, w, Options{Endpoints: append([]string{silent}, cluster.Endpoints()...), Conns: 11,
			DialTimeout: 500 * time.Millisecond})
		if missing := transport.Unreachable(); len(missing) != 1 || !strings.Contains(missing[0].Error(), silent) {
			t.Errorf("unreachable: %v", missing)
		}
	})
}

// TestADeadMemberFailsItsOwnRequestsOnly: they fail at once, and no client pauses.
func TestADeadMemberFailsItsOwnRequestsOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		const total = 3000
		cluster := etcdtest.Simulate(w, 2, nil)
		dead := w.Nobody()
		for _, c := range []struct{ conns, clients int }{{1, 1}, {3, 6}, {7, 4}} {
			transport := openFor(t, w, Options{Endpoints: append(cluster.Endpoints(), dead), Conns: c.conns,
				DialTimeout: 300 * time.Millisecond})
			if missing := transport.Unreachable(); len(missing) != 1 || !strings.Contains(missing[0].Error(), dead) {
				t.Errorf("unreachable: %v", missing)
			}
			result := load.NewRun(puts(w, total, c.clients)).Attack(t.Context(), transport)
			if result.Failed != total/3 || result.Reason != "" {
				t.Errorf("%+v: %d of %d failed, reason %q", c, result.Failed, total, result.Reason)
			}
			for text := range result.Errors {
				if !strings.HasPrefix(text, dead+": Unavailable: ") {
					t.Errorf("unexpected error %q", text)
				}
			}
		}
	})
}

// TestAStallOfOneMemberOfThree: what is due there in that time is answered at its end, and all else at once.
func TestAStallOfOneMemberOfThree(t *testing.T) {
	const rate, total, from, to = 300, 900, time.Second, 2 * time.Second
	for _, conns := range []int{10, 30} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			cluster := etcdtest.Simulate(w, 3, nil)
			const away = time.Millisecond
			for _, m := range cluster.Members {
				m.Listener.Latency = away
			}
			transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: conns})
			o := puts(w, total, 30)
			o.Members, o.Pacer = 3, load.NewOpenLoop(load.Constant(rate), total, 0, total)
			w.After(from, cluster.Members[1].Hang)
			w.After(to, cluster.Members[1].Release)
			result := load.NewRun(o).Attack(t.Context(), transport)
			slow, free := 0, make([]time.Duration, 10) // when the clients of the member that stalls are
			for i, record := range result.Records {
				want := 2 * away
				if i%3 == 1 {
					sent := max(record.Start, free[0])
					answered := sent + away
					if answered > from && answered < to {
						answered = to
					}
					want = answered + away - record.Start
					free = append(free[1:], record.Start+want)
				}
				if want > 2*away {
					slow++
				}
				if record.Latency() != want {
					t.Errorf("%d connections: request %d took %v, expected %v", conns, i, record.Latency(), want)
				}
			}
			for i, m := range cluster.Members {
				if got := m.Requests.Load(); got != total/3 || result.Failed != 0 || slow < 100 || slow > 103 {
					t.Errorf("%d connections: member %d got %d requests, %d failed, %d slow", conns, i, got, result.Failed, slow)
				}
			}
		})
	}
}

func TestEveryMemberDiesDuringTheRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 2, nil)
		for _, m := range cluster.Members {
			m.Listener.Latency = time.Millisecond
		}
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 4, LostTimeout: 300 * time.Millisecond})
		w.After(time.Second, cluster.Members[0].Stop)
		w.After(time.Second, cluster.Members[1].Stop)
		result := load.NewRun(puts(w, 1_000_000, 4)).Attack(t.Context(), transport)
		if result.Reason != "no member could be reached for 300ms" || result.Took != 1301*time.Millisecond {
			t.Errorf("reason %q after %v", result.Reason, result.Took)
		}
		// A client pauses for 100 ms after each failure: no busy loop.
		if result.Failed < 4 || result.Failed > 4*6 {
			t.Errorf("%d requests failed on the way", result.Failed)
		}
	})
}

func TestDeadlines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2, RequestTimeout: 50 * time.Millisecond})
		cluster.Members[0].Hang()
		result := load.NewRun(puts(w, 6, 2)).Attack(t.Context(), transport)
		if want := cluster.Members[0].Endpoint + ": DeadlineExceeded: no answer within 50ms"; result.Errors[want] != 6 {
			t.Errorf("errors %v, want 6 times %q", result.Errors, want)
		}
		for i, record := range result.Records {
			if record.Latency() != 50*time.Millisecond {
				t.Errorf("request %d was given up after %v", i, record.Latency())
			}
		}
	})
}

// TestAnswersThatHaveArrivedMissNoDeadline stops the process until the deadlines have passed of requests whose answers
// are there, on more connections than the loop takes events of at a time.
func TestAnswersThatHaveArrivedMissNoDeadline(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		const requests, timeout = 400, 500 * time.Millisecond
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: requests, RequestTimeout: timeout})
		member.Hang()
		w.After(timeout/2, func() {
			w.StopProcess(3 * timeout)
			member.Release()
		})
		if result := load.NewRun(puts(w, requests, requests)).Attack(t.Context(), transport); result.Failed != 0 {
			t.Errorf("%d failed: %v", result.Failed, result.Errors)
		}
	})
}

func TestCancelAbandonsWhatIsUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1, RequestTimeout: time.Minute})
		cluster.Members[0].Hang()
		ctx, cancel := context.WithCancelCause(t.Context())
		w.After(time.Second, func() { cancel(errors.New("cancelled")) })
		result := load.NewRun(puts(w, 100, 3)).Attack(ctx, transport)
		if result.Failed != 0 || result.Reason != "cancelled" || cluster.Members[0].Requests.Load() != 3 {
			t.Errorf("%d failed, reason %q", result.Failed, result.Reason)
		}
	})
}

func TestErrorsOfTheMember(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1})
		refusal := status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
		cluster.Members[0].Fail.Store(&refusal)
		result := load.NewRun(puts(w, 5, 1)).Attack(t.Context(), transport)
		if want := cluster.Members[0].Endpoint +
			": ResourceExhausted: etcdserver: mvcc: database space exceeded"; result.Errors[want] != 5 {
			t.Errorf("errors %v, want 5 times %q", result.Errors, want)
		}
		if got := cluster.Members[0].Requests.Load(); got != 5 {
			t.Errorf("5 requests were tried %d times", got)
		}
	})
}

// TestTheLeaderIsKnownOnceTheConnectionIsOpen: the first question must not find the connection not ready.
func TestTheLeaderIsKnownOnceTheConnectionIsOpen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		for i := range 20 {
			transport, err := Open(t.Context(), etcd.Protocol{}, Options{World: w,
				Endpoints: cluster.Endpoints(), Conns: 1, DialTimeout: 10 * time.Second, RequestTimeout: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			leader := transport.Leader()
			transport.Close()
			if leader == "" {
				t.Fatalf("no leader is known after opening %d times", i+1)
			}
		}
	})
}

// begin runs a load until end is called.
func begin(t *testing.T, o load.Options, transport *Transport) (run *load.Run, end func() load.Result) {
	run = load.NewRun(o)
	ended := make(chan load.Result, 1)
	go func() { ended <- run.Attack(t.Context(), transport) }()
	return run, func() load.Result {
		run.Stop("enough")
		return <-ended
	}
}
