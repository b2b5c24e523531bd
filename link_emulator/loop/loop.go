// Package loop moves frames between devices and the fabric on one OS thread.
//
// The thread waits in epoll for readable devices, for the due time of the next frame (a timerfd) and for requests.
// Under load it reads the devices by time instead (see polling). It carries out requests between two frames (Do), so a
// change of the network is atomic with respect to traffic. It runs with real-time priority where that is granted. Its
// busy-waiting is bounded to a small share of the time, and it sleeps now and then even under constant load.
package loop

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/realtime"
)

const (
	// readBatch: after so many frames from one device, or what it hands over at once, it is the next one's turn.
	readBatch = 64
	// splitBatch: so many frames that were handed over at once are taken before others may be due.
	splitBatch = 16
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

	relaxed    bool  // see Collect
	moved      bool  // the last turn had events
	more       bool  // the last poll left frames in a device, or did not look at each
	armedNS    int64 // what the timer is set to, expired or not; 0: not set
	polledNS   int64 // when the devices were last polled
	advancedNS int64 // when frames were last moved while a device is read
	polling    polling
	changes    uint64 // of the fabric, that polling knows
	idleDebt   idleDebt
	busyWait   busyWait
	timerTook  timerLatency
	counts     Counts

	events  [maxEvents]unix.EpollEvent
	scratch [framepool.MaxFrame]byte // what was read from a device with offload
	spare   [framepool.MaxFrame]byte // a frame that has no room elsewhere
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
	if changes := l.fabric.Changes(); changes != l.changes {
		l.changes = changes
		l.setPolling()
	}
	beforeNS := l.kernel.Now()
	l.idleDebt.noteBusy(beforeNS)
	n, slept, timerNS, err := l.await(beforeNS)
	if err != nil {
		return false, err
	}
	nowNS := l.kernel.Now()
	if timerNS > beforeNS {
		l.timerTook.took(nowNS - timerNS)
	}
	if slept {
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

// await returns the number of events, whether the thread gave up its core, and the time at which a timer ended that
// sleep, or 0. It returns at once if a frame is due soon or if there are events. Otherwise it sleeps until the thread
// must run for the next frame.
//
// After a turn with events it polls before it sets the timer: under load there usually are more, and setting the timer
// is the most expensive part of a turn. While the loop polls by time, frames that come do not end a sleep.
func (l *Loop) await(nowNS int64) (n int, slept bool, timerNS int64, err error) {
	dueNS, some := l.fabric.NextDue() // 0 when nothing is due
	if some {
		dueNS -= l.busyWait.lead(nowNS, dueNS, l.timerTook.ns)
	}
	soon := some && dueNS <= nowNS+soonNS
	byTime := l.polling.judge(l.polledNS) && !l.relaxed
	waits := byTime && nowNS < l.polling.nextNS && !l.more
	switch {
	case soon && (waits || nowNS-l.polledNS < pollIntervalNS):
		return 0, false, 0, nil
	case waits:
		return l.doze(nowNS, dueNS)
	}
	l.polledNS = nowNS
	if soon || l.moved || byTime {
		n, err = l.wait(0)
		if soon || n > 0 || byTime || err != nil {
			return n, false, 0, err
		}
	}
	if dueNS != l.armedNS {
		if errno := l.kernel.Arm(dueNS); errno != 0 {
			return 0, false, 0, fmt.Errorf("timerfd_settime to %d: %w", dueNS, errno)
		}
		l.armedNS = dueNS
	}
	switches := l.kernel.Switches()
	n, err = l.wait(-1)
	if slept = l.kernel.Switches() > switches; slept && n == 1 && l.events[0].Fd == TimerExpired {
		timerNS = l.armedNS
	}
	return n, slept, timerNS, err
}

// wait returns the number of events: those at hand if timeoutMS is 0, the first if it is -1.
func (l *Loop) wait(timeoutMS int) (n int, err error) {
	n, errno := l.kernel.Wait(l.events[:], timeoutMS, l.relaxed)
	if errno != 0 && errno != unix.EINTR {
		return 0, fmt.Errorf("epoll_wait: %w", errno)
	}
	l.more = n == len(l.events)
	return n, nil
}

// doze sleeps until the devices are to be polled, or a frame is due at dueNS (0: none is), unless there are requests.
func (l *Loop) doze(nowNS, dueNS int64) (n int, slept bool, timerNS int64, err error) {
	timerNS = l.polling.nextNS
	if dueNS != 0 {
		timerNS = min(timerNS, dueNS)
	}
	if l.kernel.Doze(timerNS - nowNS) {
		n, err = l.wait(0)
		return n, false, 0, err
	}
	return 0, true, timerNS, nil
}

// read reads up to a batch of frames from a device; false when the device has disappeared. Frames that become due
// meanwhile go out first, so that frames enter a shared link in the order of their times; where they are late already,
// not more often than every batchNS.
func (l *Loop) read(port *Port) bool {
	l.advancedNS = 0
	for count := 0; count < readBatch; {
		nowNS := l.kernel.Now()
		l.catchUp(nowNS)
		frames, errno := l.readOnce(port)
		switch errno {
		case 0:
			count += frames
			if !port.prompt {
				l.polling.frames++
			}
		case unix.EAGAIN, unix.EINTR:
			port.release(nowNS, errno == unix.EAGAIN)
			return true
		default:
			port.gone = errno
			return false
		}
	}
	port.release(0, false)
	l.more = true
	return true
}

// catchUp moves what is due, while frames are read.
func (l *Loop) catchUp(nowNS int64) {
	if dueNS, some := l.fabric.NextDue(); some && dueNS <= nowNS &&
		(nowNS-dueNS < behindNS || nowNS-l.advancedNS >= batchNS) {
		l.fabric.Advance(nowNS)
		l.advancedNS = l.kernel.Now()
	}
}

// readOnce reads what a device has next: a frame, or several that were handed over at once. It returns how many, or 1
// for what is none.
func (l *Loop) readOnce(port *Port) (frames int, errno unix.Errno) {
	if port.offload == nil {
		buffer := l.room(port, 0)
		length, errno := port.device.Read(buffer)
		if errno == 0 {
			frame := buffer[:length]
			arrivedNS, exact := port.arrival(frame, length == len(buffer))
			if !exact {
				l.fabric.Unmatched(port.fabricPort)
			}
			l.fabric.Ingress(port.fabricPort, frame, arrivedNS)
		}
		return 1, errno
	}
	piece, ok, errno := port.offload.Read(l.scratch[:])
	if errno != 0 {
		return 0, errno
	}
	arrivedNS, exact := port.arrival(piece.Bytes(), false)
	if !ok {
		l.fabric.Malformed(port.fabricPort)
		return 1, 0
	}
	for ; ; frames++ {
		if frames%splitBatch == splitBatch-1 {
			l.catchUp(l.kernel.Now())
		}
		frame := piece.Next(l.room(port, piece.MostBytes()))
		if frame == nil {
			return frames, 0
		}
		if !exact {
			l.fabric.Unmatched(port.fabricPort)
		}
		if piece.Partial() {
			l.fabric.IngressPartial(port.fabricPort, frame, arrivedNS)
		} else {
			l.fabric.Ingress(port.fabricPort, frame, arrivedNS)
		}
	}
}

// room is a buffer for the next frame from a port, of that many bytes at least.
func (l *Loop) room(port *Port, bytes int) []byte {
	if buffer := l.fabric.Room(port.fabricPort); buffer != nil && len(buffer) >= bytes {
		return buffer
	}
	return l.spare[:]
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

// setPolling finds which devices have to be read at once, and how rarely the others may be polled.
func (l *Loop) setPolling() {
	l.polling.everyNS, l.polling.nextNS = mostPollingNS, 0 // frames may be due sooner than they were
	for fd, w := range l.watched {
		if w.port == nil || w.process {
			continue
		}
		halfNS := w.port.fabricPort.LeastDelayNS() / 2
		prompt := w.port.stamps == nil || halfNS < leastPollingNS // without a stamp, a frame comes when it is read
		if !prompt {
			l.polling.everyNS = min(l.polling.everyNS, halfNS)
		}
		if w.port.prompt != prompt && l.kernel.EndsDoze(fd, prompt) == nil {
			w.port.prompt = prompt
		}
	}
}

// Kernel is what a loop needs of the operating system besides its devices. Package simulate has another one, in
// simulated time. All methods but Wake belong to the data thread; none of them allocates.
type Kernel interface {
	Now() int64 // CLOCK_MONOTONIC, ns
	// Wait fills events as epoll_wait(2) does; Fd is a descriptor that is watched, TimerExpired or Woken, each once.
	// relaxed: through the Go scheduler.
	Wait(events []unix.EpollEvent, timeoutMS int, relaxed bool) (int, unix.Errno)
	Arm(atNS int64) unix.Errno // sets the timer, or clears it if atNS is 0, and forgets an earlier expiration
	Sleep(ns int64)
	Doze(ns int64) (woken bool)       // Sleep that Wake ends, or a descriptor by EndsDoze
	Switches() int64                  // how often the thread gave up its core
	Wake()                            // makes Wait or Doze return, from any thread
	Watch(fd int) error               // Wait returns while the descriptor is readable
	EndsDoze(fd int, ends bool) error // so does Doze, or not any more
	Unwatch(fd int)
}

// What Wait reports beside descriptors.
const (
	TimerExpired = -1
	Woken        = -2
)

// system is the real kernel: epoll, a timerfd and an eventfd. Its system calls are raw: they bypass the Go scheduler on
// purpose; see realtime.Pin.
type system struct {
	epoll, timer, waker int
	dozing              int         // epoll of what ends a Doze
	usage               unix.Rusage // buffer for getrusage
}

func newSystem() (*system, error) {
	epoll, epollErr := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	dozing, dozingErr := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	timer, timerErr := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	waker, wakerErr := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	s := &system{epoll: epoll, dozing: dozing, timer: timer, waker: waker}
	return s, cmp.Or(
		os.NewSyscallError("epoll_create1", cmp.Or(epollErr, dozingErr)),
		os.NewSyscallError("timerfd_create", timerErr),
		os.NewSyscallError("eventfd", wakerErr),
		// Edge-triggered: one event per expiration and per Wake, which are not read.
		add(epoll, timer, TimerExpired, unix.EPOLLET),
		add(epoll, waker, Woken, unix.EPOLLET),
		add(dozing, waker, Woken, unix.EPOLLET),
	)
}

func (s *system) Now() int64     { return realtime.Now() }
func (s *system) Sleep(ns int64) { realtime.Sleep(ns) }

func (s *system) Wait(events []unix.EpollEvent, timeoutMS int, relaxed bool) (int, unix.Errno) {
	if relaxed {
		n, err := unix.EpollWait(s.epoll, events, timeoutMS)
		if err != nil {
			errno, _ := errors.AsType[unix.Errno](err)
			return 0, errno
		}
		return n, 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeoutMS), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (s *system) Arm(atNS int64) unix.Errno {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(atNS)}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(s.timer), unix.TFD_TIMER_ABSTIME,
		uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errno
}

// Switches are the voluntary context switches of the thread.
func (s *system) Switches() int64 {
	// fails for bad arguments only
	_, _, _ = unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&s.usage)), 0)
	return int64(s.usage.Nvcsw)
}

