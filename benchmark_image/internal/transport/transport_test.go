package transport

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/zookeeper"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
	"containernet-env/benchmark_image/internal/world"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// openFor opens connections in a world; nil: the real one.
func openFor(t testing.TB, w *worldtest.World, o Options) *Transport {
	t.Helper()
	return assert.Got(openWith(t, w, etcd.Protocol{}, o))(t)
}

// openWith closes the connections at the end.
func openWith(t testing.TB, w *worldtest.World, protocol store.Protocol, o Options) (*Transport, error) {
	t.Helper()
	o.DialTimeout, o.RequestTimeout = cmp.Or(o.DialTimeout, time.Minute), cmp.Or(o.RequestTimeout, time.Minute)
	cleanup := t.Cleanup
	if o.World = world.Real(); w != nil {
		o.World, cleanup = w, w.Cleanup
	}
	transport, err := Open(t.Context(), protocol, o)
	if err == nil {
		cleanup(transport.Close)
	}
	return transport, err
}

// kept is a load.Sink that keeps every record, by the number of its request.
type kept []load.Record

func (*kept) Begin(time.Time) {}

func (k *kept) Add(number int, outcome load.Record) {
	*k = append(*k, make([]load.Record, max(number+1-len(*k), 0))...)
	(*k)[number] = outcome
}

// records are what a run of a load left.
func records(o load.Options) []load.Record { return *o.Sink.(*kept) }

// puts is a load in a world; nil: the real one.
func puts(w *worldtest.World, total, clients int) load.Options {
	o := load.Options{
		Spec:  &spec.Spec{Clients: clients, StallTimeout: time.Minute},
		Pacer: load.Pacer{Total: total}, Sink: new(kept), World: world.Real(),
		Targeter: &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: keys.NewValues(64, 0)},
	}
	if w != nil {
		o.World = w
	}
	return o
}

func TestTargetLeaderUsesOnlyTheLeader(t *testing.T) {
	const ms = time.Millisecond
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		cluster.Elect(3)
		endpoints := cluster.Endpoints()
		for _, c := range []struct {
			endpoints     []string
			latency, took time.Duration // took: at most
		}{
			{endpoints, ms, leaderPoll + 10*ms},
			{[]string{endpoints[0], endpoints[2], w.Refusing()}, ms, leaderPoll + 10*ms},
			{endpoints[:1], ms, time.Second}, // the leader is none of them
			// An attempt ended after 3 s and a question for the leader after 5 s, whatever the dial timeout.
			{endpoints, 4 * time.Second, 74 * time.Second},
		} {
			for _, m := range cluster.Members {
				m.Listener.Latency = c.latency
			}
			before, began := cluster.Members[2].Requests.Load(), w.Since()
			transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: c.endpoints, Conns: 2, TargetLeader: true,
				DialTimeout: 74 * time.Second}})
			took := w.Since() - began
			load.NewRun(puts(w, 20, 2)).Attack(t.Context(), transport)
			got := cluster.Members[2].Requests.Load() - before
			assert.That(t, got == 20 && transport.Leader == endpoints[2] && transport.Connections() == 2 && took <= c.took &&
				len(transport.Unreachable) == 0, "%v: the leader %s got %d requests over %d connections after %v", c.endpoints,
				transport.Leader, got, transport.Connections(), took)
		}
	})
}

// guarded starts members that want a user, root with the password secret.
func guarded(w *worldtest.World, members int) (*etcdtest.Cluster, *etcdtest.Users) {
	users := &etcdtest.Users{Name: "root", Password: "secret"}
	return etcdtest.Simulate(w, members, users), users
}

// rooted is etcd's protocol for the user root.
func rooted(password string) etcd.Protocol {
	return etcd.Protocol{User: &etcd.User{Name: "root", Password: password}}
}

// noLeader is a member of etcd that has none.
var noLeader = etcdtest.RawRequests(refuses("14", "etcdserver: no leader"))

