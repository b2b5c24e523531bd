package transport

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/assert"
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

// TestUsersWhoAreRefused send nothing of the load.
func TestUsersWhoAreRefused(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster, _ := guarded(w, 3)
		denied, users := guarded(w, 1)
		users.Deny()
		open := etcdtest.Simulate(w, 1, nil)
		samples := []store.Request{{Operation: store.Put, Key: []byte("key")}}
		const wrong = "InvalidArgument: etcdserver: authentication failed, invalid user ID or password"
		for _, c := range []struct {
			endpoints []string
			password  string
			leader    bool
			want      string
		}{
			{cluster.Endpoints(), "wrong", false, wrong},
			{cluster.Endpoints(), "wrong", true, wrong},
			{open.Endpoints(), "secret", false, "Unimplemented"},
			{[]string{w.Refusing()}, "secret", false, "no member could be reached to log in"},
			{[]string{w.Serve(etcdtest.RawRequests(refuses("14", "etcdserver: no leader")))}, "secret", false,
				"Unavailable: etcdserver: no leader"},
			{denied.Endpoints(), "secret", false, `the user may not write "key", so nothing of the load was sent: ` +
				denied.Members[0].Endpoint + ": PermissionDenied: etcdserver: permission denied"},
		} {
			_, err := openAs(t, w, "root", c.password, Options{Endpoints: c.endpoints, Conns: 3, TargetLeader: c.leader,
				DialTimeout: time.Second, Rehearsal: samples})
			assert.That(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), c.password),
				"%v, want %q", err, c.want)
		}
		for _, m := range slices.Concat(cluster.Members, open.Members, denied.Members) {
			assert.That(t, m.Requests.Load() == 0, "a request was sent")
		}
		openFor(t, w, Options{Endpoints: open.Endpoints(), Conns: 1, Rehearsal: samples}) // no users
	})
}

// TestADeadMemberDoesNotKeepAUserOut has a first member that refuses connections, and a second that answers no login.
func TestADeadMemberDoesNotKeepAUserOut(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster, users := guarded(w, 1)
		endpoints := append([]string{w.Refusing(), w.Listen(nil).Endpoint}, cluster.Endpoints()...)
		_, err := openAs(t, w, "root", "secret", Options{Endpoints: endpoints, Conns: 1, DialTimeout: time.Second})
		assert.That(t, err == nil && users.Logins() == 1, "%d logins: %v", users.Logins(), err)
	})
}

// TestUsersWhoAreRefusedDuringALoad lose the permission, or their password is changed.
func TestUsersWhoAreRefusedDuringALoad(t *testing.T) {
	for want, change := range map[string]func(*etcdtest.Users){
		": PermissionDenied: etcdserver: permission denied": (*etcdtest.Users).Deny,
		"invalid user ID or password":                       func(u *etcdtest.Users) { u.ChangePassword("another") },
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			cluster, users := guarded(w, 1)
			transport, err := openAs(t, w, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 2})
			assert.OK(t, err)
			change(users)
			o := puts(w, 50, 5)
			result := load.NewRun(o).Attack(t.Context(), transport)
			for text, n := range result.Errors {
				login := strings.Contains(text, ": Unauthenticated: a new login failed: ")
				assert.That(t, strings.Contains(text, want) && login == strings.HasPrefix(want, "invalid"), "%d requests: %s",
					n, text)
			}
			unknown := slices.ContainsFunc(records(o), func(r load.Record) bool { return r.Outcome == load.Unknown })
			assert.That(t, result.Failed == 50 && !unknown && len(cluster.Keys()) == 0 && users.Logins() == 1,
				"%d failed, unknown %v, %d keys, %d logins", result.Failed, unknown, len(cluster.Keys()), users.Logins())
		})
	}
}

// TestATokenThatExpiresIsRenewed ends the token in the middle of a load, over and over: each request still counts once,
// and the requests that were under way share one login.
func TestATokenThatExpiresIsRenewed(t *testing.T) {
	for _, streams := range []uint32{1, 100} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			cluster, users := guarded(w, 2)
			for _, m := range cluster.Members {
				m.Listener.Latency = 2 * time.Millisecond
				m.Settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: streams}}
			}
			transport, err := openAs(t, w, "root", "secret", Options{Endpoints: cluster.Endpoints(), Conns: 3})
			assert.OK(t, err)
			const total, expiries = 3000, 10
			for n := range expiries {
				w.After(time.Duration(n+1)*100*time.Millisecond, users.Expire)
			}
			o := puts(w, total, 16)
			result := load.NewRun(o).Attack(t.Context(), transport)
			got := cluster.Members[0].Requests.Load() + cluster.Members[1].Requests.Load()
			assert.That(t, result.Failed == 0 && result.Reason == "" && got == total && len(cluster.Keys()) == total,
				"%d failed, reason %q: %v; %d requests wrote %d keys", result.Failed, result.Reason, result.Errors, got,
				len(cluster.Keys()))
			if logins := users.Logins(); logins != expiries+1 || result.Took < (expiries+1)*100*time.Millisecond {
				t.Errorf("%d logins after %d expiries in %v", logins, expiries, result.Took)
			}
		})
	}
}
