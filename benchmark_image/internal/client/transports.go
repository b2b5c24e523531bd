package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"containernet-env/benchmark_image/internal/direct"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/membership"
)

// Transport is what a benchmark needs of its connections to the members.
type Transport interface {
	load.Transport
	Astray() error
	Connections() int
	LeaderChanges() []membership.LeaderChange
	Leader() string
	Unreachable() []error
	Close()
}

// Transports opens the connections, by the value of --transport. Package grpcgo adds the one that is not here.
var Transports = map[string]func(context.Context, membership.Options) (Transport, error){
	"h2": func(ctx context.Context, o membership.Options) (Transport, error) {
		t, err := direct.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return t, nil
	},
}

// elsewhere names the programs that have the other transports. grpc-go is three quarters of a program that has it,
// and its tables alone need more memory than all of a load: a program that does not use it is better off without.
var elsewhere = map[string]string{"grpc": "benchmark-client-grpc"}

// become replaces this process by the program that has the transport. It returns only with what kept it from doing so.
func become(program string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find %s: %w", program, err)
	}
	path := filepath.Join(filepath.Dir(self), program)
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, append([]string{path}, args...), os.Environ()))
}
