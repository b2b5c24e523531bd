package transport

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// trusting is a client's TLS: it trusts one CA, and has a certificate of another; nil: it has none.
func trusting(servers, own *etcdtest.Authority) *tls.Config {
	config := &tls.Config{RootCAs: servers.Pool()}
	if own != nil {
		config.Certificates = []tls.Certificate{own.Issue(time.Hour)}
	}
	return etcd.Secure(config)
}

// TestWhatIsRefusedIsSaidAtOnce has members and clients whose certificates do not fit each other.
func TestWhatIsRefusedIsSaidAtOnce(t *testing.T) {
	good, other := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	server := func(version uint16, change func(*tls.Config)) *tls.Config {
		config := good.Server(version)
		if change != nil {
			change(config)
		}
		return config
	}
	serves := func(certificate tls.Certificate) func(*tls.Config) {
		return func(config *tls.Config) { config.Certificates = []tls.Certificate{certificate} }
	}
	for name, c := range map[string]struct {
		change func(*tls.Config)
		client *tls.Config
		want   []string // in TLS 1.2 and 1.3, or in both
	}{
		"another CA":            {nil, trusting(other, good), []string{"certificate signed by unknown authority"}},
		"expired":               {serves(good.Issue(-time.Hour, "127.0.0.1")), trusting(good, good), []string{"certificate has expired or is not yet valid"}},
		"another address":       {serves(good.Issue(time.Hour, "127.0.0.2")), trusting(good, good), []string{"certificate is valid for 127.0.0.2, not 127.0.0.1"}},
		"no address":            {serves(good.Issue(time.Hour, "localhost")), trusting(good, good), []string{"doesn't contain any IP SANs"}},
		"no client certificate": {nil, trusting(good, nil), []string{"refuses the connection: tls: handshake failure", "refuses the connection: tls: certificate required"}},
		"client of another CA":  {nil, trusting(good, other), []string{"refuses the connection: tls: unknown certificate authority", "refuses the connection: tls: unknown certificate authority"}},
		"no HTTP/2":             {nil, &tls.Config{RootCAs: good.Pool(), Certificates: trusting(good, good).Certificates, NextProtos: []string{"h3"}}, []string{"no application protocol"}},
		"a plain member":        {nil, trusting(good, good), []string{"does not speak TLS"}},
		"a plain client":        {nil, nil, []string{"closes new connections: does it speak TLS?"}},
	} {
		for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			var options []grpc.ServerOption
			if name != "a plain member" {
				options = append(options, etcdtest.Secured(server(version, c.change)))
			}
			cluster := etcdtest.Start(t, 2, options...)
			for _, o := range []Options{
				{Endpoints: cluster.Endpoints(), Conns: 4, DialTimeout: time.Minute, RequestTimeout: time.Second},
				{Endpoints: cluster.Endpoints(), Conns: 4, DialTimeout: time.Minute, RequestTimeout: time.Second, TargetLeader: true},
			} {
				if c.client == nil {
					o.DialTimeout, o.TargetLeader = time.Second, false // a member that closes connections may stop doing so
				}
				begin := time.Now()
				transport, err := Open(t.Context(), etcd.Protocol{Secured: c.client}, o)
				if err == nil {
					transport.Close()
					t.Errorf("%s: it was opened", name)
					continue
				}
				want := c.want[i%len(c.want)]
				if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, "127.0.0.1:") && !o.TargetLeader {
					t.Errorf("%s, version %x, leader %v: %q, want %q", name, version, o.TargetLeader, text, want)
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("%s: it took %v to say so", name, took)
				}
			}
			if len(cluster.Keys()) > 0 || cluster.Members[0].Requests.Load() > 0 {
				t.Errorf("%s: requests were sent", name)
			}
		}
	}
}

