package loop

import (
	"cmp"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// Kernel is what a loop needs of the operating system besides its devices. Package simulate has another one, in
// simulated time. All methods but Wake belong to the data thread; none of them allocates.
type Kernel interface {
	Now() int64 // CLOCK_MONOTONIC, ns
	// Wait fills events as epoll_wait(2) does; Fd is a descriptor that is watched, TimerExpired or Woken, each once.
	// relaxed: through the Go scheduler.
	Wait(events []unix.EpollEvent, timeoutMS int, relaxed bool) (int, unix.Errno)
	Arm(atNS int64) unix.Errno // sets the timer, or clears it if atNS is 0, and forgets an earlier expiration
	Sleep(ns int64)
	Switches() int64    // how often the thread gave up its core
	Wake()              // makes Wait return, from any thread
	Watch(fd int) error // Wait returns while the descriptor is readable
	Unwatch(fd int)
}

// What Wait reports beside descriptors.
const (
	TimerExpired = -1
	Woken        = -2
)

// system is the real kernel: epoll, a timerfd and an eventfd. Its system calls are raw: they bypass the Go scheduler on
// purpose; see realtime.Pin.
type system struct {
	epoll, timer, waker int
	usage               unix.Rusage // buffer for getrusage
}

func newSystem() (*system, error) {
	epoll, epollErr := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	timer, timerErr := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	waker, wakerErr := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	s := &system{epoll: epoll, timer: timer, waker: waker}
	return s, cmp.Or(
		os.NewSyscallError("epoll_create1", epollErr),
		os.NewSyscallError("timerfd_create", timerErr),
		os.NewSyscallError("eventfd", wakerErr),
		// Edge-triggered: one event per expiration and per Wake, which are not read.
		s.add(timer, TimerExpired, unix.EPOLLET),
		s.add(waker, Woken, unix.EPOLLET),
	)
}

func (s *system) Now() int64     { return realtime.Now() }
func (s *system) Sleep(ns int64) { realtime.Sleep(ns) }

func (s *system) Wait(events []unix.EpollEvent, timeoutMS int, relaxed bool) (int, unix.Errno) {
	if relaxed {
		n, err := unix.EpollWait(s.epoll, events, timeoutMS)
		if err != nil {
			errno, _ := errors.AsType[unix.Errno](err)
			return 0, errno
		}
		return n, 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeoutMS), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (s *system) Arm(atNS int64) unix.Errno {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(atNS)}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(s.timer), unix.TFD_TIMER_ABSTIME,
		uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errno
}

// Switches are the voluntary context switches of the thread.
func (s *system) Switches() int64 {
	// fails for bad arguments only
	_, _, _ = unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&s.usage)), 0)
	return int64(s.usage.Nvcsw)
}

func (s *system) Wake() {
	one := [8]byte{0: 1}
	// The only possible error is EAGAIN, when the counter is full: then the thread wakes anyway.
	_, _ = unix.Write(s.waker, one[:])
}

func (s *system) Watch(fd int) error { return s.add(fd, int32(fd), 0) }

func (s *system) add(fd int, reportedAs int32, more uint32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | more, Fd: reportedAs}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &event))
}

// Unwatch is needed although a closed fd leaves the epoll set by itself: not while a forked process still holds it.
func (s *system) Unwatch(fd int) { _ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, fd, nil) }