// TestMembersThatCannotBeUsed has the reason in the error, and each endpoint once, but no password. Nothing of the load
// is sent.
func TestMembersThatCannotBeUsed(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		leaderless, unknown, open := etcdtest.Simulate(w, 2, nil), etcdtest.Simulate(w, 2, nil), etcdtest.Simulate(w, 1, nil)
		leaderless.Elect(0)
		unknown.Elect(99)
		headless := zookeepertest.Simulate(w, 2)
		headless.Elect(0)
		elsewhere := startWeb(w, 1)
		elsewhere.leader = 2
		others, _ := guarded(w, 3)
		denied, users := guarded(w, 1)
		users.Deny()
		opens := func(with string) []string {
			return []string{w.Serve(func(c net.Conn) {
				_, _ = io.WriteString(c, with)
				_, _ = zookeepertest.ReadPacket(c)
			})}
		}
		silent, refusing := []string{w.Listen(nil).Endpoint}, []string{w.Refusing()}
		ofEtcd, ofZooKeeper, wrong, secret := etcd.Protocol{}, zookeeper.New(""), rooted("wrong"), rooted("secret")
		samples := []store.Request{{Operation: store.Put, Key: []byte("key")}}
		const failed = "InvalidArgument: etcdserver: authentication failed, invalid user ID or password"
		for _, c := range []struct {
			protocol  store.Protocol
			endpoints []string
			leader    bool
			want      string
		}{
			{ofEtcd, refusing, false, "connection refused"},
			{ofEtcd, silent, false, "does not speak HTTP/2"},
			{ofEtcd, leaderless.Endpoints(), true, "knows of none"},
			{ofEtcd, unknown.Endpoints(), true, "member id 63"},
			{ofZooKeeper, silent, false, "does not speak ZooKeeper's protocol"},
			{ofZooKeeper, opens(""), false, "it has no quorum, or too many connections"},
			{ofZooKeeper, opens(string(zookeepertest.Opened(0))), false, "refuses a session"},
			{ofZooKeeper, opens("HTTP/1.1 400 Bad\r\n\r\n"), false, "a packet of 1213486160 bytes"},
			{ofZooKeeper, headless.Endpoints(), true, "no leader was found: "},
			{ofZooKeeper, opens(""), true, "no leader was found: "},
			{consul.Protocol{}, []string{elsewhere.members[0].Listener.Endpoint}, true, "is none of the endpoints"},
			{wrong, others.Endpoints(), false, failed},
			{wrong, others.Endpoints(), true, failed},
			{secret, open.Endpoints(), false, "Unimplemented"},
			{secret, refusing, false, "no member could be reached to log in"},
			{secret, []string{w.Serve(noLeader)}, false, "Unavailable: etcdserver: no leader"},
			{secret, denied.Endpoints(), false, `the user may not write "key", so nothing of the load was sent: ` +
				denied.Members[0].Endpoint + ": PermissionDenied: etcdserver: permission denied"},
		} {
			began := w.Since()
			_, err := openWith(t, w, c.protocol, Options{Spec: &spec.Spec{Endpoints: c.endpoints, Conns: 3,
				TargetLeader: c.leader, DialTimeout: 300 * time.Millisecond, RequestTimeout: time.Second}, Rehearsal: samples})
			assert.That(t, c.want != failed || w.Since()-began < 200*time.Millisecond, "a member that refuses speaks for all")
			users, text := c.protocol.Traits().NeedsLogin, fmt.Sprint(err)
			assert.That(t, err != nil && strings.Contains(text, c.want) &&
				(users || c.leader || strings.Count(text, c.endpoints[0]) == 1) &&
				(!users || !strings.Contains(text, "secret") && !strings.Contains(text, "wrong")),
				"%s, want %q and the endpoint %s once", text, c.want, c.endpoints[0])
		}
		for _, m := range slices.Concat(others.Members, open.Members, denied.Members) {
			assert.That(t, m.Requests.Load() == 0, "a request was sent")
		}
		openFor(t, w, Options{Spec: &spec.Spec{Endpoints: open.Endpoints(), Conns: 1}, Rehearsal: samples}) // no users
		// Members that refuse connections, answer no login, and have no leader keep no client out.
		dead := []string{refusing[0], silent[0], w.Serve(noLeader), others.Members[0].Endpoint}
		assert.Got(openWith(t, w, secret, Options{Spec: &spec.Spec{DialTimeout: time.Second, Conns: 1, Endpoints: dead}}))(t)
	})
}

