package transport

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestRequestsThatWaitedForTheirTurnAreNotSent ends runs early while the member takes no request, or not as a whole.
func TestRequestsThatWaitedForTheirTurnAreNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		setting http2.Setting
		want    load.Outcome
	}{
		"no request is allowed": {http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}, load.NotSent},
		"no window is open":     {http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, load.NotSent},
		"all of it is taken":    {http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, load.Abandoned},
	} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			endpoint := w.Serve(etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true }, c.setting))
			transport := openFor(t, w, Options{Endpoints: []string{endpoint}, Conns: 1, DialTimeout: time.Second})
			ctx, cancel := w.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			for i, record := range load.NewRun(puts(w, 5, 5)).Attack(ctx, transport).Records {
				if record.Outcome() != c.want {
					t.Errorf("%s: request %d has the outcome %d, want %d", name, i, record.Outcome(), c.want)
				}
			}
		})
	}
}

// TestAConnectionThatFellSilentIsGivenUp has a link that drops everything after 100 ms: requests end by their deadlines,
// and there is another connection once the member's kernel has acknowledged nothing for a second.
func TestAConnectionThatFellSilentIsGivenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		const ms = time.Millisecond
		cluster := etcdtest.Simulate(w, 1, nil)
		listener := cluster.Members[0].Listener
		listener.Latency = ms
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 1, RequestTimeout: 300 * ms})
		w.After(99*ms, listener.Cut) // between two requests
		result := load.NewRun(puts(w, 1000, 1)).Attack(t.Context(), transport)
		first := slices.IndexFunc(result.Records, func(r load.Record) bool { return !r.OK() })
		lost := result.Records[first+4]
		// Of the first one the answer is lost, three more end by deadlines, and the fifth with the connection.
		if result.Failed != 5 || lost.Code() != store.Unavailable || lost.End()-result.Records[first].Start != 1300*ms ||
			listener.Accepted() != 2 {
			t.Errorf("%d requests failed, the fifth %v after %v: %v", result.Failed, lost.Code(),
				lost.End()-result.Records[first].Start, result.Errors)
		}
	})
}
