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
)

func openZooKeeper(t *testing.T, o Options) (*Transport, error) {
	t.Helper()
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 10 * time.Second
	}
	transport, err := Open(t.Context(), zookeeper.New(""), o)
	if err == nil {
		t.Cleanup(transport.Close)
	}
	return transport, err
}

func zooKeeper(t *testing.T, o Options) *Transport {
	t.Helper()
	transport, err := openZooKeeper(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// TestZooKeeper sends all kinds of requests to three members that serve the same store.
func TestZooKeeper(t *testing.T) {
	const total = 300
	cluster := zookeepertest.Start(t, 3)
	cluster.Elect(2)
	transport := zooKeeper(t, Options{Endpoints: cluster.Endpoints(), Conns: 6})
	writes := puts(total, 12)
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
		waitFor(t, "the sessions to be closed", func() bool { return m.Closed.Load() == 2 })
		if m.Sessions.Load() != 2 || m.Requests.Load() != 4*total/3 || m.Syncs.Load() != total/3 {
			t.Errorf("member %d: %d sessions, %d requests, %d syncs", i, m.Sessions.Load(), m.Requests.Load(), m.Syncs.Load())
		}
	}
}

// TestSecondTriesAreCounted: a run that knows nothing of the keys finds them there, and each that is new not.
func TestSecondTriesAreCounted(t *testing.T) {
	cluster := zookeepertest.Start(t, 1)
	for _, want := range []int{0, 1} {
		transport := zooKeeper(t, Options{Endpoints: cluster.Endpoints(), Conns: 1})
		if result := load.NewRun(puts(50, 1)).Attack(t.Context(), transport); result.Second != want || result.Failed != 0 {
			t.Errorf("%d second tries, want %d; %v", result.Second, want, result.Errors)
		}
	}
	if got := cluster.Members[0].Requests.Load(); got != 101 {
		t.Errorf("100 puts were %d requests", got)
	}
}

// TestZooKeeperMembersThatMisbehave holds that a run ends in time, with the right outcomes.
func TestZooKeeperMembersThatMisbehave(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	over := make(chan struct{}) // the test of a member that does not read
	say := func(answer func(r *zookeepertest.Request) []byte) func(net.Conn) {
		return zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
			_, err := c.Write(answer(r))
			return err == nil
		})
	}
	refuse := func(code int32) func(net.Conn) {
		return say(func(r *zookeepertest.Request) []byte { return zookeepertest.Answer(r.Xid, 1, code, nil) })
	}
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		want    load.Outcome // of all requests but those that are ok
		code    string
		text    string
		atLeast int // outcomes of that kind
		ok      int // at least
		valSize int
	}{
		"never answers": {serve: zookeepertest.RawRequests(func(net.Conn, *zookeepertest.Request) bool { return true }),
			want: load.Unknown, code: "DeadlineExceeded", text: "no answer within 300ms", atLeast: 8},
		"half an answer": {serve: say(func(r *zookeepertest.Request) []byte { return r.Written(1)[:9] }), want: load.Unknown,
			code: "DeadlineExceeded", text: "no answer within 300ms", atLeast: 8},
		"does not read": {serve: func(c net.Conn) {
			if zookeepertest.Greet(c) == nil {
				<-over
			}
		}, want: load.Unknown, code: "DeadlineExceeded", text: "no answer", atLeast: 6, valSize: 1_000_000},
		"closes": {serve: zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
			if r.Xid > 3 {
				return false
			}
			_, err := c.Write(r.Written(1))
			return err == nil
		}), want: load.Unknown, code: "Unavailable", text: "closed the connection, and with it the session",
			atLeast: 1, ok: 3},
		"closes within an answer": {serve: zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
			_, _ = c.Write(r.Written(1)[:9])
			return false
		}), want: load.Unknown, code: "Unavailable", text: "within an answer", atLeast: 1},
		"wrong xid": {serve: say(func(r *zookeepertest.Request) []byte {
			r.Xid++
			return r.Written(1)
		}), want: load.Unknown, code: "Unavailable", text: "an answer with xid", atLeast: 1},
		"oversize": {serve: say(func(r *zookeepertest.Request) []byte { return []byte{0x7f, 0, 0, 0} }), want: load.Unknown,
			code: "Unavailable", text: "a packet of 2130706432 bytes", atLeast: 1},
		"no authorization": {serve: refuse(zookeepertest.NoAuth), want: load.Failed, code: "PermissionDenied",
			text: "not authorized", atLeast: 8},
		"throttles": {serve: refuse(zookeepertest.Throttled), want: load.Failed, code: "ResourceExhausted",
			text: "throttled", atLeast: 8},
		"system error": {serve: refuse(-1), want: load.Unknown, code: "Internal", text: "system error", atLeast: 8},
		"session expired": {serve: refuse(zookeepertest.SessionExpired), want: load.Failed, code: "Unavailable",
			text: "session expired", atLeast: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := zooKeeper(t, Options{Endpoints: []string{zookeepertest.RawMember(t, c.serve)}, Conns: 1,
				RequestTimeout: timeout})
			o := puts(8, 1)
			o.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(8, true, 0), Values: keys.NewValues(c.valSize, 0)}
			if name == "does not read" {
				t.Cleanup(func() { close(over) })
			}
			begin := time.Now()
			result := load.NewRun(o).Attack(t.Context(), transport)
			if took := time.Since(begin); took > 8*timeout+5*time.Second {
				t.Errorf("it took %v", took)
			}
			var counts [load.Abandoned + 1]int
			found := false
			for _, record := range result.Records {
				counts[record.Outcome()]++
				found = found || record.Outcome() == c.want && record.Code().String() == c.code
			}
			said := false
			for text := range result.Errors {
				said = said || strings.Contains(text, c.text)
			}
			if counts[c.want] < c.atLeast || counts[load.OK] < c.ok || !found || !said {
				t.Errorf("outcomes %v, errors %v", counts, result.Errors)
			}
		})
	}
}

