// Package realtime runs a goroutine on its thread as if there were no Go scheduler: with real-time priority, pinned,
// without signals and with raw system calls.
//
// An ordinary system call of such a thread is no way out: the runtime's monitor, a thread of ordinary priority, may
// hold the goroutine while it is in one, and it returns from it only when the monitor goes on (setBlockOnExitSyscall in
// runtime/proc.go, Go 1.26). Until then it busy-waits, with a priority that keeps the monitor off the core.
package realtime

import (
	"fmt"
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

// Write writes to a descriptor, by a raw system call; 0: all was taken.
func Write(fd int, data []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))),
		uintptr(len(data)))
	return errno
}
