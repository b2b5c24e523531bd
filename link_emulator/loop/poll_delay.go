package loop

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/histogram"
)

// maxEvents is the most that one epoll_wait returns.
const maxEvents = 64

// pollDelays bounds how long a frame can have waited in a device before it was read. Lateness does not include that
// time, because a frame is timed from its read.
//
// In a turn without a sleep, the bound is the time since the last poll. While the thread sleeps in epoll_wait, a frame
// wakes it; the bound is then how long the thread was runnable but not running (the scheduler's run_delay). Where the
// kernel has no such account, the whole sleep counts. It also counts when the thread left its core twice in the sleep:
// it was woken and then stopped, by a signal or the cgroup freezer, before it could poll.
type pollDelays struct {
	schedstat  int         // of the data thread (proc_pid_schedstat in proc(5)); -1: not available
	runDelayNS int64       // the thread's total run delay when it was last read
	switches   int64       // voluntary context switches of the thread when it fell asleep
	switched   int64       // voluntary context switches in the last wait
	usage      unix.Rusage // buffer for getrusage
	polledNS   int64       // when all devices were last polled: one that was not read since had no frame then
	sinceNS    int64       // frames read in this turn came after this, except those behind a full batch
}

// openSchedstat must be called on the data thread.
func openSchedstat() int {
	fd, err := unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if _, known := readRunDelay(fd); !known {
		unix.Close(fd)
		return -1
	}
	return fd
}

// readRunDelay reads how long the thread has been runnable but not running: run_delay, the second of three numbers. It
// does not allocate and does not enter the Go scheduler; see pin.
func readRunDelay(schedstat int) (runDelayNS int64, known bool) {
	var text [80]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(schedstat), uintptr(unsafe.Pointer(&text)), uintptr(len(text)), 0, 0, 0)
	if errno != 0 {
		return 0, false
	}
	return parseRunDelay(text[:n])
}

// parseRunDelay: a kernel without the account shows 0 0 0; the third number is how often the thread ran.
func parseRunDelay(text []byte) (runDelayNS int64, known bool) {
	var numbers [3]int64
	field := 0
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			numbers[field] = numbers[field]*10 + int64(c-'0')
		case c == ' ' && field < len(numbers)-1:
			field++
		}
	}
	return numbers[1], numbers[2] > 0
}

// notePoll records a poll of all devices at atNS that returned n events.
func (p *pollDelays) notePoll(atNS int64, n int) {
	if n == 0 {
		p.sinceNS = atNS
	}
	p.covered(atNS, n)
}

// noteSleep is called right before a wait.
func (p *pollDelays) noteSleep() { p.switches = p.readSwitches() }

// noteWake records a wait from asleepNS to nowNS. It takes a fraction of a microsecond, so it is called after the
// frames of the turn have been read. A wait without an event was interrupted, for example by a signal that stops the
// process, and polled nothing.
func (p *pollDelays) noteWake(asleepNS, nowNS int64, n int) {
	if n == 0 {
		return
	}
	delayNS := nowNS - asleepNS
	if delayNS > sleptNS {
		runDelayNS := p.runDelay(delayNS)
		if p.switched <= 1 {
			delayNS = min(runDelayNS, delayNS)
		}
		p.sinceNS = nowNS - delayNS
	}
	p.covered(nowNS-delayNS, n)
}

// leftCore reports, right after a wait, whether the thread gave up its core in it.
func (p *pollDelays) leftCore() bool {
	p.switched = p.readSwitches() - p.switches
	return p.switched > 0
}

// readSwitches is the number of voluntary context switches of the thread. Sleeping and being stopped both count. See
// readRunDelay.
func (p *pollDelays) readSwitches() int64 {
	_, _, _ = unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&p.usage)), 0) // fails for bad arguments only
	return int64(p.usage.Nvcsw)
}

// covered: when the event buffer is full, there may have been more events.
func (p *pollDelays) covered(atNS int64, n int) {
	if n < maxEvents {
		p.polledNS = atNS
	}
}

// runDelay is the run delay since the last call; otherNS where the kernel has no account.
func (p *pollDelays) runDelay(otherNS int64) int64 {
	if p.schedstat < 0 {
		return otherNS
	}
	totalNS, known := readRunDelay(p.schedstat)
	if !known {
		return otherNS
	}
	sinceNS := totalNS - p.runDelayNS
	p.runDelayNS = totalNS
	return sinceNS
}

// IngressPollDelay is the upper bound of how long frames of the device waited to be read, one value per turn that read
// some. It does not include the wake-up latency that is already taken out of the frame's time. Must be called inside
// Do.
func (p *Port) IngressPollDelay() histogram.Histogram { return p.pollDelay }

// ResetIngressPollDelay empties the histogram. Must be called inside Do.
func (p *Port) ResetIngressPollDelay() { p.pollDelay = histogram.Histogram{} }
