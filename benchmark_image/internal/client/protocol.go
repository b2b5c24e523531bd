package client

import (
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/zookeeper"
)

// protocol is how the members that s names are spoken to.
func protocol(s *spec.Spec, secure Securer) (store.Protocol, error) {
	switch s.Store {
	case spec.ZooKeeper:
		return zookeeper.New(), nil
	default:
		return etcdProtocol(s, secure)
	}
}

// etcdProtocol has the certificates and the user that s asks for.
func etcdProtocol(s *spec.Spec, secure Securer) (etcd.Protocol, error) {
	var p etcd.Protocol
	var err error
	if s.Secured() {
		if p.Secured, err = secure(s, etcd.ALPN); err != nil {
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
