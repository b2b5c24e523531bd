// Package worldtest has a simulated world for tests: a virtual clock, virtual sockets, and a process that may be
// stopped at any time. One event happens after the other, each when everything that the one before has caused is over,
// and what happens at the same time is ordered by a seed: the seed alone replays a test.
package worldtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/world"
)

// World implements world.World. The process is all that uses these methods, the members are what serves connections of
// a Listener.
type World struct {
	T    *testing.T
	Seed uint64

	mu        sync.Mutex
	now       time.Duration
	outside   events        // of the network and the members
	process   events        // what the process is woken by
	resumes   time.Duration // the process is stopped until then
	draws     uint64
	over      bool // the test is done
	pollers   uint64
	steps     int
	step      func(number int) time.Duration
	stops     []Stop
	timers    int // of the process that are set
	open      int // pollers
	listeners map[netip.AddrPort]*Listener
	sockets   map[int]*Conn
	all       []*Conn
	cleanups  []func()
	atEnd     []func()
}

// Stop is a time in which the process did not run.
type Stop struct{ From, To time.Duration }

// begin is what a world's clock shows when it begins, and limit how long it lasts at most.
const (
	begin = 1000 * time.Second
	limit = time.Hour
)

// epoch is the time of day then, minus begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Run runs a test in a new world. It must leave no socket, poller, timer or goroutine behind.
func Run(t *testing.T, seed uint64, test func(t *testing.T, w *World)) {
	t.Helper()
	// What one event wakes runs one after the other then, always in the same order.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		w := &World{T: t, Seed: seed, now: begin,
			listeners: make(map[netip.AddrPort]*Listener), sockets: make(map[int]*Conn)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				for _, f := range slices.Backward(w.cleanups) {
					f()
				}
			}()
			test(t, w)
		}()
		w.drive(done)
	})
}

// Random is a source of numbers for one purpose, which no order of events changes.
func (w *World) Random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(w.Seed, purpose+1)) }

// drive lets one event happen after the other until the test is done.
func (w *World) drive(done <-chan struct{}) {
	for {
		synctest.Wait()
		select {
		case <-done:
			w.end()
			return
		default:
		}
		w.mu.Lock()
		e := w.next()
		if e == nil || w.now > begin+limit {
			fmt.Fprintf(os.Stderr, "seed %d: at %v the test waits for what never happens\n", w.Seed, w.now-begin)
			debug.SetTraceback("all") // what waits is in it
			panic("a simulated world has come to rest")
		}
		e.do()
		w.mu.Unlock()
	}
}

// end checks that nothing is left of the process, and ends the members.
func (w *World) end() {
	w.mu.Lock()
	w.over = true
	assert.That(w.T, len(w.sockets) == 0 && w.open == 0 && w.timers == 0,
		"seed %d: %d sockets, %d pollers and %d timers are left", w.Seed, len(w.sockets), w.open, w.timers)
	for _, c := range w.all {
		c.gone = true
		c.changed()
	}
	for e := w.next(); e != nil; e = w.next() {
		if e.late {
			e.do()
		}
	}
	w.mu.Unlock()
	for _, f := range w.atEnd {
		f()
	}
	synctest.Wait()
}

// Cleanup is that of a test, which takes part in the world.
func (w *World) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }

// AtEnd has a function called when the test is done, after which no goroutine of the members may wait. It must be
// called before.
func (w *World) AtEnd(f func()) { w.atEnd = append(w.atEnd, f) }

// next takes the event that happens next, and puts the clock to its time; nil: there is none.
func (w *World) next() *event {
	// What the process missed while it was stopped comes to it in any order.
	for len(w.process) > 0 && w.process[0].at < w.resumes {
		e := w.process.take()
		e.at, e.order = w.resumes, w.draw(w.resumes, e.from)
		w.process.add(e)
	}
	from := &w.outside
	if len(w.outside) == 0 || len(w.process) > 0 && w.process[0].compare(w.outside[0]) < 0 {
		from = &w.process
	}
	if len(*from) == 0 {
		return nil
	}
	e := from.take()
	w.now = max(w.now, e.at)
	return e
}

