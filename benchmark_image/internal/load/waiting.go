package load

import (
	"sync"
	"time"
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

// waiting lets clients of an open loop claim the requests of the schedule in order, and wakes them in time.
type waiting struct {
	mu      sync.Mutex
	next    int // number of the next request
	queue   []waiter
	first   int // of queue
	ended   bool
	arrived chan struct{} // capacity 1: the queue is no longer empty, or has ended
	pauses  pauses
	rests   rests
}

// claim gives the client the next request. Starts never decrease, so the queue is in their order.
func (w *waiting) claim(pacer Pacer, client int, elapsed func() time.Duration, wake func(int)) (claimed claim, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := elapsed()
	start, more := pacer.Pace(w.next, now)
	if !more || w.ended {
		return claim{}, false
	}
	number := w.next
	w.next++
	if start <= now {
		own := now-start > LateAfter && (w.pauses.cover(start, now) || w.rests.mostlyBusy(start, now))
		return claim{number: number, start: start, own: own}, true
	}
	w.rests.forget(now)
	if w.first == len(w.queue) {
		w.queue, w.first = w.queue[:0], 0
		w.signal()
	}
	w.queue = append(w.queue, waiter{client, start, wake})
	return claim{number: number, start: start, wait: true, own: true}, true
}

func (w *waiting) signal() {
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// head gives the waiter that is due first, and takes it from the queue if it is due already.
func (w *waiting) head(now time.Duration) (head waiter, due, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == len(w.queue) {
		return waiter{}, false, false
	}
	head = w.queue[w.first]
	if due = head.start <= now; due {
		w.first++
		if w.first > 1024 && w.first > len(w.queue)/2 {
			w.queue, w.first = append(w.queue[:0], w.queue[w.first:]...), 0
		}
	}
	return head, due, true
}

// end makes claim refuse from now on and gives the waiters that are left.
func (w *waiting) end() []waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	left := w.queue[w.first:]
	w.queue, w.first = nil, 0
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
	w.rests.add(from, to)
}

// beat notes that the process runs, and by when it is to run next.
func (w *waiting) beat(now, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pauses.beat(now, next)
}

// serve wakes the waiters until end is called, and then the last of them.
func (w *waiting) serve(a *alarm, elapsed func() time.Duration) error {
	for {
		head, due, any := w.head(elapsed())
		switch {
		case due:
			head.wake(head.client)
		case any:
			if err := a.sleep(head.start - elapsed()); err != nil && !w.hasEnded() {
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