func TestZooKeeperMembersThatOpenNoSession(t *testing.T) {
	t.Parallel()
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
		endpoint := zookeepertest.RawMember(t, serve)
		_, err := openZooKeeper(t, Options{Endpoints: []string{endpoint}, Conns: 1, DialTimeout: 300 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something with %q", err, want)
		}
	}
}

// TestSessionsLive: one that is idle for several times its timeout is kept by pings.
func TestSessionsLive(t *testing.T) {
	cluster := zookeepertest.Start(t, 1)
	cluster.Timeout = 300
	member := cluster.Members[0]
	transport := zooKeeper(t, Options{Endpoints: cluster.Endpoints(), Conns: 3})
	waitFor(t, "pings", func() bool { return member.Pings.Load() >= 30 })
	result := load.NewRun(puts(10, 3)).Attack(t.Context(), transport)
	if result.Failed > 0 || member.Sessions.Load() != 3 {
		t.Errorf("%v, %d sessions", result.Errors, member.Sessions.Load())
	}
}

// TestNobodyIsAskedWhoLeads: a proxy may take the question for something else.
func TestNobodyIsAskedWhoLeads(t *testing.T) {
	for _, leaderless := range []bool{true, false} {
		cluster := zookeepertest.Start(t, 2)
		transport := zooKeeper(t, Options{Endpoints: cluster.Endpoints(), Conns: 2, Leaderless: leaderless})
		words := cluster.Members[0].Words.Load() + cluster.Members[1].Words.Load()
		if leader := transport.Leader(); (words == 0) != leaderless || (leader == "") != leaderless {
			t.Errorf("leaderless %v: %d questions, the leader %q", leaderless, words, leader)
		}
	}
}

func TestTargetLeaderOfZooKeeper(t *testing.T) {
	cluster := zookeepertest.Start(t, 3)
	transport := zooKeeper(t, Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true,
		RequestTimeout: 30 * time.Second})
	o := puts(1_000_000, 1000)
	o.Pacer = load.NewOpenLoop(load.Constant(500), 1_000_000, 0, 1_000_000)
	run := load.NewRun(o)
	ended := make(chan load.Result)
	go func() { ended <- run.Attack(t.Context(), transport) }()
	for _, leader := range []int{1, 3, 1} {
		cluster.Elect(leader)
		m := cluster.Members[leader-1]
		before := m.Requests.Load()
		waitFor(t, "requests at the new leader", func() bool { return m.Requests.Load() > before+20 })
	}
	// One that hangs, and still says that it leads in an epoch that is over.
	cluster.Members[0].Hang()
	cluster.Elect(2)
	waitFor(t, "requests at the new leader", func() bool { return cluster.Members[1].Requests.Load() > 20 })
	cluster.Members[0].Release()
	run.Stop("enough")
	if result := <-ended; result.Failed != 0 {
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
}

func TestNoLeaderOfZooKeeper(t *testing.T) {
	cluster := zookeepertest.Start(t, 2)
	cluster.Elect(0)
	for _, endpoints := range [][]string{cluster.Endpoints(), {zookeepertest.RawMember(t, func(net.Conn) {})}} {
		_, err := openZooKeeper(t, Options{
			Endpoints: endpoints, Conns: 1, TargetLeader: true, DialTimeout: 300 * time.Millisecond,
		})
		if err == nil || !strings.Contains(err.Error(), "no leader was found: "+endpoints[0]) &&
			!strings.Contains(err.Error(), "no leader was found: "+endpoints[len(endpoints)-1]) {
			t.Errorf("%v", err)
		}
	}
}

// TestQuestionsForTheLeaderArePermitted: they lead to no address to which a load may not.
func TestQuestionsForTheLeaderArePermitted(t *testing.T) {
	cluster := zookeepertest.Start(t, 2)
	cluster.Elect(2)
	allowed := cluster.Members[0].Endpoint
	_, err := openZooKeeper(t, Options{Endpoints: cluster.Endpoints(), Conns: 1, TargetLeader: true,
		DialTimeout: 300 * time.Millisecond, Permit: func(_ string, address netip.AddrPort) error {
			if address.String() != allowed {
				return errors.New("not here")
			}
			return nil
		}})
	if err == nil || cluster.Members[0].Words.Load() == 0 || cluster.Members[1].Words.Load() > 0 {
		t.Errorf("%v; %d and %d questions", err, cluster.Members[0].Words.Load(), cluster.Members[1].Words.Load())
	}
}
