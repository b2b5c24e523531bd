package load

import (
	"fmt"
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm wakes one goroutine at a given time. Go's own timers are too coarse for a schedule: the runtime sleeps in
// epoll_wait(2), whose timeout is in whole milliseconds. A timerfd that the same epoll_wait watches wakes it to the
// microsecond, without another thread and without spinning.
type alarm struct {
	file *os.File
	raw  syscall.RawConn
	fd   int
	try  func(uintptr) bool
}

func newAlarm() (*alarm, error) {
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

// set makes wait return after d. It is a system call that does not block, and its only error is that the alarm is
// closed, which wait tells too.
func (a *alarm) set(d time.Duration) {
	value := unix.NsecToTimespec(int64(min(max(d, 1), math.MaxInt64/2)))
	_ = unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: value}, nil)
}

// wait returns at the time that was set last, or earlier with an error when the alarm is closed or interrupted.
func (a *alarm) wait() error { return a.raw.Read(a.try) }

// interrupt makes the current and every later wait return.
func (a *alarm) interrupt() error { return a.file.SetReadDeadline(time.Unix(1, 0)) }

// close closes the timer. wait must not be running.
func (a *alarm) close() error { return a.file.Close() }
