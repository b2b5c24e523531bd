package transport

import (
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// opening is a connection that the loop is to open.
type opening struct {
	conn    *conn
	address netip.AddrPort
}

// opensAtOnce is how many connections the loop opens before it looks at the others: a member whose queue of new
// connections is full lets later ones wait for a second.
const opensAtOnce = 64

// open starts some of the attempts that are due. Go's dialer would take a goroutine, a second epoll, a copy of the
// socket and twice as many system calls for each.
func (l *loop) open() {
	now := min(len(l.toOpen), opensAtOnce)
	for _, o := range l.toOpen[:now] {
		start := l.now()
		fd, err := l.connect(o)
		if err != nil {
			o.conn.attemptFailed(err)
			continue
		}
		k := o.conn.adopt(fd, nil, start)
		if k == nil {
			continue
		}
		// On loopback the member's kernel has accepted already.
		k.connecting = true
		l.begin(k)
	}
	l.toOpen = slices.Delete(l.toOpen, 0, now)
}

// connect gives a socket that is being connected.
func (l *loop) connect(o opening) (fd int, err error) {
	if l.permit != nil {
		if err := l.permit(o.conn.member, o.address); err != nil {
			return -1, err
		}
	}
	return l.world.Connect(o.address, int(l.silence))
}

// begin writes the protocol's first output, which shows whether the socket is connected.
func (l *loop) begin(k *link) {
	first := k.protocol.Output()
	if len(first) == 0 {
		return // epoll will tell
	}
	switch n, err := l.world.Send(k.fd, first, 0); {
	case err == nil:
		k.protocol.Wrote(n)
		k.connected()
	case err != unix.EAGAIN && err != unix.EINTR:
		l.lose(k, os.NewSyscallError("connect", err))
	}
}

// hasConnected takes what epoll tells of a socket that is being connected.
func (l *loop) hasConnected(k *link, events uint32) bool {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		if err := l.world.Failure(k.fd); err != nil {
			l.lose(k, os.NewSyscallError("connect", err))
			return false
		}
	} else if events&unix.EPOLLOUT == 0 {
		return false
	}
	k.connected()
	return true
}

// expect gives up a link that is not ready in time. All share one timer.
func (l *loop) expect(k *link) {
	at := len(l.expected)
	for at > 0 && l.expected[at-1].readyBy > k.readyBy {
		at--
	}
	l.expected = slices.Insert(l.expected, at, k)
	if at == 0 {
		l.after(k.readyBy-l.now(), l.giveUp)
	}
}

// giveUp ends the attempts whose time is over.
func (l *loop) giveUp() {
	given := 0
	for ; given < len(l.expected); given++ {
		k := l.expected[given]
		if k.dead || !k.connecting && k.protocol.Ready() {
			continue
		}
		if k.readyBy > l.now() {
			l.after(k.readyBy-l.now(), l.giveUp)
			break
		}
		if k.connecting {
			l.lose(k, os.ErrDeadlineExceeded)
		} else {
			l.lose(k, l.errSpeech)
		}
	}
	l.expected = slices.Delete(l.expected, 0, given)
}
