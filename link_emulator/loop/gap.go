package loop

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/histogram"
)

// mostEvents are taken in at once.
const mostEvents = 64

// gaps tells how long a frame can have lain in a device unseen. No lateness shows that time, since a frame is due from when it was read.
//
// Of a turn that did not sleep, it is the time since the devices were last looked at. While the thread sleeps, the kernel looks for it; what counts then is how long
// the thread, once woken, waited for a processor, by the scheduler's own account. Where the kernel keeps none, the whole sleep counts. So it does when the thread left its
// processor twice: it was woken and then stopped, as by a signal or a freezer, before it could say so.
type gaps struct {
	schedstat int         // of the data thread (proc_pid_schedstat in proc(5)); -1: the kernel does not tell
	waitedNS  int64       // how long the thread had waited for processors, all in all, when that was last read
	switches  int64       // how often the thread had left its processor by itself when it fell asleep
	leavings  int64       // how often it left it in the wait that ended last
	usage     unix.Rusage // room for what the kernel tells
	lookedNS  int64       // when all devices were last looked at: what was not read since had no frame then
	sinceNS   int64       // what is read in this turn came after this, but for frames behind a whole batch of others
}

// openSchedstat is to be called on the data thread.
func openSchedstat() int {
	fd, err := unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if _, known := readWaited(fd); !known {
		unix.Close(fd)
		return -1
	}
	return fd
}

// readWaited reads how long the thread has waited for processors: run_delay, the second number of three. It allocates nothing and does not meet the scheduler of Go; see pin.
func readWaited(schedstat int) (waitedNS int64, known bool) {
	var text [80]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(schedstat), uintptr(unsafe.Pointer(&text)), uintptr(len(text)), 0, 0, 0)
	if errno != 0 {
		return 0, false
	}
	return parseWaited(text[:n])
}

// parseWaited: a kernel that does not count says 0 0 0; the third number is how often the thread ran.
func parseWaited(text []byte) (waitedNS int64, known bool) {
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

// looked: the devices were looked at, at atNS, and n events found, of which some may be devices.
func (g *gaps) looked(atNS int64, n int) {
	if n == 0 {
		g.sinceNS = atNS
	}
	g.sawAll(atNS, n)
}

// sleeps: the thread is about to wait.
func (g *gaps) sleeps() { g.switches = g.readSwitches() }

// slept: a wait from asleepNS to nowNS ended. To be called when the frames of the turn have been read, since it takes a fraction of a microsecond. One without an event saw nothing:
// it was broken off, as by a signal that stops the process for a while.
func (g *gaps) slept(asleepNS, nowNS int64, n int) {
	if n == 0 {
		return
	}
	unseenNS := nowNS - asleepNS
	if unseenNS > sleptNS {
		waitedNS := g.waited(unseenNS)
		if g.leavings <= 1 {
			unseenNS = min(waitedNS, unseenNS)
		}
		g.sinceNS = nowNS - unseenNS
	}
	g.sawAll(nowNS-unseenNS, n)
}

// awoke tells, right after a wait, whether the thread left its processor in it.
func (g *gaps) awoke() bool {
	g.leavings = g.readSwitches() - g.switches
	return g.leavings > 0
}

// readSwitches is how often the thread has left its processor to wait for something, as it does to sleep and to be stopped; see readWaited.
func (g *gaps) readSwitches() int64 {
	_, _, _ = unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&g.usage)), 0) // fails for bad arguments only
	return int64(g.usage.Nvcsw)
}

// sawAll: with as many events as are asked for, there may have been more.
func (g *gaps) sawAll(atNS int64, n int) {
	if n < mostEvents {
		g.lookedNS = atNS
	}
}

// waited is how long the thread has waited for a processor since the last call; otherNS where the kernel does not tell.
func (g *gaps) waited(otherNS int64) int64 {
	if g.schedstat < 0 {
		return otherNS
	}
	totalNS, known := readWaited(g.schedstat)
	if !known {
		return otherNS
	}
	sinceNS := totalNS - g.waitedNS
	g.waitedNS = totalNS
	return sinceNS
}

// ReadGap is, over the turns that read frames of the device, how long those can have waited to be read beyond what counts as their time. To be called inside Do.
func (p *Port) ReadGap() histogram.Histogram { return p.readGap }

// ResetReadGap begins anew. To be called inside Do.
func (p *Port) ResetReadGap() { p.readGap = histogram.Histogram{} }