// TestNoLoginFollowsTheDialTimeout has members that answer none: when the time is over, no other one is sent one.
func TestNoLoginFollowsTheDialTimeout(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		logins := 0
		silent := func() string {
			return w.Serve(etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { logins++; return true }))
		}
		_, err := openWith(t, w, rooted("secret"), Options{Spec: &spec.Spec{DialTimeout: 300 * time.Millisecond, Conns: 1,
			Endpoints: []string{silent(), silent(), silent()}}})
		w.Sleep(time.Second) // what was sent arrives
		assert.That(t, err != nil && logins == 1, "%d logins were sent: %v", logins, err)
	})
}

// TestUsersWhoAreRefusedDuringALoad lose the permission, or their password is changed. TestWorlds renews tokens.
func TestUsersWhoAreRefusedDuringALoad(t *testing.T) {
	for want, change := range map[string]func(*etcdtest.Users){
		": PermissionDenied: etcdserver: permission denied": (*etcdtest.Users).Deny,
		": Unauthenticated: a new login failed: ":           func(u *etcdtest.Users) { u.ChangePassword("another") },
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			cluster, users := guarded(w, 1)
			transport := assert.Got(openWith(t, w, rooted("secret"), Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(),
				Conns: 2}}))(t)
			change(users)
			o := puts(w, 50, 5)
			result := load.NewRun(o).Attack(t.Context(), transport)
			for text, n := range result.Errors {
				assert.That(t, strings.Contains(text, want), "%d requests: %s, want %s", n, text, want)
			}
			unknown := slices.ContainsFunc(records(o), func(r load.Record) bool { return r.Outcome == load.Unknown })
			assert.That(t, result.Failed == 50 && !unknown && len(cluster.Keys()) == 0 && users.Logins() == 1,
				"%d failed, unknown %v, %d keys, %d logins", result.Failed, unknown, len(cluster.Keys()), users.Logins())
		})
	}
}

// TestALostMemberFailsItsOwnRequestsOnly: if it refuses connections, they fail at once, and no client pauses. Waiting
// for one that is silent takes all the time there is, and each of the others is ready by then.
func TestALostMemberFailsItsOwnRequestsOnly(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		const total = 3300
		dead, silent := w.Refusing(), w.Listen(nil).Endpoint
		withDead := append(etcdtest.Simulate(w, 2, nil).Endpoints(), dead)
		for _, c := range []struct {
			endpoints      []string
			lost           string
			conns, clients int
		}{
			{withDead, dead, 1, 1}, {withDead, dead, 3, 6}, {withDead, dead, 7, 4},
			{append([]string{silent}, etcdtest.Simulate(w, 10, nil).Endpoints()...), silent, 11, 11},
		} {
			transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: c.endpoints, Conns: c.conns,
				DialTimeout: 300 * time.Millisecond}})
			missing := transport.Unreachable
			assert.That(t, len(missing) == 1 && strings.Contains(missing[0].Error(), c.lost), "unreachable: %v", missing)
			result := load.NewRun(puts(w, total, c.clients)).Attack(t.Context(), transport)
			assert.That(t, result.Failed == total/len(c.endpoints) && result.Reason == "", "%+v: %d of %d failed, reason %q", c,
				result.Failed, total, result.Reason)
			for text := range result.Errors {
				assert.That(t, strings.HasPrefix(text, c.lost+": Unavailable: "), "unexpected error %q", text)
			}
		}
	})
}

