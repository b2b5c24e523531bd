//go:build plumbing

package realtime

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
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
		assert.That(t, held.Count() == 1 && held.IsSet(last), "held %v, want core %d alone", held, last)
		failed <- err
	}()
	assert.OK(t, <-failed)
	problem := keepOn(1023)
	assert.That(t, problem != nil, "a core that this machine does not have was accepted")
}

// What runs below the data thread has signals blocked and real-time priority; other threads do not get either.
func TestRunIsOnAThreadOfItsOwn(t *testing.T) {
	state := func() (attributes unix.SchedAttr, blocked unix.Sigset_t) {
		if got, err := unix.SchedGetAttr(0, 0); err == nil {
			attributes = *got
		}
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, nil, &blocked)
		return attributes, blocked
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attributesBefore, blockedBefore := state()
	var attributes unix.SchedAttr
	var blocked unix.Sigset_t
	Run(1, func() { attributes, blocked = state() })
	assert.That(t, blocked != blockedBefore, "signals were not blocked")
	if attributes.Policy != unix.SCHED_FIFO {
		t.Log("this machine grants no real-time priority")
	} else if attributes.Priority != priority-1 {
		t.Errorf("got priority %d, want one below the data thread's %d", attributes.Priority, priority)
	}
	if attributesAfter, blockedAfter := state(); attributesAfter != attributesBefore || blockedAfter != blockedBefore {
		t.Errorf("the caller: %+v, blocked %v afterwards", attributesAfter, blockedAfter)
	}
}
