package etcd

import (
	"context"
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