// event is something that happens. do is called with the lock held and must not block.
type event struct {
	at    time.Duration
	from  uint64 // what it is of
	order uint64 // among those of the same time
	tie   int    // among those of the same order
	late  bool   // it happens also after the end, so that members see it
	do    func()
}

func (e *event) compare(other *event) int {
	return cmp.Or(cmp.Compare(e.at, other.at), cmp.Compare(e.order, other.order), cmp.Compare(e.tie, other.tie))
}

// events are in the order in which they happen.
type events []*event

func (e *events) add(added *event) {
	at, _ := slices.BinarySearchFunc(*e, added, (*event).compare)
	*e = slices.Insert(*e, at, added)
}

func (e *events) take() (first *event) {
	first, *e = (*e)[0], (*e)[1:]
	return first
}

// callOff keeps an event from happening; false: it has happened.
func (e *events) callOff(off *event) bool {
	at := slices.Index(*e, off)
	if at >= 0 {
		*e = slices.Delete(*e, at, at+1)
	}
	return at >= 0
}

// schedule lets something happen after d. Its order among what happens at the same time is drawn by what it is of, and
// not in the order in which goroutines happen to come here, which a busy machine changes. The caller holds the lock.
func (w *World) schedule(to *events, d time.Duration, from uint64, do func()) *event {
	return w.scheduleBy(0, to, d, from, do)
}

// scheduleBy is schedule for one of several goroutines that come from the same place.
func (w *World) scheduleBy(routine int, to *events, d time.Duration, from uint64, do func()) *event {
	e := &event{at: w.now + max(d, 0), from: from, tie: routine, do: do}
	e.order = w.draw(e.at, from)
	to.add(e)
	return e
}

// draw is a number that depends on the seed, the time and what it is for.
func (w *World) draw(at time.Duration, from uint64) uint64 {
	x := w.Seed
	for _, y := range []uint64{uint64(at), from} { // splitmix64
		x = (x ^ y) + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// callers are the numbers of functions by the places in them: looking a name up takes longer than most events.
var callers = struct {
	sync.Mutex
	numbers map[uintptr]uint64
}{numbers: make(map[uintptr]uint64)}

// caller is the function from which a method is called.
func caller() uint64 {
	var at [1]uintptr
	runtime.Callers(3, at[:])
	callers.Lock()
	defer callers.Unlock()
	number, known := callers.numbers[at[0]]
	if !known {
		frame, _ := runtime.CallersFrames(at[:]).Next()
		name := fnv.New64a()
		_, _ = name.Write([]byte(frame.Function)) // it cannot fail
		number = name.Sum64()
		callers.numbers[at[0]] = number
	}
	return number
}

// routine is the number of this goroutine: later ones have larger numbers. It takes as long as a stack trace.
func routine() (number int) {
	var text [32]byte
	_, _ = fmt.Sscanf(string(text[:runtime.Stack(text[:], false)]), "goroutine %d", &number)
	return number
}

// After calls f in a goroutine of its own after d, outside of the process.
func (w *World) After(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schedule(&w.outside, d, caller(), func() { go f() })
}

// Sleep blocks a goroutine that is not one of the process.
func (w *World) Sleep(d time.Duration) { w.sleep(routine(), caller(), d) }

// sleep is Sleep for one of several that come from the same place.
func (w *World) sleep(number int, from uint64, d time.Duration) {
	over := make(chan struct{})
	w.mu.Lock()
	if w.over {
		close(over)
	} else {
		w.scheduleBy(number, &w.outside, d, from, func() { close(over) }).late = true
	}
	w.mu.Unlock()
	<-over
}

// Await blocks a goroutine of the process, as one that waits for an answer does.
func (w *World) Await(d time.Duration) {
	over := make(chan struct{})
	w.mu.Lock()
	w.scheduleBy(routine(), &w.process, d, 1, func() { close(over) })
	w.mu.Unlock()
	<-over
}

// Until blocks a goroutine that is not one of the process until something holds, which is looked at every millisecond.
func (w *World) Until(condition func() bool) {
	for !condition() {
		w.Sleep(time.Millisecond)
	}
}

// Since is the time since the world began.
func (w *World) Since() time.Duration { return w.Now() - begin }

// StopProcess stops the process for a time, from now on.
func (w *World) StopProcess(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop(d)
}

func (w *World) stop(d time.Duration) {
	to := w.now + d
	w.stops = append(w.stops, Stop{w.now, to})
	w.resumes = max(w.resumes, to)
}

// Stops are the times in which the process was stopped, in the order in which they began, on the clock of Now. One may
// begin when another one ends, or before.
func (w *World) Stops() []Stop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stops)
}

