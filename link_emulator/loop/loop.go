// Package loop carries frames between devices and the fabric on one OS thread.
//
// The thread waits in epoll for readable devices, for the time of the next frame (a timerfd) and for requests. Between two
// frames it carries out requests (Do), so a change of the network is atomic with respect to traffic. It asks for
// real-time priority; it does not wait by spinning for more than microseconds, and rests when it had no reason to sleep for long.
package loop

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
)

const (
	// readBatch bounds what is read from one device before the next one's turn.
	readBatch = 64
	// soonNS: a frame that is due sooner is waited for by looking again, because falling asleep and waking takes about as long.
	soonNS = int64(3e3)
	// pollNS: while frames are due one after the other, devices are looked at this often; it costs half as much as a frame.
	pollNS = int64(15e3)
	// processors is GOMAXPROCS: the data thread keeps one to itself for good, the others serve requests.
	processors = 4
	// sleptNS: a wait longer than this was a sleep.
	sleptNS = int64(20e3)
)

// Loop is the data path. Make it with New, start it with Start.
type Loop struct {
	fabric *fabric.Fabric
	epoll  int
	timer  int
	wake   int // eventfd
	probe  int // eventfd; see probeWakeUps
	qos    int // see stayAwake

	sources    []*source // by index; nil: free
	generation int32

	mutex   sync.Mutex // guards mailbox
	mailbox []func(nowNS int64)

	relaxed  bool  // see Collect
	moved    bool  // the last turn had events
	armedNS  int64 // what the timer is set to; it may have fired; 0: not set
	polledNS int64 // when the devices were last looked at
	rests    rests
	awake    awake
	shiftNS  int64 // how much earlier than read the frames of this turn came
	latency  latencies
	gaps     gaps
	counts   Counts
	grant    Grant
	failed   func(error)
	stopping bool
	stopped  chan struct{}

	events  [mostEvents]unix.EpollEvent
	scratch [framepool.MaxFrame]byte
}

// Counts tell how the loop spends its turns.
type Counts struct {
	Turns uint64 // waits for events
	Rests uint64 // times that it rested because it had been busy for long
}

type kind uint8

const (
	kindTimer kind = iota
	kindWake
	kindProbe
	kindDevice
	kindProcess
)

type source struct {
	kind       kind
	generation int32
	port       *Port
}

// New makes a loop over a fabric. failed is called, at most once, when the loop cannot go on.
func New(f *fabric.Fabric, failed func(error)) (*Loop, error) {
	l := &Loop{fabric: f, epoll: -1, timer: -1, wake: -1, probe: -1, qos: -1, failed: failed, stopped: make(chan struct{})}
	l.gaps.schedstat = -1
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		l.closeAll()
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.closeAll()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if l.probe, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.closeAll()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	for fd, kind := range map[int]kind{l.timer: kindTimer, l.wake: kindWake, l.probe: kindProbe} {
		if _, err := l.watch(fd, &source{kind: kind}); err != nil {
			l.closeAll()
			return nil, err
		}
	}
	return l, nil
}

func (l *Loop) closeAll() {
	for _, fd := range [...]int{l.epoll, l.timer, l.wake, l.qos, l.gaps.schedstat} { // not the probe: its goroutine may still write to it
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Start runs the data thread. It returns when the thread runs, with what the kernel granted it.
//
// It changes the process: garbage is collected by Collect only from now on, because a collection of the runtime's own would wait for the
// pinned thread, and GOMAXPROCS is fixed, because following a change of the cgroup's quota would too.
func (l *Loop) Start() (Grant, error) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(math.MaxInt64)
	runtime.GOMAXPROCS(processors)
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: signals are blocked and the priority is raised on this thread
		err := blockSignals()
		if err != nil {
			ready <- err
			return
		}
		l.grant = ask()
		if l.qos, err = stayAwake(); err != nil {
			l.grant.AwakeReason = err.Error()
		}
		l.grant.Awake = err == nil
		l.gaps.schedstat = openSchedstat()
		ready <- nil
		l.run()
	}()
	if err := <-ready; err != nil {
		return l.grant, err
	}
	measured := make(chan struct{})
	go l.probeWakeUps(measured)
	<-measured
	return l.grant, nil
}

