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
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestAnAcknowledgementLeavesWithTheNextRequest has a member that sends a PING for each request, as grpc-go does, and
// answers a while later. Each acknowledgement comes with the next request, and the last one, which no request follows,
// within half a second.
func TestAnAcknowledgementLeavesWithTheNextRequest(t *testing.T) {
	const total, answersAfter = 10, 30 * time.Millisecond
	for _, secured := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
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
					if m.Framer.WritePing(false, [8]byte{1}) != nil || m.SetReadDeadline(w.Wall().Add(answersAfter)) != nil {
						return false
					}
					if f, err := m.Framer.ReadFrame(); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("after request %d there is %v, %v before its answer", served, f, err)
						return false
					}
					if m.SetReadDeadline(time.Time{}) != nil || m.Answer(stream) != nil {
						return false
					}
					answered := w.Now()
					f, err := m.Framer.ReadFrame()
					if ping, is := f.(*http2.PingFrame); err != nil || !is || !ping.IsAck() {
						t.Errorf("after answer %d there is %v, %v", served, f, err)
						return false
					}
					last = w.Now() - answered
					return true
				})(c)
			})
			transport, err := openWith(t, w, protocol, Options{Endpoints: []string{endpoint}, Conns: 1})
			if err != nil {
				t.Fatal(err)
			}
			// One was the question who leads.
			if result := load.NewRun(puts(w, total-1, 1)).Attack(t.Context(), transport); result.Failed != 0 {
				t.Errorf("failed: %v", result.Errors)
			}
			w.Sleep(time.Second)
			if last < releaseInterval || last > 2*releaseInterval+2*time.Millisecond {
				t.Errorf("TLS %v: the last acknowledgement came %v after the answer", secured, last)
			}
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
