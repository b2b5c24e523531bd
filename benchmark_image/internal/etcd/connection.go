package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"containernet-env/benchmark_image/internal/membership"
)

// window is the HTTP/2 flow control window for answers, in bytes. A fixed one spares gRPC's pings that
// estimate the bandwidth-delay product; 4 MiB keep 1 Gbit/s busy over a round trip of 30 ms.
const window = 4 << 20

// handshake bounds one attempt to connect, in which TCP's first retransmission comes after 1 s.
const handshake = 3 * time.Second

// connection is one TCP connection to one member; it is opened again when it is lost.
type connection struct {
	member    string
	dialer    *net.Dialer
	client    *grpc.ClientConn
	dialError atomic.Pointer[error]
}

func newConnection(member string, requestTimeout time.Duration) (*connection, error) {
	c := &connection{member: member, dialer: membership.Dialer(requestTimeout)}
	client, err := grpc.NewClient("passthrough:///"+member,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(c.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: handshake,
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithSharedWriteBuffer(true),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare a connection to %s: %w", member, err)
	}
	c.client = client
	return c, nil
}

// dial keeps the error of the latest attempt, which gRPC's connection state does not tell.
func (c *connection) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		c.dialError.Store(&err)
		return nil, err
	}
	c.dialError.Store(nil)
	return conn, nil
}

func (c *connection) ready() bool { return c.client.GetState() == connectivity.Ready }

// wait opens the connection and returns when it is ready, or at the end of ctx with what went wrong.
func (c *connection) wait(ctx context.Context) error {
	for {
		state := c.client.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Idle {
			c.client.Connect()
		}
		if c.client.WaitForStateChange(ctx, state) {
			continue
		}
		if last := c.dialError.Load(); last != nil && !errors.Is(*last, context.Canceled) {
			return fmt.Errorf("%s: %s", c.member, cause(*last))
		}
		return fmt.Errorf("%s: the member accepts connections but does not speak HTTP/2 on them", c.member)
	}
}

// cause leaves out the address that Go puts in front of what went wrong.
func cause(err error) string {
	if operation := new(net.OpError); errors.As(err, &operation) {
		err = operation.Err
	}
	return clean(err.Error())
}

func (c *connection) close() {
	// The only error is that it is closed already.
	_ = c.client.Close()
}
