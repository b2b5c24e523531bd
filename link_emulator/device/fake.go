package device

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Fake is one end of a socket pair that keeps frame boundaries. It uses real file descriptors, so that the event loop
// can be tested without root, and satisfies the contract of Device.
type Fake struct{ frameFD }

// NewFakePair makes both ends: the emulator's and the host's.
func NewFakePair() (emulator, host *Fake, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return &Fake{frameFD(fds[0])}, &Fake{frameFD(fds[1])}, nil
}

// Read is a frame or EAGAIN; the end of the stream (the other end was closed) is EBADFD, as a TAP that was deleted
// answers.
func (f *Fake) Read(buffer []byte) (int, unix.Errno) {
	n, errno := f.frameFD.Read(buffer)
	if n == 0 && errno == 0 {
		return 0, unix.EBADFD
	}
	return n, errno
}

// KernelDrops: a socket pair blocks instead of dropping.
func (f *Fake) KernelDrops() (Drops, error) { return Drops{}, nil }
