// Package netns runs code inside another process's network namespace.
package netns

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// OpenProcess returns a pidfd of pid. It becomes readable when the process ends, also while it is a zombie.
func OpenProcess(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, fmt.Errorf("there is no process %d", pid)
	case errors.Is(err, unix.EINVAL):
		return -1, fmt.Errorf("pid: got %d, which is no process id", pid)
	case err != nil:
		return -1, fmt.Errorf("pidfd_open of process %d: %w", pid, err)
	}
	return fd, nil
}

// Ended reports whether the process behind a pidfd has ended.
func Ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// Do runs fn on an OS thread inside the network namespace of pid. File descriptors opened by fn keep that namespace.
// pidfd must be of the same pid: it ensures that the namespace is that process's and not that of a later process with
// the same pid. With pidfd < 0 this is not checked.
func Do(pid, pidfd int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer unix.Close(home)
		if err := Enter(pid, pidfd); err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = fn()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		} // else the thread stays locked and dies with this goroutine, so that no other code runs in that namespace
		done <- err
	}()
	return <-done
}

// Enter moves the calling OS thread, which must be locked, into the network namespace of pid; see Do for pidfd. On an
// error the thread stays where it is.
func Enter(pid, pidfd int) error {
	target, err := open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if pidfd >= 0 && Ended(pidfd) {
		return fmt.Errorf("process %d has ended", pid)
	}
	if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of process %d: %w", pid, err)
	}
	return nil
}

func open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
