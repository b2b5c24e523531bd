// Package secure is TLS for loads. Only benchmark-client-tls has it: it would make the memory of the other programs
// larger.
package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
)

// record is the most plaintext that one record of TLS holds, in bytes (RFC 8446 section 5.1).
const record = 16 << 10

// enoughSealed is the number of bytes waiting to be written from which on no more output is sealed.
const enoughSealed = 64 << 10

// tlsProblem words an error of crypto/tls.
func tlsProblem(err error) error {
	var says *net.OpError
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return store.RefusedError{Err: fmt.Errorf("the member does not speak TLS: %w", err)}
	case errors.As(err, &says) && says.Op == "remote error":
		return store.RefusedError{Err: fmt.Errorf("the member refuses the connection: %w", says.Err)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the member closed the connection within TLS's handshake")
	case errors.As(err, new(syscall.Errno)), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	return store.RefusedError{Err: err}
}

// security implements store.Security.
type security struct{ config *tls.Config }

// New secures connections as config says, but for the member's name. alpn is what members must agree to speak (RFC
// 7301); those that have no such agreement may speak HTTP/1.1.
func New(config *tls.Config, alpn string) store.Security {
	config = config.Clone()
	config.NextProtos = []string{alpn}
	// Small records at first bring a web page's beginning early, and cost time.
	config.DynamicRecordSizingDisabled = true
	return security{config}
}

func (security security) Secure(ctx context.Context, connection net.Conn, member string) (store.Session, error) {
	host, _, err := net.SplitHostPort(member)
	if err != nil {
		return nil, err
	}
	config := security.config.Clone()
	config.ServerName = host
	s := &session{pipe: &pipe{Conn: connection}}
	s.tls = tls.Client(s.pipe, config)
	if err := s.tls.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, errors.New("the member accepts connections but does not take part in TLS's handshake")
		}
		return nil, tlsProblem(err)
	}
	spoken := s.tls.ConnectionState().NegotiatedProtocol
	if wanted := config.NextProtos; !slices.Contains(wanted, spoken) && (spoken != "" || wanted[0] != http1.ALPN) {
		return nil, store.RefusedError{Err: fmt.Errorf("the member does not agree to speak %s over TLS (ALPN)", wanted[0])}
	}
	s.pipe.Conn = nil
	return func(inner store.Conn, opened []byte) store.Conn {
		return &secured{Conn: inner, session: s, opened: opened}
	}, nil
}

// session is TLS on a connection whose handshake is over.
type session struct {
	tls  *tls.Conn
	pipe *pipe
}

// pipe is what crypto/tls takes for the network: that, during the handshake, and memory from then on.
type pipe struct {
	net.Conn
	in  []byte // read from the network, and not yet by TLS
	out []byte // written by TLS, and not yet to the network
}

// errNothingYet tells TLS that there is no more input for now; for crypto/tls, only a net.Error that is temporary may
// pass.
var errNothingYet = os.ErrDeadlineExceeded

func (p *pipe) Read(b []byte) (int, error) {
	if p.Conn != nil {
		return p.Conn.Read(b)
	}
	if len(p.in) == 0 {
		return 0, errNothingYet
	}
	n := copy(b, p.in)
	p.in = p.in[n:]
	return n, nil
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.Conn != nil {
		return p.Conn.Write(b)
	}
	p.out = append(p.out, b...)
	return len(b), nil
}

// SetWriteDeadline implements net.Conn; memory takes everything at once.
func (p *pipe) SetWriteDeadline(at time.Time) error {
	if p.Conn != nil {
		return p.Conn.SetWriteDeadline(at)
	}
	return nil
}

// secured is a protocol's connection over TLS: it opens the bytes read, and seals the bytes to write.
type secured struct {
	store.Conn
	*session
	opened []byte  // room for what was opened
	sealed []piece // what pipe.out consists of, in order; the first may have been written in part
	known  int     // bytes of pipe.out that are in a piece
	ahead  int     // bytes of the protocol's output that were sealed and are not yet written
	over   bool    // the member has ended its direction
}

// piece is a record: its content, and what of it is not yet written, in bytes. What TLS says by itself has no content.
type piece struct{ content, left int }

func (s *secured) Feed(b []byte) error {
	s.pipe.in = b
	for {
		n, err := 0, error(nil)
		for err == nil && n < len(s.opened) {
			var more int
			more, err = s.tls.Read(s.opened[n:])
			n += more
		}
		if n > 0 {
			if err := s.Conn.Feed(s.opened[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case err == errNothingYet:
			return nil
		case errors.Is(err, io.EOF): // the end of the connection follows
			s.over = true
			return nil
		default:
			return tlsProblem(err)
		}
	}
}

func (s *secured) Closing() bool { return s.over || s.Conn.Closing() }

func (s *secured) Start(call store.Call, request *store.Request, scratch *[]byte) bool {
	return !s.over && s.Conn.Start(call, request, scratch)
}

func (s *secured) Output() []byte {
	s.note(0)
	for len(s.pipe.out) < enoughSealed {
		content := s.Conn.Output()[s.ahead:]
		content = content[:min(len(content), record)]
		if len(content) == 0 {
			break
		}
		if _, err := s.tls.Write(content); err != nil {
			break // TLS has failed, and has left behind what it says of that
		}
		s.ahead += len(content)
		s.note(len(content))
	}
	return s.pipe.out
}

// Waits implements store.Conn. What is sealed already, or said by TLS itself, does not wait.
func (s *secured) Waits() bool { return len(s.pipe.out) == 0 && s.Conn.Waits() }

// note puts what TLS has written since into a piece with that content.
func (s *secured) note(content int) {
	if length := len(s.pipe.out) - s.known; length > 0 {
		s.sealed = append(s.sealed, piece{content, length})
		s.known += length
	}
}

// Wrote implements store.Conn. The protocol gets to know of a record when all of it was written: a member can open no
// part of one, so a request that ends in a record which was cut off did not happen.
func (s *secured) Wrote(n int) {
	s.pipe.out = append(s.pipe.out[:0], s.pipe.out[n:]...)
	s.known -= n
	whole, content := 0, 0
	for ; whole < len(s.sealed) && s.sealed[whole].left <= n; whole++ {
		n -= s.sealed[whole].left
		content += s.sealed[whole].content
	}
	s.sealed = append(s.sealed[:0], s.sealed[whole:]...)
	if len(s.sealed) > 0 {
		s.sealed[0].left -= n
	}
	if content > 0 {
		s.ahead -= content
		s.Conn.Wrote(content)
	}
}

func (s *secured) Leave(err error) {
	s.Conn.Leave(err)
	s.Output()
	_ = s.tls.CloseWrite() // it is written to memory
}

// Files secures connections with the CA and the client's certificate that s names, with TLS 1.2 or 1.3.
func Files(s *spec.Spec, alpn string) (store.Security, error) {
	authorities, err := spec.ReadSecret(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("read the CA: %s holds no certificate in PEM form", s.CAFile)
	}
	if s.CertFile != "" {
		own, err := certificate(s)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return New(config, alpn), nil
}

func certificate(s *spec.Spec) (tls.Certificate, error) {
	chain, err := spec.ReadSecret(s.CertFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := spec.ReadSecret(s.KeyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	own, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return own, fmt.Errorf("%s and %s: %w", s.CertFile, s.KeyFile, err)
	}
	return own, nil
}
