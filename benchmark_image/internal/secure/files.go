package secure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
)

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
