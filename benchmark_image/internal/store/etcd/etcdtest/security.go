package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/assert"
)

// The time of certificates: tests may run in the time of testing/synctest, which begins in the year 2000.
var (
	long  = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	never = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

type Authority struct {
	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.certificate, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "a test's CA"}, NotAfter: never,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key := assert.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	template.SerialNumber, template.NotBefore = assert.Got(rand.Int(rand.Reader, big.NewInt(1<<62)))(a.t), long
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	encoded := assert.Got(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer))(a.t)
	return assert.Got(x509.ParseCertificate(encoded))(a.t), key
}

// Issue makes a certificate for servers and clients alike, for these host names and addresses. It has expired if valid
// is negative, and does not expire otherwise.
func (a *Authority) Issue(valid time.Duration, hosts ...string) tls.Certificate {
	end := never
	if valid < 0 {
		end = long.Add(-valid)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, key := a.sign(template)
	return tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}
}

// Pool holds the CA's own certificate.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Server is what members are secured with that know of no name but 127.0.0.1, and want a certificate of the CA from
// clients.
func (a *Authority) Server(version uint16) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{a.Issue(time.Hour, "127.0.0.1")}, MinVersion: version, MaxVersion: version,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool(),
	}
}

// Secured is the option of members that are secured so.
func Secured(config *tls.Config) grpc.ServerOption { return grpc.Creds(credentials.NewTLS(config)) }

// Files writes the CA's certificate, and a new certificate with its key, as PEM, below a folder of the test.
func (a *Authority) Files(hosts ...string) (ca, certificate, key string) {
	a.t.Helper()
	issued := a.Issue(time.Hour, hosts...)
	folder := a.t.TempDir()
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(folder, name)
		assert.OK(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
		return path
	}
	return write("ca.pem", "CERTIFICATE", a.certificate.Raw), write("cert.pem", "CERTIFICATE", issued.Certificate[0]),
		write("key.pem", "PRIVATE KEY", assert.Got(x509.MarshalPKCS8PrivateKey(issued.PrivateKey))(a.t))
}

// Users makes members ask for a token, which one user gets for a password.
type Users struct {
	Name, Password string

	mu     sync.Mutex
	tokens map[string]bool
	logins int
	denied bool
}

// Option is what makes members ask this.
func (u *Users) Option() grpc.ServerOption { return grpc.ChainUnaryInterceptor(u.admit) }

func (u *Users) locked(do func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	do()
}

// Logins is how many tokens there were.
func (u *Users) Logins() (n int) {
	u.locked(func() { n = u.logins })
	return n
}

// Expire makes all tokens so far invalid.
func (u *Users) Expire() { u.locked(func() { clear(u.tokens) }) }

// ChangePassword makes all tokens so far, and the password, invalid.
func (u *Users) ChangePassword(password string) {
	u.locked(func() { u.Password = password })
	u.Expire()
}

// Deny takes all permissions from the user.
func (u *Users) Deny() { u.locked(func() { u.denied = true }) }

func (u *Users) admit(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	if login, ok := request.(*etcdserverpb.AuthenticateRequest); ok {
		return u.logIn(login)
	}
	fields, _ := metadata.FromIncomingContext(ctx)
	u.mu.Lock()
	tokens := fields.Get("token")
	known, denied := len(tokens) == 1 && u.tokens[tokens[0]], u.denied
	u.mu.Unlock()
	switch {
	case len(tokens) == 0:
		return nil, status.Error(codes.InvalidArgument, "etcdserver: user name is empty")
	case !known:
		return nil, status.Error(codes.Unauthenticated, "etcdserver: invalid auth token")
	case denied && info.FullMethod != etcdserverpb.Maintenance_Status_FullMethodName:
		return nil, status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	}
	return handler(ctx, request)
}

func (u *Users) logIn(r *etcdserverpb.AuthenticateRequest) (any, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.Name != u.Name || r.Password != u.Password {
		return nil, status.Error(codes.InvalidArgument, "etcdserver: authentication failed, invalid user ID or password")
	}
	u.logins++
	token := fmt.Sprintf("token-%d", u.logins)
	if u.tokens == nil {
		u.tokens = make(map[string]bool)
	}
	u.tokens[token] = true
	return &etcdserverpb.AuthenticateResponse{Token: token}, nil
}