func (s *system) Wake() {
	one := [8]byte{0: 1}
	// The only possible error is EAGAIN, when the counter is full: then the thread wakes anyway.
	_, _ = unix.Write(s.waker, one[:])
}

// Doze implements Kernel by ppoll(2), which needs no timer. Reading the events clears that of Wake.
func (s *system) Doze(ns int64) (woken bool) {
	dozing, timeout := unix.PollFd{Fd: int32(s.dozing), Events: unix.POLLIN}, unix.NsecToTimespec(max(ns, 0))
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&dozing)), 1,
		uintptr(unsafe.Pointer(&timeout)), 0, 0, 0) // fails for bad arguments only
	if n == 1 {
		var events [8]unix.EpollEvent
		unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.dozing), uintptr(unsafe.Pointer(&events)),
			uintptr(len(events)), 0, 0, 0)
	}
	return n == 1
}

func (s *system) Watch(fd int) error { return add(s.epoll, fd, int32(fd), 0) }

func (s *system) EndsDoze(fd int, ends bool) error {
	if ends {
		return add(s.dozing, fd, int32(fd), 0)
	}
	return unix.EpollCtl(s.dozing, unix.EPOLL_CTL_DEL, fd, nil)
}

func add(epoll, fd int, reportedAs int32, more uint32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | more, Fd: reportedAs}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event))
}

