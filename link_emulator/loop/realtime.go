package loop

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// priority is the real-time priority of the data thread, of 1..99: above the ordinary threads of other programs, below
// the kernel's own threads (50 and up).
const priority = 10

// Grant says which of the data thread's requests the kernel granted: real-time scheduling, locked memory, shallow
// C-states. A reason is empty where the request was granted.
type Grant struct {
	Realtime       bool
	RealtimeReason string
	Locked         bool
	LockedReason   string
	Awake          bool // idle cores stay in their shallowest C-state
	AwakeReason    string
}

// requestGrant requests SCHED_FIFO for the calling thread, and memory that is never paged out for the process.
func requestGrant() Grant {
	var grant Grant
	if err := setFIFO(priority); err != nil {
		grant.RealtimeReason = fmt.Sprintf("SCHED_FIFO for the data thread: %v", err)
		// Without real-time priority the kernel may defer timers by 50 us to save wake-ups (prctl(2)).
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
			grant.RealtimeReason += fmt.Sprintf("; timer slack of 1 ns: %v", err)
		}
	} else {
		grant.Realtime = true
	}
	// On fault: the runtime reserves address space far beyond what it uses.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		grant.LockedReason = fmt.Sprintf("mlockall: %v", err)
	} else {
		grant.Locked = true
	}
	return grant
}

// setFIFO sets the scheduling policy SCHED_FIFO for the calling thread.
func setFIFO(priority uint32) error {
	// Threads that the runtime may clone from this one must not inherit the priority.
	attributes := unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_FIFO,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
		Priority: priority,
	}
	return unix.SchedSetAttr(0, &attributes, 0)
}

// blockSignals blocks every asynchronous signal on the calling thread, so that none interrupts a wait: among them is
// the runtime's own preemption signal, every 10 ms. Other threads handle those sent to the process.
func blockSignals() error {
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	for _, synchronous := range [...]unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP} {
		bit := uint(synchronous) - 1
		all.Val[bit/64] &^= 1 << (bit % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return fmt.Errorf("block signals on the data thread: %w", err)
	}
	return nil
}

// The loop's raw system calls. They bypass the Go scheduler on purpose; see pin.

func epollWait(epoll int, events []unix.EpollEvent, timeoutMS int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(timeoutMS), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// armTimer sets a timerfd to expire at atNS of CLOCK_MONOTONIC, or never if atNS is 0, and clears an earlier
// expiration.
func armTimer(timer int, atNS int64) unix.Errno {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(atNS)}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(timer), unix.TFD_TIMER_ABSTIME,
		uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errno
}

func sleep(ns int64) {
	request := unix.NsecToTimespec(ns)
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&request)), 0, 0, 0)
}