// TestAnswersThatHaveArrivedMissNoDeadline stops the process until the deadlines have passed of requests whose answers
// are there, on more connections than the loop takes events of at a time.
func TestAnswersThatHaveArrivedMissNoDeadline(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		const requests, timeout = 400, 500 * time.Millisecond
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: requests,
			RequestTimeout: timeout}})
		member.Hang()
		w.After(timeout/2, func() {
			w.StopProcess(3 * timeout)
			member.Release()
		})
		result := load.NewRun(puts(w, requests, requests)).Attack(t.Context(), transport)
		assert.That(t, result.Failed == 0, "%d failed: %v", result.Failed, result.Errors)
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

// TestTheLeaderMovesAway: the only endpoint knows where the leader is.
func TestTheLeaderMovesAway(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints()[:1], Conns: 2,
			TargetLeader: true, DialTimeout: 300 * time.Millisecond}})
		o := puts(w, 1_000_000, 4)
		o.Pacer = load.NewOpenLoop(load.Constant(500), 1_000_000, 0)
		_, end := begin(t, o, transport)
		for _, leader := range []uint64{3, 2} {
			cluster.Elect(leader)
			m := cluster.Members[leader-1]
			w.Until(func() bool { return m.Requests.Load() > 20 })
		}
		outcome := end()
		assert.That(t, outcome.Failed == 0, "%d failed: %v", outcome.Failed, outcome.Errors)
		changes := transport.LeaderChanges
		assert.That(t, len(changes) == 2 && changes[1].Leader == cluster.Members[1].Endpoint &&
			transport.LeaderLost == nil, "leader changes %v, leader lost: %v", changes, transport.LeaderLost)
		// A leader that cannot be reached, and one that is in no list.
		cluster.Members[2].Stop()
		for leader, want := range map[uint64]string{3: cluster.Members[2].Endpoint, 99: "member id 63"} {
			cluster.Elect(leader)
			_, end := begin(t, o, transport)
			w.Sleep(1500 * time.Millisecond) // several times what a look-up may take
			if result := end(); result.Failed != 0 || transport.LeaderLost == nil ||
				!strings.Contains(transport.LeaderLost.Error(), want) {
				t.Errorf("leader %d: %d failed, leader lost: %v", leader, result.Failed, transport.LeaderLost)
			}
		}
	})
}

// TestAHungLeaderKeepsNoClient has a leader that hangs when another one is elected: what was sent to it ends soon after
// the load has moved, in a slowed load so much later, and what follows succeeds.
func TestAHungLeaderKeepsNoClient(t *testing.T) {
	for kind := range httpStore {
		moved := map[int]time.Duration{}
		for _, dilation := range []int{1, 10} {
			worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
				s, factor := emptyTrial(t, w), time.Duration(dilation)
				s.kind = kind
				s.makeMembers(3)
				transport := assert.Got(openWith(t, w, s.protocol, Options{Spec: &spec.Spec{Endpoints: s.options.Endpoints,
					Conns: 1, TargetLeader: true, DialTimeout: factor * 10 * time.Second, Dilation: dilation}}))(t)
				s.members[0].hang()
				w.After(20*time.Millisecond, func() { s.elect(2) })
				began, run := w.Wall(), puts(w, 6, 5)
				load.NewRun(run).Attack(t.Context(), transport)
				moved[dilation] = transport.LeaderChanges[0].At.Sub(began)
				ended := 0
				for i, r := range records(run) {
					at := r.End() - moved[dilation]
					if r.Code == store.Canceled && r.Outcome == load.Unknown && at == factor*deposedGrace {
						ended++
					} else if r.Outcome != load.OK || at > factor*deposedGrace+100*time.Millisecond {
						t.Errorf("store %d, dilation %d: %d ended %v after the move: %v", kind, dilation, i, at, r)
					}
				}
				// Consul's members get one request at a time: what waits goes to the new leader.
				assert.Equal(t, ended, map[bool]int{false: 5, true: 1}[kind == consulStore], "store %d: unknown", kind)
				assert.That(t, transport.options.attempt() == factor*handshake, "attempts of %v", transport.options.attempt())
			})
		}
		longer := (moved[10] - moved[1]).Round(10 * time.Millisecond) // members take some ms to say who leads
		assert.That(t, longer == 9*followPoll, "store %d: the load moved after %v", kind, moved)
	}
}