// Unwatch is needed although a closed fd leaves the epoll set by itself: not while a forked process still holds it.
func (s *system) Unwatch(fd int) {
	for _, epoll := range [...]int{s.epoll, s.dozing} {
		_ = unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

const (
	// mostPollingNS bounds how long frames wait in the devices, so that their queues do not fill: 10,000 frames each.
	mostPollingNS = int64(1e6)
	// leastPollingNS: more often than this, the thread had better be woken.
	leastPollingNS = int64(100e3)
	// pollingFrames in a period make it worth to poll by time: a poll costs about as much as a wake-up.
	pollingFrames = 4
)

// polling decides whether the devices are polled by time. A frame needs to be read only before it is due at the end of
// its first link, because the kernel has stamped it as it came. So under load the devices are read once per period,
// half the shortest delay of a link, and frames that come do not wake the thread, as in drivers of network cards (NAPI
// of Linux). Devices with a shorter link are prompt: they wake it.
type polling struct {
	byTime  bool
	everyNS int64 // the period
	frames  int   // read in this one, not from prompt devices
	nextNS  int64 // when it is over
}

// judge decides once per period, when the devices were polled after its end.
func (p *polling) judge(polledNS int64) (byTime bool) {
	if polledNS >= p.nextNS {
		p.byTime = p.frames >= pollingFrames
		p.nextNS, p.frames = polledNS+p.everyNS, 0
	}
	return p.byTime
}

// How the data thread shares its core: when it wakes up for a frame, busy-waits, and sleeps.

const maxTimerNS = int64(60e3)

// timerLatency is the median of the last 64 times from a timer's expiry until the thread ran, at most maxTimerNS. It is
// updated every 8 times.
type timerLatency struct {
	ns     int64
	values [64]int64
	sorted [64]int64
	count  uint
}

func (l *timerLatency) took(ns int64) {
	l.values[l.count%uint(len(l.values))] = ns
	l.count++
	if l.count%8 != 0 {
		return
	}
	l.sorted = l.values
	filled := l.sorted[:min(l.count, uint(len(l.sorted)))]
	slices.Sort(filled)
	l.ns = max(0, min(filled[len(filled)/2], maxTimerNS))
}

// The thread may busy-wait for 1/busyWaitShare of the time. It saves up what it does not use, up to maxBudgetNS.
const (
	busyWaitShare = 25
	maxBudgetNS   = int64(200e3)
)

// busyWait is the budget for busy-waiting until a frame is due. Without a budget the thread would never sleep under
// steady load, with a frame due every few us. When the budget is used up, the timer is set to the due time itself and
// frames are late by a wake-up, which is short on a busy core.
type busyWait struct {
	budgetNS  int64 // time left for busy-waiting
	updatedNS int64 // time of the last call
	dueNS     int64 // the due time that is being busy-waited for; 0: none
}

// lead is how much earlier than dueNS the thread has to wake up: wantNS, or 0 when the budget is used up.
func (b *busyWait) lead(nowNS, dueNS, wantNS int64) int64 {
	// The busy-wait ended at the due time at the latest, however long ago the last call was.
	b.budgetNS -= max(min(nowNS, b.dueNS)-b.updatedNS, 0)
	b.budgetNS = min(b.budgetNS+(nowNS-b.updatedNS)/busyWaitShare, maxBudgetNS)
	b.updatedNS = nowNS
	if b.dueNS != dueNS {
		b.dueNS = 0
		if b.budgetNS < wantNS {
			return 0
		}
		if dueNS-wantNS <= nowNS {
			b.dueNS = dueNS
		}
	}
	return wantNS
}

const (
	// idleShare: the loop leaves one part in idleShare (7 %) of its core to other threads. The kernel throttles
	// real-time threads that leave less than 5 % of a second to others, in one piece (sched_rt_runtime_us; since Linux
	// 6.12 the fair server of each core). Many short sleeps are better than one stall of 50 ms. They also let a thread
	// run that was preempted on this core while it held a lock, such as a receiver its socket's.
	idleShare = 14
	// yieldNS is the length of one forced sleep.
	yieldNS = int64(60e3)
	// maxOwedNS bounds the debt: a thread that was stopped for seconds was not busy in them.
	maxOwedNS = 5 * yieldNS
	// maxSavedNS bounds the credit from long sleeps.
	maxSavedNS = int64(2e6)
	// switchNS is the part of a sleep that falling asleep and waking take: no other thread can use it.
	switchNS = int64(5e3)
)

// idleDebt is how long the thread still has to leave its core to others. Sleeps of any length pay it off, so a thread
// that sleeps often enough by itself is never forced to.
type idleDebt struct {
	owedNS  int64 // negative: credit
	sinceNS int64 // accounted up to here
}

// noteBusy records that the thread was busy until nowNS.
func (d *idleDebt) noteBusy(nowNS int64) {
	d.owedNS = min(d.owedNS+(nowNS-d.sinceNS)/(idleShare-1), maxOwedNS)
	d.sinceNS = nowNS
}

// noteIdle records that the thread slept until nowNS. A long wait is no sleep if the kernel processed frames in it on
// the thread's own time (softirqs): then the thread has not given up its core.
func (d *idleDebt) noteIdle(nowNS int64) {
	if free := nowNS - d.sinceNS - switchNS; free > 0 {
		d.owedNS = max(d.owedNS-free, -maxSavedNS)
		d.sinceNS = nowNS
	}
}

// mostlyBusy reports whether the thread was busy for so long that it has to sleep now.
func (d *idleDebt) mostlyBusy() bool { return d.owedNS >= yieldNS }
