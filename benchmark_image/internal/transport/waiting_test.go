package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestAnAcknowledgementLeavesWithTheNextRequest has a member that sends a PING for each request, as grpc-go does, and
// answers a while later. Each acknowledgement comes with the next request, and the last one, which no request follows,
// within half a second and what a busy machine takes.
func TestAnAcknowledgementLeavesWithTheNextRequest(t *testing.T) {
	const total, answersAfter, atTheLatest = 10, 30 * time.Millisecond, 3 * time.Second
	authority := etcdtest.NewAuthority(t)
	for name, protocol := range map[string]etcd.Protocol{
		"plain": {}, "TLS": {Secured: trusting(authority, authority)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			last := make(chan error, 1)
			endpoint := etcdtest.RawMember(t, func(c net.Conn) {
				if protocol.Secured != nil {
					config := authority.Server(tls.VersionTLS13)
					config.NextProtos = []string{etcd.ALPN}
					c = tls.Server(c, config)
				}
				served := 0
				etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
					if served++; served > total {
						return m.Answer(stream) == nil // the question who leads came first
					}
					if m.Framer.WritePing(false, [8]byte{1}) != nil || m.SetReadDeadline(time.Now().Add(answersAfter)) != nil {
						return false
					}
					if f, err := m.Framer.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("after request %d there is %v, %v before its answer", served, f, err)
						return false
					}
					if m.SetReadDeadline(time.Now().Add(atTheLatest)) != nil || m.Answer(stream) != nil {
						return false
					}
					f, err := m.Framer.ReadFrame()
					if ping, is := f.(*http2.PingFrame); err != nil || !is || !ping.IsAck() {
						t.Errorf("after answer %d there is %v, %v", served, f, err)
						return false
					}
					if served == total {
						last <- m.SetReadDeadline(time.Time{})
					}
					return true
				})(c)
			})
			transport, err := Open(t.Context(), protocol, Options{Endpoints: []string{endpoint}, Conns: 1,
				DialTimeout: 10 * time.Second, RequestTimeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.Close()
			// One was the question who leads.
			if result := load.NewRun(puts(total-1, 1)).Attack(t.Context(), transport); result.Failed != 0 {
				t.Errorf("failed: %v", result.Errors)
			}
			select {
			case <-last:
			case <-time.After(2 * atTheLatest):
				t.Error("the last acknowledgement has not come")
			}
		})
	}
}