// busyTargeter needs the core for as long as it says for each request.
type busyTargeter struct {
	load.Targeter
	w    *worldtest.World
	each time.Duration
}

func (b busyTargeter) Target(r *load.Request) {
	b.w.Busy(b.each)
	b.Targeter.Target(r)
}

// TestALoopThatHasTooMuchToDoReportsIt: the member answers as fast as requests come, which is at a quarter of the rate.
func TestALoopThatHasTooMuchToDoReportsIt(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: 4}})
		o := puts(w, 300, 100)
		o.Targeter = busyTargeter{o.Targeter, w, 4 * time.Millisecond}
		o.Pacer = load.NewOpenLoop(load.Constant(1000), 300, 0)
		load.NewRun(o).Attack(t.Context(), transport)
		late := slices.DeleteFunc(records(o), func(r load.Record) bool { return !r.Late() })
		own := slices.DeleteFunc(slices.Clone(late), func(r load.Record) bool { return !r.Own })
		// The loop rests while the first answers are on their way.
		assert.That(t, len(late) >= 290 && len(own) >= len(late)-1, "%d were late, %d of them by the generator", len(late),
			len(own))
	})
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
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			cluster := etcdtest.Simulate(w, 1, nil)
			listener := cluster.Members[0].Listener
			listener.Latency = 0
			listener.Drop(true)
			w.After(time.Millisecond, func() { c.then(listener) })
			l := assert.Got(newLoop(etcd.Protocol{}, &Options{Spec: &spec.Spec{}, World: w}, 10*time.Second))(t)
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
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: 300}})
		counts := func() (timers, expected int) {
			l, done := transport.loop, make(chan struct{})
			l.poller.post(func() {
				timers, expected = len(l.timers), len(l.expected)
				close(done)
			})
			<-done
			return timers, expected
		}
		timers, expected := counts()
		assert.That(t, timers <= 4 && expected == 300, "%d timers for %d connections", timers, expected)
		for expected > 0 {
			w.Sleep(time.Millisecond)
			_, expected = counts()
		}
	})
}

// only permits connections to one member.
func only(endpoint string) Permit {
	return func(_ string, address netip.AddrPort) error {
		if address.String() != endpoint {
			return errors.New("not here")
		}
		return nil
	}
}

// TestALeaderThatMustNotBeContacted: what members answer about the leader does not lead a load elsewhere.
func TestALeaderThatMustNotBeContacted(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 2, nil)
		allowed, other := cluster.Members[0].Endpoint, cluster.Members[1]
		o := Options{Spec: &spec.Spec{Endpoints: []string{allowed}, Conns: 2, TargetLeader: true,
			DialTimeout: 300 * time.Millisecond, RequestTimeout: 5 * time.Second}, Permit: only(allowed)}
		transport := openFor(t, w, o)
		_, end := begin(t, puts(w, 1_000_000, 2), transport)
		cluster.Elect(2)
		w.Sleep(4 * o.DialTimeout) // within that, it would have been reached
		result, lost := end(), transport.LeaderLost
		assert.That(t, result.Failed == 0 && lost != nil && strings.Contains(lost.Error(), "not here"),
			"%d failed, leader lost: %v", result.Failed, transport.LeaderLost)
		late, err := openWith(t, w, etcd.Protocol{}, o)
		if err == nil || !strings.Contains(err.Error(), other.Endpoint+": not here") {
			t.Errorf("another load, which begins there: %v", err)
			late.Close()
		}
		assert.That(t, other.Listener.Accepted() == 0, "%d connections to it", other.Listener.Accepted())
	})
}

