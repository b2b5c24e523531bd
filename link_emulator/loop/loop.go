// Package loop moves frames between devices and the fabric on one OS thread.
//
// The thread waits in epoll for readable devices, for the due time of the next frame (a timerfd) and for requests. It
// carries out requests between two frames (Do), so a change of the network is atomic with respect to traffic. It runs
// with real-time priority where that is granted. Its busy-waiting is bounded to a small share of the time, and it
// sleeps now and then even under constant load.
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
	"containernet-env/link_emulator/realtime"
)

const (
	// readBatch is the most frames that are read from one device before the next one's turn.
	readBatch = 64
	// soonNS: the thread busy-waits for a frame that is due sooner, because falling asleep and waking takes about as
	// long.
	soonNS = int64(3e3)
	// pollIntervalNS: while frames are due one after the other, devices are polled this often. A poll costs half as
	// much as a frame.
	pollIntervalNS = int64(15e3)
	// maxProcs is GOMAXPROCS: the data thread occupies one for good, the others serve requests.
	maxProcs = 4
	// batchNS: reads that are not interrupted by writes when those are behindNS late or more. The two in turns, frame
	// by frame, take half as long again for each, and a saturated emulator has nothing but frames that are due when
	// read.
	batchNS  = int64(20e3)
	behindNS = 5 * batchNS
	// maxEvents is the most that one epoll_wait returns.
	maxEvents = 64
)

// Loop is the data path. Make it with New, start it with Start.
type Loop struct {
	fabric *fabric.Fabric
	epoll  int
	timer  int
	wake   int // eventfd
	qos    int // see limitCStates

	sources    []*source // by index; nil: free
	generation int32

	mutex   sync.Mutex // guards mailbox
	mailbox []func(nowNS int64)

	relaxed    bool  // see Collect
	moved      bool  // the last turn had events
	armedNS    int64 // what the timer is set to, expired or not; 0: not set
	polledNS   int64 // when the devices were last polled
	idleDebt   idleDebt
	coreLeaves coreLeaves
	busyWait   busyWait
	timerTook  timerLatency
	counts     Counts
	grant      Grant
	Core       *int // the only core of the data thread; nil: any. To be set before Start
	failed     func(error)
	stopping   bool
	stopped    chan struct{}

	events  [maxEvents]unix.EpollEvent
	scratch [framepool.MaxFrame]byte
}

// Counts are the loop's own counters.
type Counts struct {
	Turns  uint64 // waits for events
	Yields uint64 // forced sleeps, because it had been busy for long
}

type kind uint8

const (
	kindTimer kind = iota
	kindWake
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
	l := &Loop{fabric: f, epoll: -1, timer: -1, wake: -1, qos: -1, failed: failed, stopped: make(chan struct{})}
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
	for fd, kind := range map[int]kind{l.timer: kindTimer, l.wake: kindWake} {
		if _, err := l.watch(fd, &source{kind: kind}); err != nil {
			l.closeAll()
			return nil, err
		}
	}
	return l, nil
}

func (l *Loop) closeAll() {
	for _, fd := range [...]int{l.epoll, l.timer, l.wake, l.qos} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Start starts the data thread and returns once it runs, with what the kernel granted.
//
// It changes settings of the process. From now on only Collect runs the garbage collector, because a collection started
// by the runtime would wait for the pinned thread. GOMAXPROCS is fixed, because following a change of the cgroup's
// quota would wait for it, too.
func (l *Loop) Start() (Grant, error) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(math.MaxInt64)
	runtime.GOMAXPROCS(maxProcs)
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: signals are blocked and the priority is raised on this thread
		err := realtime.BlockSignals()
		if err != nil {
			ready <- err
			return
		}
		if l.Core != nil {
			if err := keepOn(*l.Core); err != nil {
				ready <- err
				return
			}
		}
		l.grant = requestGrant()
		if l.qos, err = limitCStates(); err != nil {
			l.grant.AwakeReason = err.Error()
		}
		l.grant.Awake = err == nil
		ready <- nil
		l.run()
	}()
	err := <-ready
	return l.grant, err
}

// Stop ends the data thread, closes the loop's own descriptors and returns when that is done. Devices stay open. Do
// must not be called afterwards.
func (l *Loop) Stop() {
	l.Do(func(int64) { l.stopping = true })
	<-l.stopped
}

// Do runs fn on the data thread between two frames and returns the time (CLOCK_MONOTONIC, ns) at which it ran.
// Everything due by then has been done. fn should be short: frames wait for it.
func (l *Loop) Do(fn func(nowNS int64)) (atNS int64) {
	done := make(chan int64, 1)
	l.mutex.Lock()
	l.mailbox = append(l.mailbox, func(nowNS int64) {
		fn(nowNS)
		done <- nowNS
	})
	l.mutex.Unlock()
	one := [8]byte{0: 1}
	// The only possible error is EAGAIN, when the counter is full: then the thread wakes anyway.
	_, _ = unix.Write(l.wake, one[:])
	return <-done
}

// Collect runs a garbage collection. The collector has to stop every goroutine briefly, which a pinned thread would
// block, so the loop is unpinned meanwhile (a few ms).
func (l *Loop) Collect() {
	l.Do(func(int64) { l.relaxed = true })
	runtime.GC()
	l.Do(func(int64) { l.relaxed = false })
}

// Counts of the loop since ResetCounts. Must be called inside Do.
func (l *Loop) Counts() Counts { return l.counts }

