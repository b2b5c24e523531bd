package world

import (
	"fmt"
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm implements Alarm. Go's own timers are too coarse for a schedule: the runtime sleeps in
// epoll_wait(2), whose timeout is in whole milliseconds. A timerfd that the same epoll_wait watches wakes it to the
// microsecond, without another thread and without spinning.
type alarm struct {
	file *os.File
	raw  syscall.RawConn
	fd   int
	try  func(uintptr) bool
}

func (r *reality) NewAlarm() (Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	// The runtime's poller watches a non-blocking descriptor; File.Fd would make it blocking.
	a := &alarm{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	if a.raw, err = a.file.SyscallConn(); err != nil {
		_ = a.file.Close()
		return nil, fmt.Errorf("prepare a timer: %w", err)
	}
	// File.Read makes system calls that the runtime knows of: each first one after a rest wakes a thread of the runtime
	// that looks 50 times in a millisecond whether it has returned.
	a.try = func(fd uintptr) bool {
		var expirations [8]byte
		_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expirations)), uintptr(len(expirations)))
		return errno != unix.EAGAIN
	}
	return a, nil
}

// Set is a system call that does not block; its only error is that the alarm is closed, which Wait reports too.
func (a *alarm) Set(d time.Duration) {
	value := unix.NsecToTimespec(int64(min(max(d, 1), math.MaxInt64/2)))
	_ = unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: value}, nil)
}

func (a *alarm) Wait() error { return a.raw.Read(a.try) }

func (a *alarm) Interrupt() error { return a.file.SetReadDeadline(time.Unix(1, 0)) }

func (a *alarm) Close() error { return a.file.Close() }
