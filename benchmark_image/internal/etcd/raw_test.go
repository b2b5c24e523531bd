package etcd

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/etcdtest"
	"containernet-env/benchmark_image/internal/load"
)

// TestWhatTheMemberSaidIsToldFromWhatBecameOfIt: grpc-go has the same codes for both.
func TestWhatTheMemberSaidIsToldFromWhatBecameOfIt(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(m *etcdtest.Raw, stream uint32) error
		want  load.Outcome
		code  string
	}{
		"too much": {func(m *etcdtest.Raw, s uint32) error { return m.Framer.WriteRSTStream(s, http2.ErrCodeEnhanceYourCalm) }, load.Unknown, "ResourceExhausted"},
		"not secure": {func(m *etcdtest.Raw, s uint32) error {
			return m.Framer.WriteRSTStream(s, http2.ErrCodeInadequateSecurity)
		}, load.Unknown, "PermissionDenied"},
		"too many": {func(m *etcdtest.Raw, s uint32) error { return m.Refuse(s, "8", "etcdserver: too many requests") }, load.Failed, "ResourceExhausted"},
		"no space": {func(m *etcdtest.Raw, s uint32) error {
			return m.Refuse(s, "8", "etcdserver: mvcc: database space exceeded")
		}, load.Unknown, "ResourceExhausted"},
		"not allowed": {func(m *etcdtest.Raw, s uint32) error { return m.Refuse(s, "7", "etcdserver: permission denied") }, load.Failed, "PermissionDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := etcdtest.RawMember(t, etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool { return c.serve(m, stream) == nil }))
			transport := open(t, Options{Endpoints: []string{endpoint}, Conns: 1})
			result := load.NewRun(puts(20, 2)).Attack(t.Context(), transport)
			for i, record := range result.Records {
				if record.Outcome() != c.want || record.Code().String() != c.code {
					t.Fatalf("request %d: outcome %d, %v: %v", i, record.Outcome(), record.Code(), result.Errors)
				}
			}
		})
	}
}

// TestRequestsThatWaitedForTheirTurnAreNotSent ends runs early while the member takes no request, or not as a whole.
func TestRequestsThatWaitedForTheirTurnAreNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		setting http2.Setting
		want    load.Outcome
	}{
		"no request is allowed": {http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}, load.NotSent},
		"no window is open":     {http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, load.Abandoned},
		"all of it is taken":    {http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, load.Abandoned},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := etcdtest.RawMember(t, etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true }, c.setting))
			transport, err := Open(t.Context(), Options{
				Endpoints: []string{endpoint}, Conns: 1, DialTimeout: 300 * time.Millisecond, RequestTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			for i, record := range load.NewRun(puts(5, 5)).Attack(ctx, transport).Records {
				if record.Outcome() != c.want {
					t.Errorf("request %d has the outcome %d, want %d", i, record.Outcome(), c.want)
				}
			}
		})
	}
}

// TestAConnectionThatFellSilentIsGivenUp has a link that drops everything after a while.
func TestAConnectionThatFellSilentIsGivenUp(t *testing.T) {
	var opened, answered atomic.Int64
	endpoint := etcdtest.RawMember(t, func(c net.Conn) {
		cut := opened.Add(1) < 2
		etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			if cut && stream > 100 {
				etcdtest.Cut(t, m.Conn)
				return true
			}
			answered.Add(1)
			return m.Answer(stream) == nil
		})(c)
	})
	transport := open(t, Options{Endpoints: []string{endpoint}, Conns: 1, RequestTimeout: 200 * time.Millisecond})
	run := load.NewRun(puts(1_000_000, 2))
	ended := make(chan load.Result)
	start := time.Now()
	go func() { ended <- run.Attack(t.Context(), transport) }()
	waitFor(t, "answers on another connection", func() bool { return opened.Load() > 1 && answered.Load() > 200 })
	took := time.Since(start)
	run.Stop("enough")
	// TCP itself would try for a quarter of an hour.
	if result := <-ended; result.Failed < 2 || took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("%d requests failed; after %v there was another connection", result.Failed, took)
	}
}