// ResetCounts sets the counters to zero. Must be called inside Do.
func (l *Loop) ResetCounts() { l.counts = Counts{} }

// TimerNS is how long it currently takes from a timer's expiry until the thread runs: the timer is set so much earlier,
// then the thread busy-waits. Must be called inside Do.
func (l *Loop) TimerNS() int64 { return l.timerTook.ns }

// run alternates between moving frames, pinned, and carrying out requests, unpinned, because requests may block
// briefly.
func (l *Loop) run() {
	defer close(l.stopped)
	defer l.closeAll()
	l.idleDebt.sinceNS = clock.Now()
	for !l.stopping {
		relaxed := l.relaxed
		if !relaxed {
			realtime.Pin()
		}
		requests, err := false, error(nil)
		for !requests && err == nil {
			requests, err = l.turn()
		}
		if !relaxed {
			realtime.Unpin()
		}
		if err != nil {
			l.failed(err)
			return
		}
		l.handleRequests()
	}
}

// turn waits for events and moves frames: due frames go out, readable ones come in. It reports whether there are
// requests.
func (l *Loop) turn() (requests bool, err error) {
	l.counts.Turns++
	beforeNS := clock.Now()
	l.idleDebt.noteBusy(beforeNS)
	n, slept, err := l.await(beforeNS)
	if err != nil {
		return false, err
	}
	nowNS := clock.Now()
	if slept {
		l.measureWakeUp(n, beforeNS, nowNS)
	}
	if slept && nowNS-beforeNS > switchNS && l.coreLeaves.waited() {
		l.idleDebt.noteIdle(nowNS)
	}
	if l.idleDebt.mostlyBusy() {
		l.idleDebt.noteBusy(nowNS)
		realtime.Sleep(yieldNS)
		l.counts.Yields++
		nowNS = clock.Now()
		l.idleDebt.noteIdle(nowNS)
	}
	l.fabric.Advance(nowNS)
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
		case kindTimer: // served by Advance and measureWakeUp
		}
	}
	l.fabric.Advance(clock.Now())
	l.moved = n > 0
	return requests, nil
}

// measureWakeUp records how long it took to wake at nowNS, if the timer alone woke the thread.
func (l *Loop) measureWakeUp(n int, asleepNS, nowNS int64) {
	if n != 1 || l.armedNS <= asleepNS {
		return
	}
	if s := l.sources[l.events[0].Fd]; s != nil && s.generation == l.events[0].Pad && s.kind == kindTimer {
		l.timerTook.took(nowNS - l.armedNS)
	}
}

// await returns the number of events. It returns at once if a frame is due soon or if there are events. Otherwise it
// sets the timer to when the thread must run for the next frame, and sleeps. After a turn with events it polls before
// it sets the timer: under load there usually are more, and setting the timer is the most expensive part of a turn.
func (l *Loop) await(nowNS int64) (n int, slept bool, err error) {
	dueNS, some := l.fabric.NextDue() // 0 when nothing is due
	if some {
		dueNS -= l.busyWait.lead(nowNS, dueNS, l.timerTook.ns)
	}
	soon := some && dueNS <= nowNS+soonNS
	if soon && nowNS-l.polledNS < pollIntervalNS {
		return 0, false, nil
	}
	l.polledNS = nowNS
	if soon || l.moved {
		n, errno := l.wait(0)
		if errno != 0 && errno != unix.EINTR {
			return 0, false, fmt.Errorf("epoll_wait: %w", errno)
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
	l.coreLeaves.waits()
	var errno unix.Errno
	n, errno = l.wait(-1)
	if errno != 0 && errno != unix.EINTR {
		return 0, false, fmt.Errorf("epoll_wait: %w", errno)
	}
	return n, true, nil
}

// wait is the only place where the thread sleeps for long. When relaxed, it goes through the Go scheduler.
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

// read reads up to a batch of frames from a device; false when the device has disappeared. Frames that become due
// meanwhile go out first, so that frames enter a shared link in the order of their times; where they are late already,
// not more often than every batchNS.
func (l *Loop) read(port *Port) bool {
	advancedNS := int64(0)
	for range readBatch {
		nowNS := clock.Now()
		if dueNS, some := l.fabric.NextDue(); some && dueNS <= nowNS &&
			(nowNS-dueNS < behindNS || nowNS-advancedNS >= batchNS) {
			l.fabric.Advance(nowNS)
			advancedNS = clock.Now()
		}
		buffer := l.fabric.Room(port.fabricPort)
		if buffer == nil {
			buffer = l.scratch[:]
		}
		length, errno := port.device.Read(buffer)
		switch errno {
		case 0:
			arrivedNS := port.arrival(buffer[:length], length == len(buffer))
			l.fabric.Ingress(port.fabricPort, buffer[:length], arrivedNS)
		case unix.EAGAIN, unix.EINTR:
			port.release(nowNS, errno == unix.EAGAIN)
			return true
		default:
			port.gone = errno
			return false
		}
	}
	port.release(0, false)
	return true
}

// handleRequests removes ports that have died and empties the mailbox.
func (l *Loop) handleRequests() {
	for _, s := range l.sources {
		if s != nil && s.kind == kindDevice && (s.port.broken || s.port.ended) {
			l.portDied(s.port, clock.Now())
		}
	}
	var counter [8]byte
	_, _ = unix.Read(l.wake, counter[:]) // EAGAIN: no request woke the thread
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
