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
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

func openFor(t testing.TB, o Options) *Transport {
	t.Helper()
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 10 * time.Second
	}
	transport, err := Open(t.Context(), etcd.Protocol{}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	return transport
}

func puts(total, clients int) load.Options {
	return load.Options{
		Total: total, Clients: clients, Pacer: load.ClosedLoop{Total: total}, Stall: time.Minute,
		Targeter: &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: keys.NewValues(64, 0)},
	}
}

func TestConnectionsGoRoundTheMembers(t *testing.T) {
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
		cluster := etcdtest.Start(t, c.members)
		transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: c.conns})
		result := load.NewRun(puts(90, c.clients)).Attack(t.Context(), transport)
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
}

func TestTargetLeaderUsesOnlyTheLeader(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	cluster.Elect(2)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true})
	load.NewRun(puts(20, 2)).Attack(t.Context(), transport)
	if got := cluster.Members[1].Requests.Load(); got != 20 || transport.Leader() != cluster.Members[1].Endpoint ||
		transport.Connections() != 2 {
		t.Errorf("the leader got %d requests over %d connections, leader %q", got, transport.Connections(),
			transport.Leader())
	}
}

func TestTargetLeaderFindsALeaderThatIsNotAmongTheEndpoints(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	cluster.Elect(3)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints()[:1], Conns: 2, TargetLeader: true})
	if want := cluster.Members[2].Endpoint; transport.Leader() != want {
		t.Errorf("the leader is %q, want %q", transport.Leader(), want)
	}
}

func TestTargetLeaderDoesNotWaitForADeadFollower(t *testing.T) {
	cluster := etcdtest.Start(t, 2)
	endpoints := append(cluster.Endpoints(), etcdtest.Refusing(t))
	start := time.Now()
	transport := openFor(t, Options{Endpoints: endpoints, Conns: 1, TargetLeader: true, DialTimeout: time.Minute})
	if took := time.Since(start); took > 10*time.Second || transport.Leader() != endpoints[0] {
		t.Errorf("the leader %q was found after %v", transport.Leader(), took)
	}
}

func TestTargetLeaderWithoutALeaderIsAnError(t *testing.T) {
	cluster := etcdtest.Start(t, 2)
	for leader, want := range map[uint64]string{0: "knows of none", 99: "member id 63"} {
		cluster.Elect(leader)
		_, err := Open(t.Context(), etcd.Protocol{}, Options{
			Endpoints: cluster.Endpoints(), Conns: 1, TargetLeader: true, DialTimeout: 200 * time.Millisecond,
			RequestTimeout: time.Second,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("leader %d: %v, want something with %q", leader, err, want)
		}
	}
}

func TestMembersThatCannotBeReached(t *testing.T) {
	for endpoint, want := range map[string]string{
		etcdtest.Refusing(t): "connection refused",
		etcdtest.Silent(t):   "does not speak HTTP/2",
	} {
		_, err := Open(t.Context(), etcd.Protocol{},
			Options{Endpoints: []string{endpoint}, Conns: 3, DialTimeout: 200 * time.Millisecond, RequestTimeout: time.Second})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), endpoint) != 1 {
			t.Errorf("%v, want %q and the endpoint %s once", err, want, endpoint)
		}
	}
}

// TestASilentMemberIsTheOnlyOneToBlame puts it first: waiting for it takes all the time there is, and each of the
// others is ready by then.
func TestASilentMemberIsTheOnlyOneToBlame(t *testing.T) {
	cluster, silent := etcdtest.Start(t, 10), etcdtest.Silent(t)
	transport := openFor(t, Options{Endpoints: append([]string{silent}, cluster.Endpoints()...), Conns: 11,
		DialTimeout: 500 * time.Millisecond})
	if missing := transport.Unreachable(); len(missing) != 1 || !strings.Contains(missing[0].Error(), silent) {
		t.Errorf("unreachable: %v", missing)
	}
}

// TestADeadMemberFailsItsOwnRequestsOnly: they fail at once, and no client pauses.
func TestADeadMemberFailsItsOwnRequestsOnly(t *testing.T) {
	t.Parallel()
	const total = 3000
	cluster := etcdtest.Start(t, 2)
	dead := etcdtest.Refusing(t)
	for _, c := range []struct{ conns, clients int }{{1, 1}, {3, 6}, {7, 4}} {
		transport := openFor(t, Options{Endpoints: append(cluster.Endpoints(), dead), Conns: c.conns,
			DialTimeout: 300 * time.Millisecond})
		if missing := transport.Unreachable(); len(missing) != 1 || !strings.Contains(missing[0].Error(), dead) {
			t.Errorf("unreachable: %v", missing)
		}
		result := load.NewRun(puts(total, c.clients)).Attack(t.Context(), transport)
		if result.Failed != total/3 || result.Reason != "" {
			t.Errorf("%+v: %d of %d failed, reason %q", c, result.Failed, total, result.Reason)
		}
		for text := range result.Errors {
			if !strings.HasPrefix(text, dead+": Unavailable: ") {
				t.Errorf("unexpected error %q", text)
			}
		}
	}
}

