package device

import (
	"fmt"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
	"containernet-env/link_emulator/stamp"
)

// Fake is one end of a socket pair that keeps frame boundaries. It uses real file descriptors, so that the event loop
// can be tested without root, and satisfies the contract of Device.
type Fake struct {
	frameFD
	stamps   *stamp.Ring // of what is read here
	stamping *stamp.Ring // of what is written here
}

// NewFakePair makes both ends: the emulator's and the host's. stamps: the frames of the host are stamped.
func NewFakePair(stamps bool) (emulator, host *Fake, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	emulator, host = &Fake{frameFD: frameFD(fds[0])}, &Fake{frameFD: frameFD(fds[1])}
	if stamps {
		emulator.stamps = stamp.NewInMemory(StampedFrames)
		host.stamping = emulator.stamps
	}
	return emulator, host, nil
}

// Stamps implements Device.
func (f *Fake) Stamps() *stamp.Ring { return f.stamps }

// Write stamps the frame as a TAP's program does, and drops it where the program would.
func (f *Fake) Write(frame []byte) unix.Errno {
	if f.stamping != nil && !f.stamping.Put(frame, realtime.Now()) {
		return 0
	}
	return f.frameFD.Write(frame)
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
