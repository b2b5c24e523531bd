//go:build plumbing

package loop

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// threadState is the scheduling policy, the priority and the blocked signals of the calling thread.
func threadState(t *testing.T) (policy, priority uint32, blocked unix.Sigset_t) {
	t.Helper()
	attributes, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &blocked); err != nil {
		t.Fatal(err)
	}
	return attributes.Policy, attributes.Priority, blocked
}

func TestUrgentlyRestoresTheThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	policyBefore, priorityBefore, blockedBefore := threadState(t)
	var attributes *unix.SchedAttr
	var blocked unix.Sigset_t
	if err := Urgently(func() {
		attributes, _ = unix.SchedGetAttr(0, 0)
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, nil, &blocked)
	}); err != nil {
		t.Fatal(err)
	}
	if blocked == blockedBefore {
		t.Error("signals were not blocked")
	}
	if attributes.Policy == unix.SCHED_FIFO {
		if attributes.Priority != priority-1 {
			t.Errorf("got priority %d, want one below the data thread's %d", attributes.Priority, priority)
		}
	} else {
		t.Log("this machine grants no real-time priority")
	}
	if policyAfter, priorityAfter, blockedAfter := threadState(t); policyAfter != policyBefore ||
		priorityAfter != priorityBefore || blockedAfter != blockedBefore {
		t.Errorf("policy %d, priority %d, blocked %v afterwards", policyAfter, priorityAfter, blockedAfter)
	}
}