// Stop ends the data thread, closes the loop's own descriptors and returns when that is done. Devices stay open. Do must
// not be called afterwards.
func (l *Loop) Stop() {
	l.Do(func(int64) { l.stopping = true })
	<-l.stopped
}

// Do runs fn on the data thread, between two frames, and returns the time (CLOCK_MONOTONIC, ns) at which it ran. Everything
// that is due by then has been carried out. fn should be short: frames wait for it.
func (l *Loop) Do(fn func(nowNS int64)) (atNS int64) {
	done := make(chan int64, 1)
	l.mutex.Lock()
	l.mailbox = append(l.mailbox, func(nowNS int64) {
		fn(nowNS)
		done <- nowNS
	})
	l.mutex.Unlock()
	one := [8]byte{0: 1}
	// The only error is EAGAIN, when the counter is full: then the thread will wake anyway.
	_, _ = unix.Write(l.wake, one[:])
	return <-done
}

// Collect runs a garbage collection. The collector has to stop every goroutine for moments, which a pinned thread would not
// let happen, so the loop is unpinned as long as it takes (a few ms).
func (l *Loop) Collect() {
	l.Do(func(int64) { l.relaxed = true })
	runtime.GC()
	l.Do(func(int64) { l.relaxed = false })
}

// Counts of the loop since ResetCounts. To be called inside Do.
func (l *Loop) Counts() Counts { return l.counts }

// ResetCounts begins anew. To be called inside Do.
func (l *Loop) ResetCounts() { l.counts = Counts{} }

// Latencies as measured lately. To be called inside Do.
func (l *Loop) Latencies() Latencies { return l.latency.now }

// run alternates between moving frames, pinned, and carrying out requests, unpinned, because those may block for moments.
func (l *Loop) run() {
	defer close(l.stopped)
	defer l.closeAll()
	l.gaps.lookedNS = clock.Now()
	l.rests.sinceNS = l.gaps.lookedNS
	for !l.stopping {
		relaxed := l.relaxed
		if !relaxed {
			pin()
		}
		requests, err := false, error(nil)
		for !requests && err == nil {
			requests, err = l.turn()
		}
		if !relaxed {
			unpin()
		}
		if err != nil {
			l.failed(err)
			return
		}
		l.handleRequests()
	}
}

// turn waits for events and moves frames: what is due goes out, what is readable comes in. It reports whether there are requests.
func (l *Loop) turn() (requests bool, err error) {
	l.counts.Turns++
	beforeNS := clock.Now()
	l.rests.worked(beforeNS)
	n, slept, err := l.await(beforeNS)
	if err != nil {
		return false, err
	}
	nowNS := clock.Now()
	awokeNS := nowNS
	l.shiftNS = 0
	if slept {
		l.shiftNS = l.measureWakeUp(n, beforeNS, nowNS)
	}
	if slept && nowNS-beforeNS > switchNS && l.gaps.awoke() {
		l.rests.slept(nowNS)
	}
	if l.rests.due() {
		l.rests.worked(nowNS)
		sleep(restNS)
		l.counts.Rests++
		nowNS = clock.Now()
		l.rests.slept(nowNS)
	}
	l.advance(nowNS)
	for i := range l.events[:n] {
		event := &l.events[i]
		s := l.sources[event.Fd]
		if s == nil || s.generation != event.Pad {
			continue
		}
		switch s.kind {
		case kindDevice:
			if !l.read(s.port) {
				s.port.broken = true
				requests = true
			}
		case kindProcess:
			s.port.ended = true
			requests = true
		case kindWake:
			requests = true
		case kindTimer, kindProbe: // served by advance and measureWakeUp
		}
	}
	l.advance(clock.Now())
	if slept {
		l.gaps.slept(beforeNS, awokeNS, n)
	}
	l.recordGaps(n)
	l.moved = n > 0
	return requests, nil
}

// advance carries out what is due. A write takes its time, so it begins that much earlier.
func (l *Loop) advance(nowNS int64) { l.fabric.Advance(nowNS + l.latency.now.WriteNS) }

