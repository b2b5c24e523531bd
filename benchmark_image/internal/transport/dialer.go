package transport

import (
	"net"
	"net/netip"
	"syscall"
	"time"

	"containernet-env/benchmark_image/internal/world"
)

// leastUserTimeout keeps a request timeout of milliseconds from ending connections whose packets are only late.
const leastUserTimeout = time.Second

// Permit tells why a connection to an address must not be opened for an endpoint; nil: it may.
type Permit func(endpoint string, address netip.AddrPort) error

// dialerOf is a dialer for one endpoint that connects only where it may. The kernel is about to connect to the address
// that is judged: no name is looked up in between.
func dialerOf(dialer *net.Dialer, endpoint string, permit Permit) *net.Dialer {
	if permit == nil {
		return dialer
	}
	guarded, control := *dialer, dialer.Control
	guarded.Control = func(network, address string, raw syscall.RawConn) error {
		number, err := netip.ParseAddrPort(address)
		if err == nil {
			err = permit(endpoint, number)
		}
		if err != nil {
			return err
		}
		return control(network, address, raw)
	}
	return &guarded
}

// silence is for how many milliseconds a member's kernel may acknowledge nothing until the connection is given up: as
// long as a request may take, so that all requests under way have ended by their deadlines. Otherwise a connection over
// a link that was cut would stay useless after its repair until TCP sends again, up to 120 s later (tcp(7),
// TCP_USER_TIMEOUT).
type silence int

func newSilence(requestTimeout time.Duration) silence {
	return silence(max(requestTimeout, leastUserTimeout) / time.Millisecond)
}

// newDialer opens connections that are not kept alive, like those that the loop opens: idle ones cost nothing.
func newDialer(limit silence) *net.Dialer {
	return &net.Dialer{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if controlErr := raw.Control(func(fd uintptr) { err = world.BoundSilence(int(fd), int(limit)) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
}
