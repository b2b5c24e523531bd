package load

import (
	"math"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/world"
)

// waiter is a client that is free before the intended start of its next request.
type waiter struct {
	client int
	start  time.Duration
	wake   func(client int)
}

// claim is the next request of a schedule.
type claim struct {
	number int
	start  time.Duration // intended
	wait   bool          // the intended start is in the future
	own    bool          // if it starts late, the generator is the cause
}

// lane is the requests of a schedule that go to one member, and the clients that send only these: while that member
// stalls, its own requests wait for it, and no others.
type lane struct {
	next    int           // number of the next request
	claimed time.Duration // intended start of the latest one; those to come are not before it
	queue   []waiter      // in the order of their starts
	first   int           // of queue
}

// waiting lets clients of an open loop claim the requests of the schedule, those of a lane in order, and wakes them in
// time.
type waiting struct {
	mu      sync.Mutex
	lanes   []lane // with n of them, lane i has the requests i, i+n, i+2n and so on, and likewise the clients
	alarm   world.Alarm
	armed   time.Duration // when the alarm goes off; 0: it is not waited for
	ended   bool
	arrived chan struct{} // capacity 1: a queue is no longer empty, or it has ended
	pauses  pauses
	rests   rests
}

func (w *waiting) init(lanes int) {
	w.lanes, w.arrived = make([]lane, lanes), make(chan struct{}, 1)
	for i := range w.lanes {
		w.lanes[i].next = i
	}
}

// claim gives the client the next request of its lane. In a lane, starts never decrease.
func (w *waiting) claim(plan *plan, client int, elapsed func() time.Duration, wake func(int)) (claimed claim,
	more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := elapsed()
	l := &w.lanes[client%len(w.lanes)]
	start, more, skip := plan.pace(l.next, now)
	if !more && l.next < skip {
		l.next += (skip - l.next + len(w.lanes) - 1) / len(w.lanes) * len(w.lanes)
		start, more, _ = plan.pace(l.next, now)
	}
	if !more || w.ended {
		l.claimed = math.MaxInt64
		return claim{}, false
	}
	number := l.next
	l.next += len(w.lanes)
	l.claimed = start
	if start <= now {
		own := now-start > LateAfter && (w.pauses.cover(start, now) || w.rests.mostlyBusy(start, now))
		return claim{number: number, start: start, own: own}, true
	}
	if l.first == len(l.queue) {
		l.queue, l.first = l.queue[:0], 0
		w.signal()
	}
	l.queue = append(l.queue, waiter{client, start, wake})
	if start < w.armed {
		w.arm(start, now)
	}
	return claim{number: number, start: start, wait: true, own: true}, true
}

// arm makes the alarm go off at a time; where it cannot be set, serve finds that out when it waits.
func (w *waiting) arm(at, now time.Duration) {
	w.armed = at
	w.alarm.Set(at - now)
}

func (w *waiting) signal() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// head gives the waiter that is due first, of all lanes, and takes it from its queue if it is due already; otherwise
// the alarm is set for it.
func (w *waiting) head(now time.Duration) (head waiter, due, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = 0
	var earliest *lane
	for i := range w.lanes {
		l := &w.lanes[i]
		if l.first < len(l.queue) && (earliest == nil || l.queue[l.first].start < head.start) {
			earliest, head = l, l.queue[l.first]
		}
	}
	if earliest == nil {
		return waiter{}, false, false
	}
	if due = head.start <= now; due {
		earliest.take()
	} else {
		w.arm(head.start, now)
	}
	return head, due, true
}

// take takes the first waiter off the queue.
func (l *lane) take() {
	l.first++
	if l.first > 1024 && l.first > len(l.queue)/2 {
		l.queue, l.first = append(l.queue[:0], l.queue[l.first:]...), 0
	}
}

// end makes claim refuse from now on and gives the waiters that are left.
func (w *waiting) end() (left []waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for i := range w.lanes {
		l := &w.lanes[i]
		left = append(left, l.queue[l.first:]...)
		l.queue, l.first = nil, 0
	}
	w.signal()
	return left
}

func (w *waiting) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// rest notes when the transport was idle.
func (w *waiting) rest(from, to time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rests.add(from, to); len(w.rests.marks) > maxMarks {
		w.rests.forget(w.settled())
	}
}

// beat notes that the process runs, and by when it is to run next.
func (w *waiting) beat(now, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses.beat(now, next) {
		w.pauses.forget(w.settled())
	}
}

// settled is the intended start before which no lane has a request that may still be late.
func (w *waiting) settled() time.Duration {
	settled := w.lanes[0].claimed
	for i := range w.lanes {
		settled = min(settled, w.lanes[i].claimed)
	}
	return settled
}

// serve wakes the waiters until end is called, and then the last of them.
func (w *waiting) serve(elapsed func() time.Duration) error {
	for {
		head, due, any := w.head(elapsed())
		switch {
		case due:
			head.wake(head.client)
		case any:
			if err := w.alarm.Wait(); err != nil && !w.hasEnded() {
				return err
			}
		default:
			<-w.arrived
		}
		if w.hasEnded() {
			return nil
		}
	}
}
