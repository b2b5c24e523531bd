// Package loop moves frames between devices and the fabric on one OS thread.
//
// The thread waits in epoll for readable devices, for the due time of the next frame (a timerfd) and for requests. It
// carries out requests between two frames (Do), so a change of the network is atomic with respect to traffic. It runs
// with real-time priority where that is granted. Its busy-waiting is bounded to a small share of the time, and it
// sleeps now and then even under constant load.
package loop

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

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

// Loop is the data path. Make it with Start.
type Loop struct {
	fabric *fabric.Fabric
	kernel Kernel

	watched []watched // by descriptor

	mutex   sync.Mutex // guards mailbox
	mailbox []func(nowNS int64)

	relaxed   bool  // see Collect
	moved     bool  // the last turn had events
	armedNS   int64 // what the timer is set to, expired or not; 0: not set
	polledNS  int64 // when the devices were last polled
	idleDebt  idleDebt
	switches  int64 // of the core, before the last wait
	busyWait  busyWait
	timerTook timerLatency
	counts    Counts

	events  [maxEvents]unix.EpollEvent
	scratch [framepool.MaxFrame]byte
}

// Counts are the loop's own counters.
type Counts struct {
	Turns  uint64 `json:"turns"`  // waits for events
	Yields uint64 `json:"yields"` // forced sleeps, because it had been busy for long
}

// watched is what a descriptor belongs to: the device of a port, or its process.
type watched struct {
	port    *Port // nil: the descriptor is not watched
	process bool
}

// NewOn makes a loop on a kernel, for Step.
func NewOn(kernel Kernel, f *fabric.Fabric) *Loop {
	l := &Loop{fabric: f, kernel: kernel}
	l.idleDebt.sinceNS = kernel.Now()
	return l
}

// Start makes a loop over a fabric and returns once its data thread runs, on one core alone unless core is nil, with
// what the kernel granted. failed is called, at most once, when the loop cannot go on.
//
// It changes settings of the process. From now on only Collect runs the garbage collector, because a collection started
// by the runtime would wait for the pinned thread. GOMAXPROCS is fixed, because following a change of the cgroup's
// quota would wait for it, too.
func Start(f *fabric.Fabric, core *int, failed func(error)) (l *Loop, grant realtime.Grant, err error) {
	kernel, err := newSystem()
	if err != nil {
		return nil, grant, err
	}
	l = NewOn(kernel, f)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(math.MaxInt64)
	runtime.GOMAXPROCS(maxProcs)
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: signals are blocked and the priority is raised on this thread
		grant, err = realtime.Request(core)
		refused := err != nil
		if close(ready); !refused {
			failed(l.run())
		}
	}()
	<-ready
	return l, grant, err
}

// Do runs fn on the data thread between two frames and returns the time (CLOCK_MONOTONIC, ns) at which it ran.
// Everything due by then has been done. fn should be short: frames wait for it.
func (l *Loop) Do(fn func(nowNS int64)) (atNS int64) {
	done := make(chan int64, 1)
	l.Post(func(nowNS int64) {
		fn(nowNS)
		done <- nowNS
	})
	return <-done
}

// Post is Do without the wait.
func (l *Loop) Post(fn func(nowNS int64)) {
	l.mutex.Lock()
	l.mailbox = append(l.mailbox, fn)
	l.mutex.Unlock()
	l.kernel.Wake()
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
// briefly. It returns on an error only.
func (l *Loop) run() error {
	l.idleDebt.sinceNS = l.kernel.Now()
	for {
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
			return err
		}
		l.handleRequests()
	}
}

// Step is one turn and the requests that came with it, on the calling thread: for a loop that is not started.
func (l *Loop) Step() error {
	requests, err := l.turn()
	if requests {
		l.handleRequests()
	}
	return err
}

// turn waits for events and moves frames: due frames go out, readable ones come in. It reports whether there are
// requests.
func (l *Loop) turn() (requests bool, err error) {
	l.counts.Turns++
	beforeNS := l.kernel.Now()
	l.idleDebt.noteBusy(beforeNS)
	n, slept, err := l.await(beforeNS)
	if err != nil {
		return false, err
	}
	nowNS := l.kernel.Now()
	if slept && n == 1 && l.events[0].Fd == TimerExpired && l.armedNS > beforeNS {
		l.timerTook.took(nowNS - l.armedNS)
	}
	if slept && nowNS-beforeNS > switchNS && l.kernel.Switches() > l.switches {
		l.idleDebt.noteIdle(nowNS)
	}
	if l.idleDebt.mostlyBusy() {
		l.idleDebt.noteBusy(nowNS)
		l.kernel.Sleep(yieldNS)
		l.counts.Yields++
		nowNS = l.kernel.Now()
		l.idleDebt.noteIdle(nowNS)
	}
	l.fabric.Advance(nowNS)
	for i := range l.events[:n] {
		switch fd := l.events[i].Fd; fd {
		case TimerExpired: // Advance serves it
		case Woken:
			requests = true
		default: // requests change what is watched, but only between two turns
			if w := l.watched[fd]; w.process {
				w.port.ended, requests = true, true
			} else if !l.read(w.port) {
				requests = true
			}
		}
	}
	l.fabric.Advance(l.kernel.Now())
	l.moved = n > 0
	return requests, nil
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
		n, errno := l.kernel.Wait(l.events[:], 0, l.relaxed)
		if errno != 0 && errno != unix.EINTR {
			return 0, false, fmt.Errorf("epoll_wait: %w", errno)
		}
		if soon || n > 0 {
			return n, false, nil
		}
	}
	if dueNS != l.armedNS {
		if errno := l.kernel.Arm(dueNS); errno != 0 {
			return 0, false, fmt.Errorf("timerfd_settime to %d: %w", dueNS, errno)
		}
		l.armedNS = dueNS
	}
	l.switches = l.kernel.Switches()
	var errno unix.Errno
	n, errno = l.kernel.Wait(l.events[:], -1, l.relaxed)
	if errno != 0 && errno != unix.EINTR {
		return 0, false, fmt.Errorf("epoll_wait: %w", errno)
	}
	return n, true, nil
}

// read reads up to a batch of frames from a device; false when the device has disappeared. Frames that become due
// meanwhile go out first, so that frames enter a shared link in the order of their times; where they are late already,
// not more often than every batchNS.
func (l *Loop) read(port *Port) bool {
	advancedNS := int64(0)
	for range readBatch {
		nowNS := l.kernel.Now()
		if dueNS, some := l.fabric.NextDue(); some && dueNS <= nowNS &&
			(nowNS-dueNS < behindNS || nowNS-advancedNS >= batchNS) {
			l.fabric.Advance(nowNS)
			advancedNS = l.kernel.Now()
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
	for _, w := range l.watched {
		if w.port != nil && !w.process && (w.port.gone != 0 || w.port.ended) {
			l.portDied(w.port, l.kernel.Now())
		}
	}
	l.mutex.Lock()
	requests := l.mailbox
	l.mailbox = nil
	l.mutex.Unlock()
	for _, request := range requests {
		nowNS := l.kernel.Now()
		l.fabric.Advance(nowNS)
		request(nowNS)
	}
}
