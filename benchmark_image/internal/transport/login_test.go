package transport

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// guarded starts members that want a user, root with the password secret.
func guarded(w *worldtest.World, members int) (*etcdtest.Cluster, *etcdtest.Users) {
	users := &etcdtest.Users{Name: "root", Password: "secret"}
	return etcdtest.Simulate(w, members, users), users
}

func openAs(t *testing.T, w *worldtest.World, name, password string, o Options) (*Transport, error) {
	t.Helper()
	return openWith(t, w, etcd.Protocol{User: &etcd.User{Name: name, Password: password}}, o)
}

func TestAUserWhoIsRefusedSendsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster, _ := guarded(w, 3)
		for _, leader := range []bool{false, true} {
			o := Options{Endpoints: cluster.Endpoints(), Conns: 3, TargetLeader: leader, DialTimeout: time.Minute}
			_, err := openAs(t, w, "root", "wrong", o)
			want := ": InvalidArgument: etcdserver: authentication failed, invalid user ID or password"
			if err == nil || !strings.HasPrefix(err.Error(), "10.0.0.") || !strings.HasSuffix(err.Error(),
				want) || strings.Contains(err.Error(), "wrong") {
				t.Errorf("%v, want a member and %q", err, want)
			}
		}
		open := etcdtest.Simulate(w, 1, nil)
		if _, err := openAs(t, w, "root", "secret", Options{Endpoints: open.Endpoints(),
			Conns: 1}); err == nil || !strings.Contains(err.Error(), "Unimplemented") {
			t.Errorf("a member that knows of no users: %v", err)
		}
		for _, m := range append(cluster.Members, open.Members...) {
			if m.Requests.Load() != 0 {
				t.Error("a request was sent")
			}
		}
	})
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
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		_, err := openAs(t, w, "root", "secret", Options{Endpoints: []string{w.Refusing()}, Conns: 1,
			DialTimeout: 300 * time.Millisecond})
		if err == nil || err.Error() != "no member could be reached to log in" {
			t.Error(err)
		}
	})
}

// TestADeadMemberDoesNotKeepAUserOut has a first member that nobody listens at, and a second that answers no login.
func TestADeadMemberDoesNotKeepAUserOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster, users := guarded(w, 1)
		endpoints := append([]string{w.Refusing(), w.Listen(nil).Endpoint}, cluster.Endpoints()...)
		if _, err := openAs(t, w, "root", "secret", Options{Endpoints: endpoints, Conns: 1,
			DialTimeout: time.Second}); err != nil || users.Logins() != 1 {
			t.Errorf("%d logins: %v", users.Logins(), err)
		}
	})
}

func TestAUserWithoutPermissionWritesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster, users := guarded(w, 1)
		transport, err := openAs(t, w, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2})
		if err != nil {
			t.Fatal(err)
		}
		users.Deny()
		result := load.NewRun(puts(w, 50, 5)).Attack(t.Context(), transport)
		want := cluster.Members[0].Endpoint + ": PermissionDenied: etcdserver: permission denied"
		if len(cluster.Keys()) != 0 || result.Errors[want] != 50 || unknowns(result) != 0 || users.Logins() != 1 {
			t.Errorf("%d keys, errors %v, %d unknown, %d logins", len(cluster.Keys()), result.Errors, unknowns(result),
				users.Logins())
		}
	})
}

// TestALoadThatTheUserMayNotDoIsNotSent says so at the start, once.
func TestALoadThatTheUserMayNotDoIsNotSent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster, users := guarded(w, 1)
		users.Deny()
		samples := []store.Request{{Operation: store.Put, Key: []byte("key")}}
		_, err := openAs(t, w, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2, Rehearsal: samples})
		want := `the user may not write "key", so nothing of the load was sent: ` + cluster.Members[0].Endpoint +
			": PermissionDenied: etcdserver: permission denied"
		if err == nil || err.Error() != want || cluster.Members[0].Requests.Load() != 0 {
			t.Errorf("%v, %d requests", err, cluster.Members[0].Requests.Load())
		}
		openFor(t, w, Options{Endpoints: etcdtest.Simulate(w, 1, nil).Endpoints(), Conns: 1, Rehearsal: samples}) // no users
	})
}

// TestATokenThatExpiresIsRenewed ends the token in the middle of a load, over and over: each request still counts once,
// and the requests that were under way share one login.
func TestATokenThatExpiresIsRenewed(t *testing.T) {
	for _, streams := range []uint32{1, 100} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			cluster, users := guarded(w, 2)
			for _, m := range cluster.Members {
				m.Listener.Latency = 2 * time.Millisecond
				m.Settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: streams}}
			}
			transport, err := openAs(t, w, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 3})
			if err != nil {
				t.Fatal(err)
			}
			const total, expiries = 3000, 10
			for n := range expiries {
				w.After(time.Duration(n+1)*100*time.Millisecond, users.Expire)
			}
			o := puts(w, total, 16)
			result := load.NewRun(o).Attack(t.Context(), transport)
			got := cluster.Members[0].Requests.Load() + cluster.Members[1].Requests.Load()
			if result.Failed != 0 || result.Reason != "" || got != total || len(cluster.Keys()) != total {
				t.Errorf("%d failed, reason %q: %v; %d requests wrote %d keys", result.Failed, result.Reason, result.Errors, got,
					len(cluster.Keys()))
			}
			if logins := users.Logins(); logins != expiries+1 || result.Took < (expiries+1)*100*time.Millisecond {
				t.Errorf("%d logins after %d expiries in %v", logins, expiries, result.Took)
			}
		})
	}
}

// TestALoginThatFailsIsSaidOfTheRequests changes the password while a load runs.
func TestALoginThatFailsIsSaidOfTheRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster, users := guarded(w, 1)
		transport, err := openAs(t, w, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2})
		if err != nil {
			t.Fatal(err)
		}
		users.ChangePassword("another")
		result := load.NewRun(puts(w, 20, 4)).Attack(t.Context(), transport)
		for text, n := range result.Errors {
			if !strings.Contains(text, ": Unauthenticated: a new login failed: ") || !strings.Contains(text,
				"invalid user ID or password") {
				t.Errorf("%d requests: %s", n, text)
			}
		}
		if result.Failed != 20 || unknowns(result) != 0 || len(cluster.Keys()) != 0 {
			t.Errorf("%d failed, %d unknown, %d keys", result.Failed, unknowns(result), len(cluster.Keys()))
		}
	})
}
