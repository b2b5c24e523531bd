package transport

import (
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// guarded starts members that want a user, root with the password secret.
func guarded(t *testing.T, members int, options ...grpc.ServerOption) (*etcdtest.Cluster, *etcdtest.Users) {
	t.Helper()
	users := &etcdtest.Users{Name: "root", Password: "secret"}
	return etcdtest.Start(t, members, append(options, users.Option())...), users
}

func openAs(t *testing.T, name, password string, o Options) (*Transport, error) {
	t.Helper()
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 10 * time.Second
	}
	transport, err := Open(t.Context(), etcd.Protocol{User: &etcd.User{Name: name, Password: password}}, o)
	if err == nil {
		t.Cleanup(transport.Close)
	}
	return transport, err
}

func TestAUserWhoIsRefusedSendsNothing(t *testing.T) {
	cluster, _ := guarded(t, 3)
	for _, leader := range []bool{false, true} {
		o := Options{Endpoints: cluster.Endpoints(), Conns: 3, TargetLeader: leader, DialTimeout: time.Minute}
		_, err := openAs(t, "root", "wrong", o)
		want := ": InvalidArgument: etcdserver: authentication failed, invalid user ID or password"
		if err == nil || !strings.HasPrefix(err.Error(), "127.0.0.1:") || !strings.HasSuffix(err.Error(),
			want) || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%v, want a member and %q", err, want)
		}
	}
	open := etcdtest.Start(t, 1)
	if _, err := openAs(t, "root", "secret", Options{Endpoints: open.Endpoints(),
		Conns: 1}); err == nil || !strings.Contains(err.Error(), "Unimplemented") {
		t.Errorf("a member that knows of no users: %v", err)
	}
	for _, m := range append(cluster.Members, open.Members...) {
		if m.Requests.Load() != 0 {
			t.Error("a request was sent")
		}
	}
}

func unknowns(result load.Result) (n int) {
	for _, record := range result.Records {
		if record.Outcome() == load.Unknown {
			n++
		}
	}
	return n
}

func TestNobodyToLogInAtIsSaid(t *testing.T) {
	_, err := openAs(t, "root", "secret", Options{Endpoints: []string{etcdtest.Refusing(t)}, Conns: 1,
		DialTimeout: 300 * time.Millisecond})
	if err == nil || err.Error() != "no member could be reached to log in" {
		t.Error(err)
	}
}

// TestADeadMemberDoesNotKeepAUserOut has a first member that nobody listens at, and a second that answers no login.
func TestADeadMemberDoesNotKeepAUserOut(t *testing.T) {
	t.Parallel()
	cluster, users := guarded(t, 1)
	endpoints := append([]string{etcdtest.Refusing(t), etcdtest.Silent(t)}, cluster.Endpoints()...)
	if _, err := openAs(t, "root", "secret", Options{Endpoints: endpoints, Conns: 1,
		DialTimeout: time.Second}); err != nil || users.Logins() != 1 {
		t.Errorf("%d logins: %v", users.Logins(), err)
	}
}

func TestAUserWithoutPermissionWritesNothing(t *testing.T) {
	cluster, users := guarded(t, 1)
	transport, err := openAs(t, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	users.Deny()
	result := load.NewRun(puts(50, 5)).Attack(t.Context(), transport)
	want := cluster.Members[0].Endpoint + ": PermissionDenied: etcdserver: permission denied"
	if len(cluster.Keys()) != 0 || result.Errors[want] != 50 || unknowns(result) != 0 || users.Logins() != 1 {
		t.Errorf("%d keys, errors %v, %d unknown, %d logins", len(cluster.Keys()), result.Errors, unknowns(result),
			users.Logins())
	}
}

// TestALoadThatTheUserMayNotDoIsNotSent says so at the start, once.
func TestALoadThatTheUserMayNotDoIsNotSent(t *testing.T) {
	cluster, users := guarded(t, 1)
	users.Deny()
	samples := []store.Request{{Operation: store.Put, Key: []byte("key")}}
	_, err := openAs(t, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2, Rehearsal: samples})
	want := `the user may not write "key", so nothing of the load was sent: ` + cluster.Members[0].Endpoint +
		": PermissionDenied: etcdserver: permission denied"
	if err == nil || err.Error() != want || cluster.Members[0].Requests.Load() != 0 {
		t.Errorf("%v, %d requests", err, cluster.Members[0].Requests.Load())
	}
	if transport, err := Open(t.Context(), etcd.Protocol{}, Options{Endpoints: etcdtest.Start(t, 1).Endpoints(), Conns: 1,
		DialTimeout: 10 * time.Second, RequestTimeout: time.Second, Rehearsal: samples}); err != nil {
		t.Errorf("without users: %v", err)
	} else {
		transport.Close()
	}
}