// Busy keeps a goroutine of the process, and with it the only core, busy for a time.
func (w *World) Busy(d time.Duration) {
	w.mu.Lock()
	w.resumes = max(w.resumes, w.now+d)
	w.mu.Unlock()
	w.Await(d)
}

// StopIn stops the process within the calls of its event loops from now on, for the time that step gives for each, by
// its number.
func (w *World) StopIn(step func(number int) time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step, w.steps = step, 0
}

// called may stop the process within a call of an event loop.
func (w *World) called() {
	w.mu.Lock()
	w.steps++
	d := time.Duration(0)
	if w.step != nil {
		d = w.step(w.steps)
	}
	if d == 0 {
		w.mu.Unlock()
		return
	}
	over := make(chan struct{})
	w.stop(d)
	w.schedule(&w.process, d, 2, func() { close(over) })
	w.mu.Unlock()
	<-over
}

// Now and the following methods implement world.World.
func (w *World) Now() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *World) Wall() time.Time { return epoch.Add(w.Now()) }

func (w *World) Uint64() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draws++
	return w.draw(w.now, w.draws)
}

// Processor implements world.World: nothing is known of it.
func (w *World) Processor() world.Processor { return world.Processor{} }

func (w *World) NewTimer(d time.Duration) world.Timer {
	c, number, from := make(chan time.Time, 1), routine(), caller()
	fire := func() { c <- time.Time{} }
	stop := w.after(number, d, from, fire)
	return world.Timer{C: c, Stop: func() bool { return stop() }, Reset: func(d time.Duration) bool {
		was := stop()
		select {
		case <-c:
		default:
		}
		stop = w.after(number, d, from, fire)
		return was
	}}
}

func (w *World) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return w.after(routine(), d, caller(), func() { go f() })
}

// after sets a timer of the process, one of several that come from the same place.
func (w *World) after(number int, d time.Duration, from uint64, do func()) (stop func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timers++
	e := w.scheduleBy(number, &w.process, d, from, func() {
		w.timers--
		do()
	})
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		off := w.process.callOff(e)
		if off {
			w.timers--
		}
		return off
	}
}

// timed is a context with a timeout.
type timed struct{ context.Context }

