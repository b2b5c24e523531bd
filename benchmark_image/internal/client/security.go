package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"

	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd"
)

// maxSecret bounds a file with certificates, a key or a password, in bytes.
const maxSecret = 1 << 20

// protocol is how the members that s names are spoken to: with the certificates and as the user that it asks for.
func protocol(s *spec.Spec) (etcd.Protocol, error) {
	var p etcd.Protocol
	var err error
	if s.CAFile != "" {
		if p.Secured, err = secure(s); err != nil {
			return p, err
		}
	}
	if s.User != "" {
		password, err := password(s)
		if err != nil {
			return p, err
		}
		p.User = &etcd.User{Name: s.User, Password: password}
	}
	return p, nil
}

func secure(s *spec.Spec) (*tls.Config, error) {
	authorities, err := secret(s.CAFile)
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
	return etcd.Secure(config), nil
}

func certificate(s *spec.Spec) (tls.Certificate, error) {
	chain, err := secret(s.CertFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := secret(s.KeyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	own, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return own, fmt.Errorf("%s and %s: %w", s.CertFile, s.KeyFile, err)
	}
	return own, nil
}

// password is the first line of the file that s names, or what the environment has.
func password(s *spec.Spec) (string, error) {
	if s.PasswordFile == "" {
		if found := os.Getenv(spec.PasswordVariable); found != "" {
			return found, nil
		}
		return "", fmt.Errorf("log in as %q: there is neither a password file nor the environment variable %s", s.User, spec.PasswordVariable)
	}
	content, err := secret(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of %q: %w", s.User, err)
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("read the password of %q: the first line of %s is empty", s.User, s.PasswordFile)
	}
	return string(line), nil
}

func secret(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = file.Close() // it was only read
	}()
	content, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err == nil && len(content) > maxSecret {
		err = fmt.Errorf("%s is larger than %d bytes", strings.ToValidUTF8(name, "?"), maxSecret)
	}
	return content, err
}
