package client

import (
	"context"

	"containernet-env/benchmark_image/internal/direct"
	"containernet-env/benchmark_image/internal/etcd"
	"containernet-env/benchmark_image/internal/load"
)

// transport is what a benchmark needs of its connections to the members.
type transport interface {
	load.Transport
	Connections() int
	LeaderChanges() []etcd.LeaderChange
	Leader() string
	Unreachable() []error
	Close()
}

// transports opens the connections, by the value of --transport.
var transports = map[string]func(context.Context, etcd.Options) (transport, error){
	"h2": func(ctx context.Context, o etcd.Options) (transport, error) {
		t, err := direct.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return t, nil
	},
	"grpc": func(ctx context.Context, o etcd.Options) (transport, error) {
		t, err := etcd.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return t, nil
	},
}
