package loop

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// priority is the real-time priority that is asked for, of 1..99: above other programs' ordinary threads, below the
// kernel's own threads (50 and up).
const priority = 10

// Grant says what the kernel granted of what makes the data thread punctual. The reasons are empty where it did.
type Grant struct {
	Realtime       bool
	RealtimeReason string
	Locked         bool
	LockedReason   string
	Awake          bool // idle processors stay in their shallowest state
	AwakeReason    string
}

// ask asks for SCHED_FIFO for the calling thread and for memory that is never paged out, for the process.
func ask() Grant {
	var grant Grant
	if err := askPriority(priority); err != nil {
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

// askPriority asks for SCHED_FIFO for the calling thread.
func askPriority(priority uint32) error {
	// Threads that the runtime may clone from this one must not inherit the priority.
	attributes := unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_FIFO,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
		Priority: priority,
	}
	return unix.SchedSetAttr(0, &attributes, 0)
}

// blockSignals keeps every asynchronous signal away from the calling thread, so that none cuts a wait short: among
// them is the runtime's own preemption signal, every 10 ms. Other threads take those meant for the process.
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

// The raw system calls of the loop. They are hidden from the Go scheduler on purpose; see pin.

func epollWait(epoll int, events []unix.EpollEvent, timeoutMS int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(timeoutMS), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// armTimer sets a timerfd to fire at atNS of CLOCK_MONOTONIC, or never if atNS is 0, and forgets an earlier firing.
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
