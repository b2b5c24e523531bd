// Package hang holds all that tests with a real kernel know of time: the deadline against hanging, and the clock of the
// kernel's stamps, by which no frame is early. How late something is they do not judge.
package hang

import (
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// Deadline bounds every wait: what takes longer hangs.
const Deadline = time.Minute

// After is readable when a wait has hung.
func After() <-chan time.Time { return time.After(Deadline) }

// Readable waits until a descriptor is; false: it hung.
func Readable(fd int) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(Deadline); time.Now().Before(end); {
		if n, err := unix.Poll(ready, int(Deadline.Milliseconds())); n == 1 && err == nil {
			return true
		}
	}
	return false
}

// StampNS is the clock of the kernel's stamps, for what lies between two readings of it.
func StampNS() int64 { return realtime.Now() }

// Pause lets a millisecond pass, or more, in which the emulator may fall asleep.
func Pause() { time.Sleep(time.Millisecond) }
