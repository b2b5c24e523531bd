package transport

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The files here never block, so Go's scheduler need not know of these calls. When it does, each first call after
// a rest wakes a thread of Go's runtime that watches for calls that take long, and looks 50 times in a millisecond
// before it sleeps again: with one request at a time that takes nearly half of the CPU time.

// read is read(2) of a file that does not block.
func read(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)))
	return result(n, errno)
}

// write is write(2) to a file that does not block.
func write(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)))
	return result(n, errno)
}

// receive is recvfrom(2) on a socket that does not block.
func receive(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), 0, 0, 0)
	return result(n, errno)
}

// send is sendto(2) on a socket that does not block and is connected, with flags of send(2).
func send(fd int, b []byte, flags int) (int, error) {
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
