// Package realtime runs a goroutine on its thread as if there were no Go scheduler: with real-time priority, pinned,
// without signals and with raw system calls.
//
// An ordinary system call of such a thread is no way out: the runtime's monitor, a thread of ordinary priority, may
// hold the goroutine while it is in one, and it returns from it only when the monitor goes on (setBlockOnExitSyscall in
// runtime/proc.go, Go 1.26). Until then it busy-waits, with a priority that keeps the monitor off the core.
package realtime

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe" // for go:linkname, too

	"golang.org/x/sys/unix"
)

// Pin disables preemption of the calling goroutine by the Go scheduler until Unpin. In between, the goroutine must not
// block on a channel, a mutex or an ordinary system call.
//
// Reason: every 10 ms the runtime asks a running goroutine to yield. A goroutine that is locked to its thread then
// sleeps until another runtime thread hands control back to it. That thread has ordinary priority, so on a busy machine
// the data path could stall for an unbounded time in spite of its own priority. The names are among those that the
// runtime keeps stable for outside users ("hall of shame" in runtime/proc.go).
//
//go:linkname Pin runtime.procPin
func Pin() int

// Unpin enables preemption again.
//
//go:linkname Unpin runtime.procUnpin
func Unpin()

// Now is CLOCK_MONOTONIC in nanoseconds, as timerfd understands it, read without entering the kernel. ClockGettime of
// x/sys is a real system call, and the time package shows differences of this clock only.
//
//go:linkname Now runtime.nanotime
func Now() int64

func setFIFO(priority uint32) error {
	// Threads that the runtime may clone from this one must not inherit the priority.
	attributes := unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_FIFO,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
		Priority: priority,
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(&attributes)), 0)
	if errno != 0 {
		return errno
	}
	return nil
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
		return fmt.Errorf("block signals on a real-time thread: %w", err)
	}
	return nil
}

// Sleep sleeps for so many ns, by a raw system call.
func Sleep(ns int64) {
	request := unix.NsecToTimespec(ns)
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&request)), 0, 0, 0)
}

// priority is the real-time priority of the data thread, of 1..99: above the ordinary threads of other programs, below
// the kernel's own threads (50 and up).
const priority = 10

// Grant says which of the data thread's requests the kernel granted: real-time scheduling, locked memory, shallow
// C-states. A reason is empty where the request was granted.
type Grant struct {
	Realtime       bool   `json:"realtime"`
	RealtimeReason string `json:"realtime_reason"`
	Locked         bool   `json:"memory_locked"`
	LockedReason   string `json:"memory_locked_reason"`
	Awake          bool   `json:"kept_awake"` // idle cores stay in their shallowest C-state
	AwakeReason    string `json:"kept_awake_reason"`
}

// Request makes the calling thread, which must be locked, the data thread: without signals, with SCHED_FIFO, and on one
// core alone, unless that is nil. Memory of the process is never paged out from now on. An error is what cannot be done
// without.
func Request(core *int) (grant Grant, err error) {
	if err := blockSignals(); err != nil {
		return grant, err
	}
	if core != nil {
		if err := keepOn(*core); err != nil {
			return grant, err
		}
	}
	if err := setFIFO(priority); err != nil {
		grant.RealtimeReason = fmt.Sprintf("SCHED_FIFO for the data thread: %v", err)
		// Without real-time priority the kernel may defer timers by 50 us to save wake-ups (prctl(2)).
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
			grant.RealtimeReason += fmt.Sprintf("; timer slack of 1 ns: %v", err)
		}
	}
	// On fault: the runtime reserves address space far beyond what it uses.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		grant.LockedReason = fmt.Sprintf("mlockall: %v", err)
	}
	if err := limitCStates(); err != nil {
		grant.AwakeReason = err.Error()
	}
	grant.Realtime, grant.Locked = grant.RealtimeReason == "", grant.LockedReason == ""
	grant.Awake = grant.AwakeReason == ""
	return grant, nil
}

// latencyDevice takes the longest exit latency allowed for idle cores, in us as a native int32. The request holds while
// the file is open (Documentation/power/pm_qos_interface.rst in the kernel's sources).
const latencyDevice = "/dev/cpu_dma_latency"

// limitCStates keeps idle cores in their shallowest C-state, where they poll for work. Leaving a deeper state takes
// some 30 us in a virtual machine and up to 200 us on a laptop, and varies too much to be compensated. The descriptor
// stays open, so the request holds until the process ends.
func limitCStates() error {
	fd, err := unix.Open(latencyDevice, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", latencyDevice, err)
	}
	if _, err := unix.Write(fd, binary.NativeEndian.AppendUint32(nil, 0)); err != nil {
		unix.Close(fd)
		return fmt.Errorf("write to %s: %w", latencyDevice, err)
	}
	return nil
}

// keepOn keeps the calling thread on one core and reads that back. Threads that the runtime starts later do not inherit
// it: it starts none from a locked thread (runtime/proc.go, startTemplateThread).
func keepOn(core int) error {
	var wanted, held unix.CPUSet
	wanted.Set(core)
	if err := unix.SchedSetaffinity(0, &wanted); err != nil {
		return fmt.Errorf("sched_setaffinity of the data thread to core %d: %w", core, err)
	}
	if err := unix.SchedGetaffinity(0, &held); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	if held != wanted {
		return fmt.Errorf("the data thread is not kept on core %d: the kernel has another mask", core)
	}
	return nil
}

// Run runs fn on a thread of its own and returns when that is done. The thread is pinned, blocks signals and has
// real-time priority where the kernel grants it: so much below the data thread's, so fn may busy-wait for the data
// thread. fn must not block, allocate much or enter the Go scheduler; see Pin.
func Run(below uint32, fn func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		// Where one of these is refused, fn runs later at times.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		_ = blockSignals()
		_ = setFIFO(priority - below)
		Pin()
		fn()
		Unpin()
		close(done)
	}()
	<-done
}
