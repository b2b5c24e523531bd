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
	family := unix.AF_INET6
	if o.address.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = l.prepare(fd); err == nil {
		err = connect(fd, o.address)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// prepare sets the options of a new socket.
func (l *loop) prepare(fd int) error {
	if err := l.silence.bound(fd); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	// The last part of TCP's handshake leaves with the first output, and not by itself.
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0))
}

// connect begins to connect a socket to a member.
func connect(fd int, to netip.AddrPort) error {
	var address unix.Sockaddr
	if to.Addr().Is4() {
		address = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		address = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	if err := unix.Connect(fd, address); err != nil && err != unix.EINPROGRESS {
		return os.NewSyscallError("connect", err)
	}
	// While no member listens on this machine, the kernel may have chosen the member's own port for the socket: then
	// TCP connects it to itself, by a simultaneous open.
	own, err := unix.Getsockname(fd)
	if err == nil && addressOf(own) == to {
		err = unix.ECONNREFUSED
	}
	return os.NewSyscallError("connect", err)
}

func addressOf(address unix.Sockaddr) netip.AddrPort {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// begin writes the protocol's first output, which shows whether the socket is connected.
func (l *loop) begin(k *link) {
	first := k.protocol.Output()
	if len(first) == 0 {
		return // epoll will tell
	}
	switch n, err := send(k.fd, first, 0); {
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
		code, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
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