// untilTold is a closed loop that starts no more requests once it is told; unlike Run.Stop, it abandons none.
type untilTold struct {
	load.ClosedLoop
	told atomic.Bool
}

func (u *untilTold) Pace(_ int, elapsed time.Duration) (time.Duration, bool) {
	return elapsed, !u.told.Load()
}

// TestATokenThatExpiresIsRenewed ends the token in the middle of a load, over and over: each request still counts once.
func TestATokenThatExpiresIsRenewed(t *testing.T) {
	for name, options := range map[string][]grpc.ServerOption{
		"plain":              nil,
		"one call at a time": {grpc.MaxConcurrentStreams(1)},
		"no header table":    {grpc.HeaderTableSize(0)},
		"small header table": {grpc.HeaderTableSize(700)},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, users := guarded(t, 2, options...)
			transport, err := openAs(t, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 3})
			if err != nil {
				t.Fatal(err)
			}
			// A request is tried again once, so none may meet two expiries: there is a load for each.
			const expiries, apart = 10, 150
			total := 0
			for n := range expiries {
				pacer := &untilTold{}
				o := puts(1_000_000, 16)
				// Keys of another length for each load: no two requests have the same one.
				o.Pacer, o.Targeter.(*load.Puts).KeySize = pacer, 8+n
				run := load.NewRun(o)
				ended := make(chan load.Result)
				go func() { ended <- run.Attack(t.Context(), transport) }()
				more := func() {
					from, _ := run.Progress()
					waitFor(t, "requests", func() bool { done, _ := run.Progress(); return done >= from+apart })
				}
				more()
				logins := users.Logins()
				users.Expire()
				waitFor(t, "a login", func() bool { return users.Logins() > logins })
				more()
				pacer.told.Store(true)
				result := <-ended
				done, _ := run.Progress()
				total += done
				if result.Failed != 0 || result.Reason != "" {
					t.Errorf("%d failed, reason %q: %v", result.Failed, result.Reason, result.Errors)
				}
			}
			if got := int(cluster.Members[0].Requests.Load() + cluster.Members[1].Requests.Load()); got != total || len(cluster.Keys()) != total {
				t.Errorf("%d requests were carried out, %d were to be; %d keys", got, total, len(cluster.Keys()))
			}
			// One for the start, and one each time; all requests that were under way share it.
			if logins := users.Logins(); logins != expiries+1 {
				t.Errorf("%d logins after %d expiries", logins, expiries)
			}
		})
	}
}

// TestALeaderIsFollowedAfterAnExpiry has the questions after the leader carry new tokens, too.
func TestALeaderIsFollowedAfterAnExpiry(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	cluster, users := guarded(t, 2, etcdtest.Secured(authority.Server(tls.VersionTLS13)))
	protocol := etcd.Protocol{Secured: trusting(authority, authority), User: &etcd.User{Name: "root", Password: "secret"}}
	o := Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true, DialTimeout: 10 * time.Second,
		RequestTimeout: 10 * time.Second}
	transport, err := Open(t.Context(), protocol, o)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	run := load.NewRun(puts(10_000_000, 4))
	ended := make(chan load.Result)
	go func() { ended <- run.Attack(t.Context(), transport) }()
	users.Expire()
	cluster.Elect(2)
	waitFor(t, "requests at the new leader", func() bool { return cluster.Members[1].Requests.Load() > 50 })
	run.Stop("enough")
	if result := <-ended; result.Failed != 0 {
		t.Errorf("%d failed: %v", result.Failed, result.Errors)
	}
}

// TestALoginThatFailsIsSaidOfTheRequests changes the password while a load runs.
func TestALoginThatFailsIsSaidOfTheRequests(t *testing.T) {
	cluster, users := guarded(t, 1)
	transport, err := openAs(t, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	users.ChangePassword("another")
	result := load.NewRun(puts(20, 4)).Attack(t.Context(), transport)
	for text, n := range result.Errors {
		if !strings.Contains(text, ": Unauthenticated: a new login failed: ") || !strings.Contains(text,
			"invalid user ID or password") {
			t.Errorf("%d requests: %s", n, text)
		}
	}
	if result.Failed != 20 || unknowns(result) != 0 || len(cluster.Keys()) != 0 {
		t.Errorf("%d failed, %d unknown, %d keys", result.Failed, unknowns(result), len(cluster.Keys()))
	}
}
