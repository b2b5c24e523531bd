package loop

import (
	"fmt"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
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

// requestGrant requests SCHED_FIFO for the calling thread, and memory that is never paged out for the process.
func requestGrant() Grant {
	var grant Grant
	if err := realtime.SetFIFO(priority); err != nil {
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
