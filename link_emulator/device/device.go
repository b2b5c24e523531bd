// Package device is the edge to the kernel: TAP interfaces, and a fake of them for tests.
package device

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device is a network interface of which whole Ethernet frames are read and written, one per call.
//
// Read and Write never block and never allocate. Both are called by one thread only; Close by any, after the last of the
// others. Read fills buffer with one frame and returns its length; EAGAIN means that there is none now. Write
// takes the whole frame or nothing. Any other errno of Read means that the interface has gone.
type Device interface {
	FD() int // readable exactly while Read would return a frame or has bad news
	Read(buffer []byte) (int, unix.Errno)
	Write(frame []byte) unix.Errno
	Close() error
	KernelDrops() (Drops, error)
}

// Drops are frames that the kernel lost beside us, as it counts them.
type Drops struct {
	Queue   uint64 // sent by the host, lost because the TAP's queue was full (the emulator did not read fast enough)
	Receive uint64 // written by us, not taken by the host's stack
}

// Since is what was lost after earlier was read.
func (d Drops) Since(earlier Drops) Drops {
	return Drops{Queue: d.Queue - earlier.Queue, Receive: d.Receive - earlier.Receive}
}

// frameFD is an fd that carries one frame per read and write: a TAP or a packet socket pair.
//
// The system calls are raw: the caller is pinned to its thread (see package loop) and the calls do not block, so the Go
// scheduler has nothing to know about them.
type frameFD int

func (fd frameFD) FD() int { return int(fd) }

func (fd frameFD) Read(buffer []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buffer))), uintptr(len(buffer)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (fd frameFD) Write(frame []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))), uintptr(len(frame)))
	return errno
}

func (fd frameFD) Close() error { return unix.Close(int(fd)) }
