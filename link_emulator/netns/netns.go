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

// Do runs fn on an OS thread of its own, inside the network namespace of pid. File descriptors opened by fn keep that
// namespace. pidfd must be of the same pid: it ensures that the namespace is that process's and not that of a later
// process with the same pid. With pidfd < 0 this is not checked.
func Do(pid, pidfd int, fn func() error) error {
	return onThread(func() error {
		target, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open the network namespace of process %d: %w", pid, err)
		}
		defer unix.Close(target)
		if pidfd >= 0 && ended(pidfd) {
			return fmt.Errorf("process %d has ended", pid)
		}
		if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace of process %d: %w", pid, err)
		}
		return fn()
	})
}

// New runs fn on an OS thread of its own, inside a new network namespace, which lasts as long as what fn opens in it.
func New(fn func() error) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create a network namespace: %w", err)
		}
		return fn()
	})
}

// onThread runs fn on a thread that ends with it, so that no other code runs in its namespace.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		done <- fn()
	}()
	return <-done
}

// ended reports whether the process behind a pidfd has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
