package loop

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Urgently runs fn on a thread that is as hard to disturb as the data thread, and takes it all back afterwards: it is pinned, gets no signals and has real-time
// priority where the kernel grants it, one below the data thread's, so that fn may wait awake for what that one does. fn must be short and must not block, allocate much or
// meet the scheduler; see pin.
func Urgently(fn func()) error {
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
	if err == nil {
		err = askPriority(priority - 1)
	}
	raised := err == nil // else an ordinary thread has to do
	pin()
	fn()
	unpin()
	if raised {
		// Lowering is always allowed, as long as that flag stays.
		before.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		err = unix.SchedSetAttr(0, before, 0)
	} else {
		err = nil
	}
	if maskErr := unix.PthreadSigmask(unix.SIG_SETMASK, &signals, nil); err == nil {
		err = maskErr
	}
	return err
}