func (t timed) Err() error {
	if errors.Is(context.Cause(t.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return t.Context.Err()
}

func (w *World) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	stop := w.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return timed{inner}, func() {
		stop()
		cancel(nil)
	}
}

// Stage is what a member does with a request.
type Stage int

const (
	Arrived Stage = iota
	CarriedOut
	Answered
)

// Member is what the members of stores have in common.
type Member struct {
	Listener *Listener
	Endpoint string
	// Think gives how long a request takes until it is carried out, and then until it is answered; nil: no time.
	Think func() (before, after time.Duration)
	// Watch is called with each write when it arrives, when it was carried out, and when it is answered; err is what it
	// was refused with. nil: it is not.
	Watch func(stage Stage, key string, value []byte, err error)

	w    *World // nil: the real world
	mu   sync.Mutex
	open []*Session
	over chan struct{} // closed when it hangs no more; nil: it does not hang
}

// Session is one connection of a Member.
type Session struct {
	*Conn
	Bye     func() // says that no more requests are taken; nil: the protocol cannot
	Leaving bool
	member  *Member
	active  int // requests
	taken   int // in all
}

// Request is what a Member works on.
type Request struct {
	Key      string
	Value    []byte                            // of a write; nil: it is another request
	CarryOut func() (answer []byte, err error) // err is what it is refused with
	Answer   func() error                      // nil: the answer is written as it is
}

// Start lets a member serve its connections with a function.
func (m *Member) Start(w *World, serve func(*Session)) {
	m.w = w
	m.Listener = w.Listen(func(c *Conn) {
		s := &Session{Conn: c, member: m}
		m.mu.Lock()
		m.open = append(m.open, s)
		m.mu.Unlock()
		serve(s)
		m.mu.Lock()
		m.open = slices.DeleteFunc(m.open, func(other *Session) bool { return other == s })
		m.mu.Unlock()
	})
	m.Endpoint = m.Listener.Endpoint
	w.AtEnd(m.Release)
}

// Take takes a request. What it gives carries the request out and answers it; with an error, the connection is at its
// end.
func (s *Session) Take(r Request) (rest func() error) {
	m, before, after := s.member, time.Duration(0), time.Duration(0)
	if m.Think != nil {
		before, after = m.Think()
	}
	note := func(stage Stage, err error) {
		if m.Watch != nil && r.Value != nil {
			m.Watch(stage, r.Key, r.Value, err)
		}
	}
	s.active++
	s.taken++
	request := s.taken
	sleep := func(d time.Duration) { m.w.sleep(request, s.number+2, d) } // Sleep would look its goroutine up
	note(Arrived, nil)
	return func() error {
		sleep(before)
		answer, err := r.CarryOut()
		note(CarriedOut, err)
		sleep(after)
		note(Answered, err)
		if r.Answer != nil {
			err = r.Answer()
		} else {
			_, err = s.Write(answer)
		}
		s.active--
		s.endIfLeft()
		return err
	}
}

// Exchange is all of Take, once the member does not hang.
func (s *Session) Exchange(r Request) error {
	carryOut := r.CarryOut
	r.CarryOut = func() ([]byte, error) {
		s.member.Pass()
		return carryOut()
	}
	return s.Take(r)()
}

func (s *Session) endIfLeft() {
	if s.Leaving && s.active == 0 {
		_ = s.Close() // it never fails
	}
}

// hanging is closed when the member does not hang any more; nil: it does not.
func (m *Member) hanging() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// Pass returns once the member does not hang.
func (m *Member) Pass() {
	if over := m.hanging(); over != nil {
		if <-over; m.w != nil {
			m.w.Sleep(0) // one after the other
		}
	}
}

// Hang makes the member answer nothing until Release.
func (m *Member) Hang() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == nil {
		m.over = make(chan struct{})
	}
}

// Hangs reports whether the member does.
func (m *Member) Hangs() bool { return m.hanging() != nil }

// Release undoes Hang.
func (m *Member) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil {
		close(m.over)
		m.over = nil
	}
}

// Stop ends the member: its connections are cut and new ones refused.
func (m *Member) Stop() {
	m.Listener.Refuse(true)
	m.Listener.Reset()
	m.Release()
}

// Leave ends the member's connections in order: requests that it works on are still answered.
func (m *Member) Leave() {
	m.mu.Lock()
	open := slices.Clone(m.open)
	m.mu.Unlock()
	for _, s := range open {
		if s.Leaving = true; s.Bye != nil {
			s.Bye()
		}
		s.endIfLeft()
	}
}
