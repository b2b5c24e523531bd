// Package grpcgo gives the client the transport that goes through grpc-go; importing it is enough.
package grpcgo

import (
	"context"

	"containernet-env/benchmark_image/internal/client"
	"containernet-env/benchmark_image/internal/etcd"
	"containernet-env/benchmark_image/internal/membership"
)

func init() {
	client.Transports["grpc"] = func(ctx context.Context, o membership.Options) (client.Transport, error) {
		t, err := etcd.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}