// TestALeaderElsewhereIsReachedOverTLS follows the address with TLS in the list of members.
func TestALeaderElsewhereIsReachedOverTLS(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	cluster := etcdtest.Start(t, 3, etcdtest.Secured(authority.Server(tls.VersionTLS13)))
	cluster.Secured = true
	cluster.Elect(3)
	o := Options{Endpoints: cluster.Endpoints()[:1], Conns: 2, TargetLeader: true, DialTimeout: 10 * time.Second, RequestTimeout: time.Second}
	transport, err := Open(t.Context(), etcd.Protocol{Secured: trusting(authority, authority)}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	if result := load.NewRun(puts(20, 2)).Attack(t.Context(), transport); result.Failed != 0 || cluster.Members[2].Requests.Load() != 20 {
		t.Errorf("%d failed, the leader got %d requests: %v", result.Failed, cluster.Members[2].Requests.Load(), result.Errors)
	}
}

// held is a protocol's connection that has output, and says how much of it was written.
type held struct {
	store.Conn
	out     []byte
	written int
	fed     bytes.Buffer
}

func (h *held) Output() []byte      { return h.out }
func (h *held) Wrote(n int)         { h.out, h.written = h.out[n:], h.written+n }
func (h *held) Feed(b []byte) error { h.fed.Write(b); return nil }
func (h *held) Leave(error)         {}
func (h *held) Closing() bool       { return false }

// TestWhatWasNotWrittenAsAWholeDidNotHappen writes what TLS has sealed byte by byte: the protocol hears of a record's
// content with its last byte, and not before.
func TestWhatWasNotWrittenAsAWholeDidNotHappen(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		inner := &held{out: bytes.Repeat([]byte("abcdefg"), 6000)}
		whole := bytes.Clone(inner.out)
		s, member := inMemory(t, version, inner)
		last, ends := 0, map[int]bool{}
		for total := 0; len(s.Output()) > 0; total++ {
			member.in.Write(s.Output()[:1])
			s.Wrote(1)
			if inner.written == last {
				continue
			}
			// A record says how long it is in its bytes 3 and 4 (RFC 8446 section 5.1).
			opened := make([]byte, inner.written-last)
			if _, err := io.ReadFull(member.tls, opened); err != nil || !bytes.Equal(opened, whole[last:inner.written]) {
				t.Fatalf("after %d bytes the member can open %d of %d: %v", total, len(opened), inner.written, err)
			}
			if member.in.Len() > 0 {
				t.Fatalf("%d bytes behind the record's end", member.in.Len())
			}
			last, ends[inner.written] = inner.written, true
		}
		if last != len(whole) || len(ends) != 3 || !ends[record] || !ends[2*record] {
			t.Errorf("version %x: %d of %d bytes in records that end at %v", version, last, len(whole), ends)
		}
	}
}

// TestRecordsMayComeInPieces feeds what the member has sealed in pieces, down to a byte, and then the member's end.
func TestRecordsMayComeInPieces(t *testing.T) {
	for _, piece := range []int{1, 7, 5000, readSize} {
		inner := &held{}
		s, member := inMemory(t, tls.VersionTLS13, inner)
		sent := bytes.Repeat([]byte("0123456789"), 10_000)
		if _, err := member.tls.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := member.tls.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for sealed := member.out.Bytes(); len(sealed) > 0; {
			if s.Closing() {
				t.Fatal("it is over before its end")
			}
			n := min(piece, len(sealed))
			if err := s.Feed(sealed[:n]); err != nil {
				t.Fatal(err)
			}
			sealed = sealed[n:]
		}
		if !bytes.Equal(inner.fed.Bytes(), sent) || !s.Closing() || s.Start(nil, nil, nil) {
			t.Errorf("in pieces of %d: %d of %d bytes, over %v", piece, inner.fed.Len(), len(sent), s.Closing())
		}
	}
	s, member := inMemory(t, tls.VersionTLS13, &held{})
	if _, err := member.tls.Write([]byte("forged")); err != nil {
		t.Fatal(err)
	}
	sealed := member.out.Bytes()
	sealed[len(sealed)-1] ^= 1
	if err := s.Feed(sealed); !errors.As(err, new(refusedError)) || !strings.Contains(err.Error(), "bad record MAC") {
		t.Errorf("a record that was changed on its way: %v", err)
	}
	s.Leave(errors.New("enough"))
	for range 100 {
		if len(s.Output()) == 0 {
			return
		}
		s.Wrote(len(s.Output()))
	}
	t.Error("there is output without an end")
}

// memoryMember is a member's TLS in memory.
type memoryMember struct {
	net.Conn
	tls *tls.Conn
	in  bytes.Buffer // what the client has written
	out bytes.Buffer // what it has written itself
}

func (m *memoryMember) Read(b []byte) (int, error)         { return m.in.Read(b) }
func (m *memoryMember) Write(b []byte) (int, error)        { return m.out.Write(b) }
func (m *memoryMember) SetWriteDeadline(_ time.Time) error { return nil }

// switched is a connection that becomes another one when the handshake is over.
type switched struct{ net.Conn }

// inMemory secures a connection without a network behind it.
func inMemory(t *testing.T, version uint16, inner store.Conn) (*secured, *memoryMember) {
	t.Helper()
	authority := etcdtest.NewAuthority(t)
	near, far := net.Pipe()
	between := &switched{far}
	config := authority.Server(version)
	config.NextProtos = []string{"h2"}
	config.DynamicRecordSizingDisabled = true
	member := &memoryMember{tls: tls.Server(between, config)}
	shaken := make(chan error, 1)
	go func() { shaken <- member.tls.Handshake() }()
	over, err := shake(t.Context(), near, trusting(authority, authority), "127.0.0.1:1")
	if err := errors.Join(err, <-shaken); err != nil {
		t.Fatal(err)
	}
	between.Conn = member
	return &secured{Conn: inner, session: over, plain: make([]byte, readSize)}, member
}
