package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller implements Poller: one goroutine for all connections costs a load less than one for each, for there is nothing
// to switch between, and no lock to take.
type poller struct {
	epoll int
	// These two are never read: for an edge-triggered epoll each expiration and each write is another event.
	timer  int // a timerfd: epoll's own timeout counts whole milliseconds
	wakeup int // an eventfd

	// The goroutine waits in Go's own poller for the epoll to become ready, so that it holds no thread.
	file  *os.File
	raw   syscall.RawConn
	try   func(uintptr) bool
	ready int
	err   error
	slept bool // the last wait found nothing at first

	events [MaxEvents]unix.EpollEvent
}

func (r *reality) NewPoller() (Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll: %w", err)
	}
	p := &poller{epoll: epoll, timer: -1, wakeup: -1}
	if err := p.prepare(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *poller) prepare() (err error) {
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("create a timer: %w", err)
	}
	if p.wakeup, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("create an eventfd: %w", err)
	}
	if err = p.Add(p.timer, TimerToken, 0); err == nil {
		err = p.Add(p.wakeup, WakeToken, 0)
	}
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(p.epoll, true); err != nil {
		return fmt.Errorf("prepare an epoll: %w", err)
	}
	p.file = os.NewFile(uintptr(p.epoll), "epoll")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return fmt.Errorf("prepare an epoll: %w", err)
	}
	p.try = func(uintptr) bool {
		p.ready, p.err = pollNow(p.epoll, p.events[:])
		for errors.Is(p.err, unix.EINTR) {
			p.ready, p.err = pollNow(p.epoll, p.events[:])
		}
		found := p.ready != 0 || p.err != nil
		p.slept = p.slept || !found
		return found
	}
	return nil
}

func (p *poller) Close() {
	for _, fd := range []int{p.timer, p.wakeup} {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing was written to it
		}
	}
	if p.file != nil {
		_ = p.file.Close()
	} else {
		_ = unix.Close(p.epoll)
	}
}

func (p *poller) Add(fd int, token, generation int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: token,
		Pad: generation}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch a file: %w", err)
	}
	return nil
}

func (p *poller) Wait(block bool) (events []unix.EpollEvent, slept bool, err error) {
	p.slept = false
	if !block {
		p.try(0)
	} else if err := p.raw.Read(p.try); err != nil {
		return nil, p.slept, fmt.Errorf("wait for an epoll: %w", err)
	}
	if p.err != nil {
		return nil, p.slept, fmt.Errorf("wait for an epoll: %w", p.err)
	}
	return p.events[:p.ready], p.slept, nil
}

// leastSleep is how long a wait for the timer lasts at least: what becomes due meanwhile is done together. To wake up
// for each request of 20,000/s or more would take most of the loop's time.
const leastSleep = 50 * time.Microsecond

func (p *poller) SetTimer(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, leastSleep)))}
	if err := unix.TimerfdSettime(p.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	return nil
}

func (p *poller) Wake() {
	one := [8]byte{1}
	// It cannot fail: the counter is far from its end.
	_, _ = unix.Write(p.wakeup, one[:])
}

// The files here never block, so Go's scheduler need not know of these calls. When it does, each first call after
// a rest wakes a thread of Go's runtime that watches for calls that take long, and looks 50 times in a millisecond
// before it sleeps again: with one request at a time that takes nearly half of the CPU time.

func (*reality) Receive(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), 0, 0, 0)
	return result(n, errno)
}

func (*reality) Send(fd int, b []byte, flags int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), uintptr(flags|unix.MSG_NOSIGNAL), 0, 0)
	return result(n, errno)
}

// pollNow is epoll_pwait(2) that does not wait.
func pollNow(epoll int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return result(n, errno)
}

func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func (*reality) Close(fd int) {
	_ = unix.Close(fd) // what was not written is lost either way
}

func (*reality) Connect(to netip.AddrPort, silenceMs int) (fd int, err error) {
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = prepare(fd, silenceMs); err == nil {
		err = connect(fd, to)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// prepare sets the options of a new socket.
func prepare(fd, silenceMs int) error {
	if err := BoundSilence(fd, silenceMs); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	// The last part of TCP's handshake leaves with the first output, and not by itself.
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0))
}

// BoundSilence ends the connection of a socket of this machine once the other side's kernel has acknowledged nothing
// for so many milliseconds.
func BoundSilence(fd, ms int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms); err != nil {
		return fmt.Errorf("bound how long a connection may be silent: %w", err)
	}
	return nil
}

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

func (*reality) Failure(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

func (*reality) Dial(ctx context.Context, dialer *net.Dialer, endpoint string) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", endpoint)
}

func (*reality) Detach(connection net.Conn) (fd int, err error) {
	raw, err := connection.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	copyErr := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if copyErr != nil {
		return -1, copyErr
	}
	return fd, err
}
