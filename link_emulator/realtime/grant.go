package realtime

import (
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
