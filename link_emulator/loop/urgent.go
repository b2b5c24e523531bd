package loop

import (
	"runtime"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// Urgently runs fn on a thread that is scheduled like the data thread, and restores the thread afterwards. The thread
// is pinned, blocks signals and has real-time priority where the kernel grants it: one below the data thread's, so fn
// may busy-wait for the data thread. fn must be short; it must not block, allocate much or enter the Go scheduler; see
// realtime.Pin.
func Urgently(fn func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var signals unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &signals); err != nil {
		return err
	}
	if err := realtime.BlockSignals(); err != nil {
		return err
	}
	before, err := unix.SchedGetAttr(0, 0)
	if err == nil {
		err = realtime.SetFIFO(priority - 1)
	}
	raised := err == nil // else fn runs with ordinary priority
	realtime.Pin()
	fn()
	realtime.Unpin()
	if raised {
		// Lowering is always allowed, as long as this flag stays set.
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
