package secure

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// readSize is how much is opened at once, in bytes, as by the event loop.
const readSize = 64 << 10

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
			_, err := io.ReadFull(member.tls, opened)
			assert.Must(t, err == nil && bytes.Equal(opened, whole[last:inner.written]) && member.in.Len() == 0,
				"after %d bytes the member can open %d of %d, %d are left: %v", total, len(opened), inner.written,
				member.in.Len(), err)
			last, ends[inner.written] = inner.written, true
		}
		assert.That(t, last == len(whole) && len(ends) == 3 && ends[record] && ends[2*record],
			"version %x: %d of %d bytes in records that end at %v", version, last, len(whole), ends)
	}
}

// TestRecordsMayComeInPieces feeds what the member has sealed in pieces, down to a byte, and then the member's end.
func TestRecordsMayComeInPieces(t *testing.T) {
	for _, piece := range []int{1, 7, 5000, readSize} {
		inner := &held{}
		s, member := inMemory(t, tls.VersionTLS13, inner)
		sent := bytes.Repeat([]byte("0123456789"), 10_000)
		_, err := member.tls.Write(sent)
		assert.OK(t, err, member.tls.CloseWrite())
		for sealed := member.out.Bytes(); len(sealed) > 0; {
			assert.Must(t, !s.Closing(), "it is over before its end")
			n := min(piece, len(sealed))
			assert.OK(t, s.Feed(sealed[:n]))
			sealed = sealed[n:]
		}
		assert.That(t, bytes.Equal(inner.fed.Bytes(), sent) && s.Closing() && !s.Start(nil, nil, nil),
			"in pieces of %d: %d of %d bytes, over %v", piece, inner.fed.Len(), len(sent), s.Closing())
	}
	s, member := inMemory(t, tls.VersionTLS13, &held{})
	assert.Got(member.tls.Write([]byte("forged")))(t)
	sealed := member.out.Bytes()
	sealed[len(sealed)-1] ^= 1
	fault := s.Feed(sealed)
	assert.That(t, errors.As(fault, new(store.RefusedError)) && strings.Contains(fault.Error(), "bad record MAC"),
		"a record that was changed on its way: %v", fault)
	s.Leave(errors.New("enough"))
	for range 100 {
		s.Wrote(len(s.Output()))
	}
	assert.Equal(t, len(s.Output()), 0, "bytes of output without an end")
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
	own := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{authority.Issue(time.Hour)}}
	over, err := New(own, "h2").Secure(t.Context(), near, "127.0.0.1:1")
	assert.OK(t, err, <-shaken)
	between.Conn = member
	return over(inner, make([]byte, readSize)).(*secured), member
}
