// Package device is the interface to the kernel: TAP devices.
package device

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/stamp"
)

// Device is a network interface that is read and written one Ethernet frame per call.
//
// Read and Write never block and never allocate. Both are called by one thread only; Close by any thread, after the
// last other call. Read fills buffer with one frame and returns its length; EAGAIN means that there is none now, any
// other errno that the interface has gone. Write takes the whole frame or nothing.
type Device interface {
	FD() int // readable while Read would return a frame or an error other than EAGAIN
	Read(buffer []byte) (int, unix.Errno)
	Write(frame []byte) unix.Errno
	Close() error
	Stamps() *stamp.Ring // of the frames that Read returns; nil: there are none
	KernelDrops() (Drops, error)
}

// Drops are the kernel's counters of frames that it dropped.
type Drops struct {
	Queue   uint64 `json:"queue"`   // sent by the host; the TAP's queue was full: the emulator did not read fast enough
	Receive uint64 `json:"receive"` // written by the emulator, not accepted by the host's stack
}

// Since is the difference from an earlier reading.
func (d Drops) Since(earlier Drops) Drops {
	return Drops{Queue: d.Queue - earlier.Queue, Receive: d.Receive - earlier.Receive}
}

// FrameFD is an fd that carries one frame per read and write: a TAP or a socket. It has neither stamps nor counters.
//
// The system calls are raw: the caller is pinned to its thread (see package loop) and the calls do not block, so the Go
// scheduler need not know about them.
type FrameFD int

// FD implements Device.
func (fd FrameFD) FD() int { return int(fd) }

// Read implements Device.
func (fd FrameFD) Read(buffer []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buffer))),
		uintptr(len(buffer)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Write implements Device.
func (fd FrameFD) Write(frame []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))),
		uintptr(len(frame)))
	return errno
}

// Close implements Device.
func (fd FrameFD) Close() error { return unix.Close(int(fd)) }

// Stamps implements Device.
func (FrameFD) Stamps() *stamp.Ring { return nil }

// KernelDrops implements Device.
func (FrameFD) KernelDrops() (Drops, error) { return Drops{}, nil }