// TestAConnectionThatFellSilentIsGivenUp has a link that drops everything after 100 ms: requests end by their
// deadlines, and there is another connection once the member's kernel has acknowledged nothing for a second.
func TestAConnectionThatFellSilentIsGivenUp(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		const ms = time.Millisecond
		cluster := etcdtest.Simulate(w, 1, nil)
		listener := cluster.Members[0].Listener
		listener.Latency = ms
		transport := openFor(t, w, Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: 1,
			RequestTimeout: 300 * ms}})
		w.After(99*ms, listener.Cut) // between two requests
		o := puts(w, 1000, 1)
		result := load.NewRun(o).Attack(t.Context(), transport)
		first := slices.IndexFunc(records(o), func(r load.Record) bool { return r.Outcome != load.OK })
		lost := records(o)[first+4]
		// Of the first one the answer is lost, three more end by deadlines, and the fifth with the connection.
		assert.That(t, result.Failed == 5 && lost.Code == store.Unavailable &&
			lost.End()-records(o)[first].Start == 1300*ms && listener.Accepted() == 2,
			"%d requests failed, the fifth %v after %v: %v", result.Failed, lost.Code, lost.End()-records(o)[first].Start,
			result.Errors)
	})
}

// TestZooKeeper sends all kinds of requests to members that serve the same store, in two runs: of keys that are there,
// the first writes take two round trips. Sessions that are idle for several times their timeout are kept by pings.
func TestZooKeeper(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		const total = 300
		cluster := zookeepertest.Simulate(w, 3)
		cluster.Timeout = 300
		cluster.Elect(2)
		values, order := keys.NewValues(40_000, 0), keys.NewOrder(total, true, 0)
		for run := range 2 {
			transport := assert.Got(openWith(t, w, zookeeper.New(""), Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(),
				Conns: 6}}))(t)
			for i, targeter := range []load.Targeter{
				&load.Puts{KeySize: 4, Order: order, Values: values},
				&load.Puts{KeySize: 4, Order: order, Values: values, Txn: true},
				&load.Reads{KeySize: 4, Order: order, Verify: values, Complete: true},
			} {
				o := puts(w, total, 1)
				o.Targeter, o.RequireFound = targeter, true
				result := load.NewRun(o).Attack(t.Context(), transport)
				assert.That(t, result.Failed == 0 && (result.Second > 0) == (i == 0 && run == 1),
					"run %d, load %d: %v, %d second tries", run, i, result.Errors, result.Second)
			}
			o := puts(w, 10, 1)
			o.Targeter = &load.Puts{Prefix: "none", KeySize: 4, Order: order, Values: values, Txn: true}
			outcome := load.NewRun(o).Attack(t.Context(), transport)
			assert.That(t, outcome.Errors[load.ErrCompareFailed.Error()] == 10, "transactions on nothing: %v", outcome.Errors)
			for _, m := range cluster.Members {
				before := m.Pings.Load()
				w.Until(func() bool { return m.Pings.Load() >= before+20 })
			}
			idled := load.NewRun(puts(w, 10, 6)).Attack(t.Context(), transport)
			got := len(cluster.Paths())
			assert.That(t, idled.Failed == 0 && got == total && transport.Leader == cluster.Members[1].Endpoint,
				"%v; %d znodes, leader %q", idled.Errors, got, transport.Leader)
			transport.Close()
			for i, m := range cluster.Members {
				w.Until(func() bool { return m.Closed.Load() == int64(2*run+2) })
				assert.That(t, m.Syncs.Load() == int64((run+1)*total/3) && m.Sessions.Load() == int64(2*run+2),
					"member %d: %d syncs, %d sessions", i, m.Syncs.Load(), m.Sessions.Load())
			}
		}
	})
}

