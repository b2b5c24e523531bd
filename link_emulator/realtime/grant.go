package realtime

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

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

// Temporarily runs fn on a thread that is scheduled like the data thread, and restores the thread afterwards. The
// thread is pinned, blocks signals and has real-time priority where the kernel grants it: one below the data thread's,
// so fn may busy-wait for the data thread. fn must be short; it must not block, allocate much or enter the Go
// scheduler; see Pin.
func Temporarily(fn func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var signals unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &signals); err != nil {
		return err
	}
	if err := blockSignals(); err != nil {
		return err
	}
	before, err := unix.SchedGetAttr(0, 0)
	raised := err == nil && setFIFO(priority-1) == nil // else fn runs with ordinary priority
	Pin()
	fn()
	Unpin()
	err = nil
	if raised {
		// Lowering is always allowed, as long as this flag stays set.
		before.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		err = unix.SchedSetAttr(0, before, 0)
	}
	return cmp.Or(err, unix.PthreadSigmask(unix.SIG_SETMASK, &signals, nil))
}

// Sender makes the calling thread, which must be locked and stay so, one that sends in time: pinned until Unpin, and
// where that is granted with a priority above the ordinary threads of other programs, below that of the data thread.
func Sender() {
	// Without these it sends later and sleeps up to 50 us longer (prctl(2)); what it cannot send in time is not judged.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = blockSignals()
	Pin()
	_ = setFIFO(priority / 2)
}
