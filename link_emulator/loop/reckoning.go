package loop

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
	"containernet-env/link_emulator/histogram"
)

// maxEvents is the most that one epoll_wait returns.
const maxEvents = 64

// Bounds of how early a frame can be that is reckoned, together at most fabric's 20 us: it may have come right after
// the thread woke, and right before it was read.
const (
	maxShiftNS = int64(18e3)
	maxReadNS  = int64(2e3) // a read that took longer was interrupted
)

// The wake-up latency is measured probesAtStart times at start, then every probeEvery.
const (
	probeEvery    = 50 * time.Millisecond
	probesAtStart = 40
)

// reckoning replaces the kernel's stamps where there are none: a frame's time is that of its read, less the latency of
// the wake-up before it. How long the frame may have waited in its device besides is not part of its lateness;
// pollDelays bounds it. A nil *reckoning does nothing: the kernel stamps all frames.
type reckoning struct {
	pollDelays
	probe    int          // eventfd
	probedNS atomic.Int64 // when the current probe was sent
	wake     window
	wakeNS   int64 // from a frame's arrival until the sleeping thread runs
	shiftNS  int64 // how much earlier than their read the frames of this turn arrived
}

func newReckoning() (*reckoning, error) {
	probe, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &reckoning{probe: probe, pollDelays: pollDelays{schedstat: -1}}, nil
}

// arrival is the time of a frame that has just been read from port; the read began at readNS.
func (r *reckoning) arrival(port *Port, readNS int64) int64 {
	port.readNS = max(readNS, clock.Now()-maxReadNS) - r.shiftNS
	return port.readNS
}

// awoke is called when the thread wakes at nowNS after it fell asleep; probed: a probe woke it. Frames that are read in
// this turn arrived earlier by the wake-up latency, but not before the thread fell asleep.
func (r *reckoning) awoke(asleepNS, nowNS int64, probed bool) {
	if r == nil {
		return
	}
	if sentNS := r.probedNS.Load(); probed && sentNS > asleepNS && r.wake.add(nowNS-sentNS) {
		r.wakeNS = min(r.wake.quantile(25), r.wake.quantile(0)+earlyNS, maxShiftNS)
	}
	r.shiftNS = min(r.wakeNS, nowNS-asleepNS)
}

// begin is called at the beginning of a turn.
func (r *reckoning) begin() {
	if r != nil {
		r.shiftNS = 0
		r.sinceNS = r.polledNS
	}
}

// polled records a poll of all devices at atNS that returned n events.
func (r *reckoning) polled(atNS int64, n int) {
	if r != nil {
		r.notePoll(atNS, n)
	}
}

// end is called when the frames of a turn have been read. slept: it began with a wait from asleepNS to awokeNS, in
// which the thread left its core as often as switched says.
func (r *reckoning) end(l *Loop, n int, slept bool, asleepNS, awokeNS, switched int64) {
	if r == nil {
		return
	}
	if slept {
		r.noteWake(asleepNS, awokeNS, n, switched)
	}
	for i := range l.events[:n] {
		s := l.sources[l.events[i].Fd]
		if s != nil && s.kind == kindDevice && s.port.readNS != 0 {
			s.port.pollDelay.Record(s.port.readNS - r.sinceNS)
			s.port.readNS = 0
		}
	}
}

// probeWakeUps wakes the data thread periodically to measure how long that takes, until stopped is closed. started is
// closed after the first probes.
func (r *reckoning) probeWakeUps(started chan<- struct{}, stopped <-chan struct{}) {
	one := [8]byte{0: 1}
	for i := 0; ; i++ {
		switch {
		case i < probesAtStart:
			time.Sleep(time.Millisecond / 2)
		case i == probesAtStart:
			close(started)
			fallthrough
		default:
			time.Sleep(probeEvery)
		}
		select {
		case <-stopped:
			return
		default:
		}
		r.probedNS.Store(clock.Now())
		// The only error is EAGAIN, when the counter is full: after 2^64 probes. The descriptor outlives this
		// goroutine.
		_, _ = unix.Write(r.probe, one[:])
	}
}

// pollDelays bounds how long a frame can have waited in a device before it was read.
//
// In a turn without a sleep, the bound is the time since the last poll. While the thread sleeps in epoll_wait, a frame
// wakes it; the bound is then how long the thread was runnable but not running (the scheduler's run_delay). Where the
// kernel has no such account, the whole sleep counts. It also counts when the thread left its core twice in the sleep:
// it was woken and then stopped, by a signal or the cgroup freezer, before it could poll.
type pollDelays struct {
	schedstat  int   // of the data thread (proc_pid_schedstat in proc(5)); -1: not available
	runDelayNS int64 // the thread's total run delay when it was last read
	polledNS   int64 // when all devices were last polled: one that was not read since had no frame then
	sinceNS    int64 // frames read in this turn came after this, except those behind a full batch
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
// does not allocate and does not enter the Go scheduler; see realtime.Pin.
func readRunDelay(schedstat int) (runDelayNS int64, known bool) {
	var text [80]byte
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(schedstat), uintptr(unsafe.Pointer(&text)),
		uintptr(len(text)), 0, 0, 0)
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

// noteWake records a wait from asleepNS to nowNS that returned n events; switched: the thread's voluntary context
// switches in it. It takes a fraction of a microsecond, so it is called after the frames of the turn have been read. A
// wait without an event was interrupted, for example by a signal that stops the process, and polled nothing.
func (p *pollDelays) noteWake(asleepNS, nowNS int64, n int, switched int64) {
	if n == 0 {
		return
	}
	delayNS := nowNS - asleepNS
	if delayNS > sleptNS {
		runDelayNS := p.runDelay(delayNS)
		if switched <= 1 {
			delayNS = min(runDelayNS, delayNS)
		}
		p.sinceNS = nowNS - delayNS
	}
	p.covered(nowNS-delayNS, n)
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
