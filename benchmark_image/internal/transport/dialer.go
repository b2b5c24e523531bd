package transport

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leastUserTimeout keeps a request timeout of milliseconds from ending connections whose packets are only late.
const leastUserTimeout = time.Second

// newDialer opens connections to members that are given up when the other side's kernel acknowledges nothing for as long as
// a request may take: all requests under way have then ended by their deadlines. Otherwise a connection over a link that
// was cut would stay useless after its repair until TCP sends again, up to 120 s later (tcp(7), TCP_USER_TIMEOUT).
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
