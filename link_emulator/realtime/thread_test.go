//go:build plumbing

package realtime

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAThreadIsKeptOnOneCore(t *testing.T) {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var allowed, held unix.CPUSet
		err := unix.SchedGetaffinity(0, &allowed)
		last := -1
		for core := range len(allowed) * 64 {
			if allowed.IsSet(core) {
				last = core
			}
		}
		err = errors.Join(err, keepOn(last), unix.SchedGetaffinity(0, &held))
		if held.Count() != 1 || !held.IsSet(last) {
			t.Errorf("held %v, want core %d alone", held, last)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if err := keepOn(1023); err == nil {
		t.Error("a core that this machine does not have was accepted")
	}
}

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

func TestTemporarilyRestoresTheThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	policyBefore, priorityBefore, blockedBefore := threadState(t)
	var attributes *unix.SchedAttr
	var blocked unix.Sigset_t
	if err := Temporarily(func() {
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
