// Package hang holds all that tests with a real kernel know of time: the deadline against hanging, and the clock of the
// kernel's stamps, by which no frame is early. How late something is they do not judge.
package hang

import (
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
)

// Deadline bounds every wait: what takes longer hangs.
const Deadline = time.Minute

// After is readable when a wait has hung.
func After() <-chan time.Time { return time.After(Deadline) }

// Until is when a wait that begins now hangs.
func Until() time.Time { return time.Now().Add(Deadline) }

// Readable waits until a descriptor is; false: it hung.
func Readable(fd int) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := Until(); time.Now().Before(end); {
		if n, err := unix.Poll(ready, int(Deadline.Milliseconds())); n == 1 && err == nil {
			return true
		}
	}
	return false
}

// StampNS is the clock of the kernel's stamps, for what lies between two readings of it.
func StampNS() int64 { return clock.Now() }

// WallLessStampNS is the wall clock less that of the stamps, from the closest of several readings.
func WallLessStampNS() (offsetNS int64) {
	tightest := int64(1 << 62)
	for range 1000 {
		before, now, after := clock.Now(), time.Now().UnixNano(), clock.Now()
		if after-before < tightest {
			tightest, offsetNS = after-before, now-(before+after)/2
		}
	}
	return offsetNS
}

// Pause lets a millisecond pass, or more, in which the emulator may fall asleep.
func Pause() { time.Sleep(time.Millisecond) }
