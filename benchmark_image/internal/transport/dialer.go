package transport

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// newDialer opens connections to members that are given up when the other side's kernel acknowledges nothing for as
// long as a request may take: all requests under way have then ended by their deadlines. Otherwise a connection over a
// link that was cut would stay useless after its repair until TCP sends again, up to 120 s later (tcp(7),
// TCP_USER_TIMEOUT).
func newDialer(requestTimeout time.Duration) *net.Dialer {
	limit := int(max(requestTimeout, leastUserTimeout) / time.Millisecond)
	return &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, limit)
		})
		if controlErr != nil {
			err = controlErr
		}
		if err != nil {
			return fmt.Errorf("bound how long a connection may be silent: %w", err)
		}
		return nil
	}}
}