// TestTheSearchForTheLeader is left out where configured, since a proxy may take it for something else, and contacts
// no address to which a load may not connect.
func TestTheSearchForTheLeader(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := zookeepertest.Simulate(w, 2)
		words := func(member int) int64 { return cluster.Members[member].Words.Swap(0) }
		for _, leaderless := range []bool{true, false} {
			o := Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: 2, Leaderless: leaderless}}
			transport, err := openWith(t, w, zookeeper.New(""), o)
			if n := words(0) + words(1); err != nil || (n == 0) != leaderless || (transport.Leader == "") != leaderless {
				t.Errorf("leaderless %v: %d questions, the leader %q, %v", leaderless, n, transport.Leader, err)
			}
		}
		cluster.Elect(2)
		_, err := openWith(t, w, zookeeper.New(""), Options{Spec: &spec.Spec{Endpoints: cluster.Endpoints(), Conns: 1,
			TargetLeader: true, DialTimeout: 300 * time.Millisecond}, Permit: only(cluster.Members[0].Endpoint)})
		first, second := words(0), words(1)
		assert.That(t, err != nil && first != 0 && second == 0, "%v; %d and %d questions", err, first, second)
	})
}

// TestAnAcknowledgementLeavesWithTheNextRequest has a member that sends a PING for each request, as grpc-go does, and
// answers a while later. Each acknowledgement comes with the next request, and the last one, which no request follows,
// within half a second.
func TestAnAcknowledgementLeavesWithTheNextRequest(t *testing.T) {
	const total, answersAfter = 10, 30 * time.Millisecond
	for _, secured := range []bool{false, true} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			protocol, authority := etcd.Protocol{}, etcdtest.NewAuthority(t)
			if secured {
				protocol.Secured = trusting(authority, authority)
			}
			var last time.Duration
			endpoint := w.Serve(func(c net.Conn) {
				if secured {
					config := authority.Server(tls.VersionTLS13)
					config.NextProtos = []string{etcd.ALPN}
					config.Certificates = []tls.Certificate{authority.Issue(time.Hour, "10.0.0.1")}
					c = tls.Server(c, config)
				}
				served := 0
				etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
					if served++; served > total {
						return m.Answer(stream) == nil // the question who leads came first
					}
					_ = errors.Join(m.Framer.WritePing(false, [8]byte{1}), m.SetReadDeadline(w.Wall().Add(answersAfter)))
					early, none := m.Framer.ReadFrame()
					_ = errors.Join(m.SetReadDeadline(time.Time{}), m.Answer(stream))
					answered := w.Now()
					f, err := m.Framer.ReadFrame()
					ping, is := f.(*http2.PingFrame)
					if !errors.Is(none, os.ErrDeadlineExceeded) || err != nil || !is || !ping.IsAck() {
						t.Errorf("before answer %d there is %v, %v, and after it %v, %v", served, early, none, f, err)
						return false
					}
					last = w.Now() - answered
					return true
				})(c)
			})
			transport := assert.Got(openWith(t, w, protocol, Options{Spec: &spec.Spec{Endpoints: []string{endpoint},
				Conns: 1}}))(t)
			// One was the question who leads.
			result := load.NewRun(puts(w, total-1, 1)).Attack(t.Context(), transport)
			assert.That(t, result.Failed == 0, "failed: %v", result.Errors)
			w.Sleep(time.Second)
			assert.That(t, last >= releaseInterval && last <= 2*releaseInterval+2*time.Millisecond,
				"TLS %v: the last acknowledgement came %v after the answer", secured, last)
		})
	}
}

// trusting is a client's TLS: it trusts one CA, and has a certificate of another; nil: it has none.
func trusting(servers, own *etcdtest.Authority) store.Security {
	config := &tls.Config{RootCAs: servers.Pool()}
	if own != nil {
		config.Certificates = []tls.Certificate{own.Issue(time.Hour)}
	}
	return secure.New(config, etcd.ALPN)
}