// await returns the number of events, at once if a frame is due soon or if there are events; otherwise it sets the
// timer to when the thread must be awake for the next frame, and sleeps. After a turn that had events it looks before it sets the timer: under load there mostly are
// more, and setting the timer costs more than anything else in a turn.
func (l *Loop) await(nowNS int64) (n int, slept bool, err error) {
	dueNS, some := l.fabric.NextDue() // 0 when nothing is due
	if some {
		dueNS -= l.latency.now.WriteNS
		dueNS -= l.awake.lead(nowNS, dueNS, l.latency.now.TimerNS)
	}
	soon := some && dueNS <= nowNS+soonNS
	l.gaps.sinceNS = l.gaps.lookedNS
	if soon && nowNS-l.polledNS < pollNS {
		return 0, false, nil
	}
	l.polledNS = nowNS
	if soon || l.moved {
		n, errno := l.wait(0)
		if errno != 0 && errno != unix.EINTR {
			return 0, false, fmt.Errorf("epoll_wait: %w", errno)
		}
		if errno == 0 {
			l.gaps.looked(nowNS, n)
		}
		if soon || n > 0 {
			return n, false, nil
		}
	}
	if dueNS != l.armedNS {
		if errno := armTimer(l.timer, dueNS); errno != 0 {
			return 0, false, fmt.Errorf("timerfd_settime to %d: %w", dueNS, errno)
		}
		l.armedNS = dueNS
	}
	l.gaps.sleeps()
	var errno unix.Errno
	n, errno = l.wait(-1)
	if errno != 0 && errno != unix.EINTR {
		return 0, false, fmt.Errorf("epoll_wait: %w", errno)
	}
	return n, true, nil
}

// wait is the only place where the thread sleeps for long. Relaxed, the scheduler is told about it.
func (l *Loop) wait(timeoutMS int) (int, unix.Errno) {
	if !l.relaxed {
		return epollWait(l.epoll, l.events[:], timeoutMS)
	}
	n, err := unix.EpollWait(l.epoll, l.events[:], timeoutMS)
	if err != nil {
		var errno unix.Errno
		errors.As(err, &errno)
		return 0, errno
	}
	return n, 0
}

// read takes what a device has, up to a batch; false when the device has gone. Frames that fall due meanwhile go
// out first, so that frames enter a shared link in the order of their times.
func (l *Loop) read(port *Port) bool {
	for range readBatch {
		nowNS := clock.Now() // before the read: so the time it takes does not count
		l.advance(nowNS)
		buffer := l.fabric.Room(port.fabricPort)
		if buffer == nil {
			buffer = l.scratch[:]
		}
		length, errno := port.device.Read(buffer)
		switch errno {
		case 0:
			port.readNS = nowNS - l.shiftNS
			l.fabric.Ingress(port.fabricPort, buffer[:length], nowNS-l.shiftNS)
		case unix.EAGAIN, unix.EINTR:
			return true
		default:
			port.gone = errno
			return false
		}
	}
	return true
}

// recordGaps notes, for the devices of which frames were read in this turn, how long those can have been there.
func (l *Loop) recordGaps(n int) {
	for i := range l.events[:n] {
		s := l.sources[l.events[i].Fd]
		if s != nil && s.kind == kindDevice && s.port.readNS != 0 {
			s.port.readGap.Record(s.port.readNS - l.gaps.sinceNS)
			s.port.readNS = 0
		}
	}
}

// handleRequests buries ports that have died and empties the mailbox.
func (l *Loop) handleRequests() {
	for _, s := range l.sources {
		if s != nil && s.kind == kindDevice && (s.port.broken || s.port.ended) {
			l.portDied(s.port, clock.Now())
		}
	}
	var counter [8]byte
	_, _ = unix.Read(l.wake, counter[:]) // EAGAIN: it was not a request that woke us
	l.mutex.Lock()
	requests := l.mailbox
	l.mailbox = nil
	l.mutex.Unlock()
	for _, request := range requests {
		nowNS := clock.Now()
		l.fabric.Advance(nowNS)
		request(nowNS)
	}
}
