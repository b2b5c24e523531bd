package world

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The files here never block, so Go's scheduler need not know of these calls. When it does, each first call after
// a rest wakes a thread of Go's runtime that watches for calls that take long, and looks 50 times in a millisecond
// before it sleeps again: with one request at a time that takes nearly half of the CPU time.

// write is write(2) to a file that does not block.
func write(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)))
	return result(n, errno)
}

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

// BoundSilence ends the connection of a socket of this machine once the other side's kernel has acknowledged nothing for
// so many milliseconds.
func BoundSilence(fd, ms int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms); err != nil {
		return fmt.Errorf("bound how long a connection may be silent: %w", err)
	}
	return nil
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
