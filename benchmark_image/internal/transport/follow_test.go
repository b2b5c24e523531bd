package transport

import (
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

func TestTargetLeaderFollowsTheLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true})
		o := puts(w, 1_000_000, 4)
		o.Pacer = load.NewOpenLoop(load.Constant(500), 1_000_000, 0, 1_000_000)
		_, end := begin(t, o, transport)
		for _, leader := range []uint64{1, 3, 1} {
			cluster.Elect(leader)
			m := cluster.Members[leader-1]
			before := m.Requests.Load()
			w.Until(func() bool { return m.Requests.Load() > before+20 })
		}
		result := end()
		if result.Failed != 0 || cluster.Members[1].Requests.Load() != 0 {
			t.Errorf("%d failed: %v", result.Failed, result.Errors)
		}
		changes := transport.LeaderChanges()
		if len(changes) != 2 || changes[0].Leader != cluster.Members[2].Endpoint ||
			changes[1].Leader != cluster.Members[0].Endpoint || transport.Connections() != 2 {
			t.Errorf("leader changes %v, %d connections", changes, transport.Connections())
		}
	})
}

// TestALeaderThatHangsIsLeftAtOnce: it answers nothing, least of all who leads now, and once it goes on, it still says
// that it leads, in a term that is over.
func TestALeaderThatHangsIsLeftAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		const rounds = 5
		cluster := etcdtest.Simulate(w, 3, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2, TargetLeader: true,
			RequestTimeout: 30 * time.Second})
		o := puts(w, 1_000_000, 1000) // those whose requests the old leader keeps are not free for the new one
		o.Pacer = load.NewOpenLoop(load.Constant(500), 1_000_000, 0, 1_000_000)
		_, end := begin(t, o, transport)
		w.Until(func() bool { return cluster.Members[0].Requests.Load() > 200 })
		var took []time.Duration
		for round := range rounds {
			old, next := cluster.Members[round%2], cluster.Members[(round+1)%2]
			before := next.Requests.Load()
			old.Hang()
			cluster.Members[2].Hang() // a follower that hangs keeps nobody waiting either
			begun := w.Since()
			cluster.Elect(uint64((round+1)%2) + 1)
			w.Until(func() bool { return next.Requests.Load() > before })
			took = append(took, w.Since()-begun)
			settled := next.Requests.Load()
			old.Release()
			cluster.Members[2].Release()
			w.Until(func() bool { return next.Requests.Load() > settled+200 })
		}
		end()
		// The questions are 200 ms apart, and take 2 ms; a new connection takes 4 ms, and the next request 2 ms.
		if slices.Max(took) > followPoll+10*time.Millisecond {
			t.Errorf("the load followed after %v", took)
		}
		if changes := transport.LeaderChanges(); len(changes) != rounds {
			t.Errorf("%d leader changes: %v", len(changes), changes)
		}
	})
}

// TestTheLeaderMovesAway: the only endpoint tells where the leader is.
func TestTheLeaderMovesAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 3, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints()[:1], Conns: 2, TargetLeader: true,
			DialTimeout: 300 * time.Millisecond})
		o := puts(w, 1_000_000, 4)
		o.Pacer = load.NewOpenLoop(load.Constant(500), 1_000_000, 0, 1_000_000)
		_, end := begin(t, o, transport)
		for _, leader := range []uint64{3, 2} {
			cluster.Elect(leader)
			m := cluster.Members[leader-1]
			w.Until(func() bool { return m.Requests.Load() > 20 })
		}
		if result := end(); result.Failed != 0 {
			t.Errorf("%d failed: %v", result.Failed, result.Errors)
		}
		if changes := transport.LeaderChanges(); len(changes) != 2 || changes[1].Leader != cluster.Members[1].Endpoint ||
			transport.LeaderLost() != nil {
			t.Errorf("leader changes %v, leader lost: %v", changes, transport.LeaderLost())
		}
		// A leader that cannot be reached, and one that is in no list.
		cluster.Members[2].Stop()
		for leader, want := range map[uint64]string{3: cluster.Members[2].Endpoint, 99: "member id 63"} {
			cluster.Elect(leader)
			_, end := begin(t, o, transport)
			w.Sleep(1500 * time.Millisecond) // several times what a look-up may take
			if result := end(); result.Failed != 0 || transport.LeaderLost() == nil ||
				!strings.Contains(transport.LeaderLost().Error(), want) {
				t.Errorf("leader %d: %d failed, leader lost: %v", leader, result.Failed, transport.LeaderLost())
			}
		}
	})
}

func TestTheLeaderDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 2, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1, TargetLeader: true})
		run, end := begin(t, puts(w, 1_000_000, 2), transport)
		w.Until(func() bool { done, _ := run.Progress(); return done > 10 })
		cluster.Members[0].Stop()
		cluster.Elect(2)
		w.Until(func() bool { return cluster.Members[1].Requests.Load() > 100 })
		if result := end(); result.Failed == 0 || result.Reason != "enough" {
			t.Errorf("%d failed, reason %q", result.Failed, result.Reason)
		}
	})
}

func TestAnswersAreChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 2})
		const total = 200
		if result := load.NewRun(puts(w, total, 3)).Attack(t.Context(), transport); result.Failed != 0 {
			t.Fatal(result.Errors)
		}
		reads := puts(w, total, 3)
		for seed, failed := range map[int64]int{0: 0, 1: total} {
			reads.Targeter = &load.Reads{KeySize: 4, Order: keys.NewOrder(total, true, 0), Verify: keys.NewValues(64, seed)}
			result := load.NewRun(reads).Attack(t.Context(), transport)
			if result.Failed != failed || result.Errors["an answer held another value than the one that was written"] != failed {
				t.Errorf("seed %d: %d of %d failed: %v", seed, result.Failed, total, result.Errors)
			}
		}
		cluster.Members[0].Hide.Store(true)
		for _, verify := range []*keys.Values{nil, keys.NewValues(64, 0)} {
			reads.Targeter = &load.Reads{KeySize: 4, Order: keys.NewOrder(total, true, 0), Verify: verify}
			result := load.NewRun(reads).Attack(t.Context(), transport)
			if result.Failed != total || result.Errors["an answer held 0 keys of 1, expected were 1"] != total {
				t.Errorf("of %d answers without their key %d failed: %v", total, result.Failed, result.Errors)
			}
		}
	})
}

func TestOutcomesOfLostRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		outcomes := func(result load.Result) (counts [load.Abandoned + 1]int) {
			for _, record := range result.Records {
				counts[record.Outcome()]++
			}
			return counts
		}
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1, RequestTimeout: 50 * time.Millisecond})
		cluster.Members[0].Hang()
		if got := outcomes(load.NewRun(puts(w, 4, 2)).Attack(t.Context(), transport)); got[load.Unknown] != 4 {
			t.Errorf("requests that the member kept without an answer: %v", got)
		}
		cluster.Members[0].Stop()
		w.Until(func() bool { return !transport.connections[0].isReady.Load() })
		if got := outcomes(load.NewRun(puts(w, 4, 2)).Attack(t.Context(), transport)); got[load.Failed] != 4 {
			t.Errorf("requests without a connection: %v", got)
		}
	})
}