// TestAStallOfOneMemberOfThree: what is due there in that time is slow, and nothing else. A machine that is short of
// cores makes other requests slow by less than slowly, so of the stall's 100 requests those of its first 0.9 s are
// counted.
func TestAStallOfOneMemberOfThree(t *testing.T) {
	const rate, total, stall, slowly = 300, 900, time.Second, 100 * time.Millisecond
	for _, conns := range []int{10, 30} {
		slow, others := 0, 0
		for chance := 0; chance < 3 && (slow < 80 || slow > 100 || others > 10); chance++ {
			cluster := etcdtest.Start(t, 3)
			transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: conns})
			o := puts(total, 30)
			o.Members, o.Pacer = 3, load.NewOpenLoop(load.Constant(rate), total, 0, total)
			ended := make(chan load.Result)
			go func() { ended <- load.NewRun(o).Attack(t.Context(), transport) }()
			member := cluster.Members[1]
			waitFor(t, "requests", func() bool { return member.Requests.Load() > 100 })
			member.Hang()
			<-time.After(stall) // the length of the stall is what is measured
			member.Release()
			result := <-ended
			slow, others = 0, 0
			for i, record := range result.Records {
				switch late := record.Latency() > slowly; {
				case late && i%3 == 1:
					slow++
				case late:
					others++
				}
			}
			for i, m := range cluster.Members {
				if got := m.Requests.Load(); got != total/3 || result.Failed != 0 {
					t.Errorf("%d connections: member %d got %d requests, %d failed", conns, i, got, result.Failed)
				}
			}
			t.Logf("%d connections: %d slow at the member that stalled, %d elsewhere", conns, slow, others)
		}
		if slow < 80 || slow > 100 || others > 10 {
			t.Errorf("%d connections: of about 90 requests to the member that stalled %d were slow, of all others %d",
				conns, slow, others)
		}
	}
}

func TestEveryMemberDiesDuringTheRun(t *testing.T) {
	cluster := etcdtest.Start(t, 2)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 4, LostTimeout: 300 * time.Millisecond})
	run := load.NewRun(puts(1_000_000, 4))
	ended := make(chan load.Result)
	go func() { ended <- run.Attack(t.Context(), transport) }()
	waitFor(t, "the first requests", func() bool { done, _ := run.Progress(); return done > 10 })
	for _, m := range cluster.Members {
		m.Stop()
	}
	select {
	case result := <-ended:
		if !strings.Contains(result.Reason, "no member could be reached for 300ms") || result.Failed == 0 {
			t.Errorf("reason %q, %d failed", result.Reason, result.Failed)
		}
		// At least 1 ms of pause after each failure: no busy loop.
		if result.Failed > 4*3000 {
			t.Errorf("%d requests failed on the way", result.Failed)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the run does not end")
	}
}

func TestDeadlines(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 2, RequestTimeout: 50 * time.Millisecond})
	cluster.Members[0].Hang()
	result := load.NewRun(puts(6, 2)).Attack(t.Context(), transport)
	if want := cluster.Members[0].Endpoint + ": DeadlineExceeded: no answer within 50ms"; result.Errors[want] != 6 {
		t.Errorf("errors %v, want 6 times %q", result.Errors, want)
	}
	for i, record := range result.Records {
		if record.Latency() < 50*time.Millisecond {
			t.Errorf("request %d was given up after %v", i, record.Latency())
		}
	}
}

// TestAnswersThatHaveArrivedMissNoDeadline holds up the loop, as a stop of the process does, until the deadlines have
// passed of requests whose answers are there, on more connections than the loop takes events of at a time.
func TestAnswersThatHaveArrivedMissNoDeadline(t *testing.T) {
	const requests, timeout = 400, 500 * time.Millisecond
	cluster := etcdtest.Start(t, 1)
	member := cluster.Members[0]
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: requests, RequestTimeout: timeout})
	member.Hang()
	ended := make(chan load.Result)
	go func() { ended <- load.NewRun(puts(requests, requests)).Attack(t.Context(), transport) }()
	waitFor(t, "the requests", func() bool { return member.Requests.Load() == requests })
	transport.loop.poller.post(func() {
		member.Release()
		<-time.After(3 * timeout)
	})
	if result := <-ended; result.Failed != 0 {
		t.Errorf("%d failed: %v", result.Failed, result.Errors)
	}
}

func TestCancelAbandonsWhatIsUnderWay(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 1, RequestTimeout: time.Minute})
	cluster.Members[0].Hang()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		waitFor(t, "requests to arrive", func() bool { return cluster.Members[0].Requests.Load() == 3 })
		cancel(errors.New("cancelled"))
	}()
	result := load.NewRun(puts(100, 3)).Attack(ctx, transport)
	if result.Failed != 0 || result.Reason != "cancelled" {
		t.Errorf("%d failed, reason %q", result.Failed, result.Reason)
	}
}

func TestErrorsOfTheMember(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 1})
	refusal := status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
	cluster.Members[0].Fail.Store(&refusal)
	result := load.NewRun(puts(5, 1)).Attack(t.Context(), transport)
	if want := cluster.Members[0].Endpoint +
		": ResourceExhausted: etcdserver: mvcc: database space exceeded"; result.Errors[want] != 5 {
		t.Errorf("errors %v, want 5 times %q", result.Errors, want)
	}
	if got := cluster.Members[0].Requests.Load(); got != 5 {
		t.Errorf("5 requests were tried %d times", got)
	}
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Errorf("waited 10 s for %s", what)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestTheLeaderIsKnownOnceTheConnectionIsOpen: the first question must not find the connection not ready.
func TestTheLeaderIsKnownOnceTheConnectionIsOpen(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	for i := range 200 {
		transport, err := Open(t.Context(), etcd.Protocol{}, Options{
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
}
