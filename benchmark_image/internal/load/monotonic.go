package load

import "golang.org/x/sys/unix"

// monotonicNs is this moment on CLOCK_MONOTONIC, which Go's time package does not expose; 0 where the kernel has none.
func monotonicNs() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return now.Nano()
}
