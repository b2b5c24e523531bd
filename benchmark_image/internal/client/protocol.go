package client

import (
	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/store/zookeeper"
)

// protocol is how the members that s names are spoken to.
func protocol(s *spec.Spec, secure Securer) (store.Protocol, error) {
	switch s.Store {
	case spec.ZooKeeper:
		return zookeeper.New(s.Chroot), nil
	case spec.Consul:
		secured, err := secured(s, secure, http1.ALPN)
		if err != nil {
			return nil, err
		}
		token, err := token(s)
		return consul.Protocol{Secured: secured, Token: token, Default: s.Consistency == spec.Relaxed}, err
	case spec.HTTP:
		secured, err := secured(s, secure, http1.ALPN)
		return &keyvalue.Protocol{Secured: secured, Put: s.PutPath, Get: s.GetPath, Written: s.WrittenCodes(),
			Found: s.FoundCodes(), Absent: s.AbsentKeyCodes()}, err
	}
	return etcdProtocol(s, secure)
}

// secured is what the connections of a load are secured with; nil: they are plain.
func secured(s *spec.Spec, secure Securer, alpn string) (store.Security, error) {
	if !s.Secured() {
		return nil, nil
	}
	return secure(s, alpn)
}

// etcdProtocol has the certificates and the user that s asks for.
func etcdProtocol(s *spec.Spec, secure Securer) (p etcd.Protocol, err error) {
	if p.Secured, err = secured(s, secure, etcd.ALPN); err != nil {
		return p, err
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
