package load

import (
	"math"
	"sort"
	"sync"
	"time"
)

// waiter is a client that is free before the intended start of its next request.
type waiter struct {
	client int
	start  time.Duration
}

// lane is the requests of a schedule that go to one member, and the clients that send only these: while that member
// stalls, its own requests wait for it, and no others.
type lane struct {
	next    int           // number of the next request
	claimed time.Duration // intended start of the latest one; those to come are not before it
	queue   []waiter      // in the order of their starts
	first   int           // of queue
}

// lanes let clients of an open loop claim the requests of the schedule, those of a lane in order.
type lanes struct {
	mu     sync.Mutex
	lanes  []lane // with n of them, lane i has the requests i, i+n, i+2n and so on, and likewise the clients
	pauses pauses
	rests  rests
}

func (s *lanes) init(lanes int) {
	s.lanes = make([]lane, lanes)
	for i := range s.lanes {
		s.lanes[i].next = i
	}
}

// claim gives the client the next request of its lane; where the intended start is in the future, it is also among
// those that head gives. In a lane, starts never decrease.
func (s *lanes) claim(plan *plan, client int, r *Request, elapsed func() time.Duration) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := elapsed()
	l := &s.lanes[client%len(s.lanes)]
	start, more, skip := plan.pace(l.next, now)
	if !more && l.next < skip {
		l.next += (skip - l.next + len(s.lanes) - 1) / len(s.lanes) * len(s.lanes)
		start, more, _ = plan.pace(l.next, now)
	}
	if !more {
		l.claimed = math.MaxInt64
		return false
	}
	r.Number, r.start, r.waited, r.own = l.next, start, start > now, true
	l.next += len(s.lanes)
	l.claimed = start
	if !r.waited {
		r.own = now-start > LateAfter && (s.pauses.cover(start, now) || s.rests.mostlyBusy(start, now))
		return true
	}
	if l.first == len(l.queue) {
		l.queue, l.first = l.queue[:0], 0
	}
	l.queue = append(l.queue, waiter{client, start})
	return true
}

// head gives the waiter that is due first, of all lanes, and its lane; nil: none waits.
func (s *lanes) head() (head waiter, of *lane) {
	for i := range s.lanes {
		l := &s.lanes[i]
		if l.first < len(l.queue) && (of == nil || l.queue[l.first].start < head.start) {
			head, of = l.queue[l.first], l
		}
	}
	return head, of
}

func (l *lane) take() {
	l.first++
	if l.first > 1024 && l.first > len(l.queue)/2 {
		l.queue, l.first = append(l.queue[:0], l.queue[l.first:]...), 0
	}
}

// rest notes when the transport was idle.
func (s *lanes) rest(from, to time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rests.add(from, to); len(s.rests.marks) > maxMarks {
		s.rests.forget(s.settled())
	}
}

// beat notes that the process runs, and by when it is to run next.
func (s *lanes) beat(now, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pauses.beat(now, next) {
		s.pauses.forget(s.settled())
	}
}

// settled is the intended start before which no lane has a request that may still be late.
func (s *lanes) settled() time.Duration {
	settled := s.lanes[0].claimed
	for i := range s.lanes {
		settled = min(settled, s.lanes[i].claimed)
	}
	return settled
}

// pauses are the times in which the process did not run although it had something to do: it was stopped, or the machine
// was busy with other work. A goroutine that runs periodically detects them, because all it ever waits for is a core.
type pauses struct {
	expected time.Duration // when it is to run next; 0: it has not started
	known    []pause       // in order, without those that forget dropped
}

type pause struct{ from, to time.Duration }

// beatInterval is how often the goroutine is to run.
const beatInterval = LateAfter

// Pauses sums up the times in which the process did not run although it had something to do.
type Pauses struct {
	Longest time.Duration // also where it is too short to be counted
	Count   int           // of those longer than LateAfter
	Sum     time.Duration // of these
}

// add notes how late the goroutine ran.
func (p *Pauses) add(late time.Duration) {
	p.Longest = max(p.Longest, late)
	if late > LateAfter {
		p.Count++
		p.Sum += late
	}
}

// beat notes that the goroutine runs, and when it is to run next. It returns true when a pause has ended.
func (p *pauses) beat(now, next time.Duration) (paused bool) {
	if paused = p.expected != 0 && now-p.expected > LateAfter; paused {
		p.known = append(p.known, pause{p.expected, now})
	}
	p.expected = next
	return paused
}

// forget drops the pauses that later starts do not need.
func (p *pauses) forget(start time.Duration) {
	for len(p.known) > 0 && p.known[0].to < start {
		p.known = p.known[1:]
	}
}

// cover tells whether an intended start falls into a pause, also into one whose end the goroutine has not noted yet.
func (p *pauses) cover(start, now time.Duration) bool {
	i := sort.Search(len(p.known), func(i int) bool { return p.known[i].to >= start })
	if i < len(p.known) && p.known[i].from <= start {
		return true
	}
	return p.expected != 0 && now-p.expected > LateAfter && start >= p.expected
}

// rests are the times in which a transport was idle, because all requests in flight waited for the members.
type rests struct {
	total time.Duration
	marks []mark // in order; none: the transport does not report them
}

// mark is the total idle time until a moment.
type mark struct{ at, total time.Duration }

// markDistance is the precision of idle times.
const markDistance = time.Millisecond

// maxMarks is how many marks are kept before those that are not needed are dropped.
const maxMarks = 4096

// add notes an idle time. Idle times are added in order.
func (r *rests) add(from, to time.Duration) {
	r.total += to - from
	if n := len(r.marks); n == 0 || to-r.marks[n-1].at >= markDistance {
		r.marks = append(r.marks, mark{to, r.total})
	}
}

// forget drops marks that later starts do not need, and where too many are left, because a member stalls for long,
// every second one.
func (r *rests) forget(start time.Duration) {
	if before := r.before(start); before > 0 {
		r.marks = append(r.marks[:0], r.marks[before:]...)
	}
	if len(r.marks) <= maxMarks/2 {
		return
	}
	kept := r.marks[:0]
	for i, m := range r.marks {
		if i%2 == 0 {
			kept = append(kept, m)
		}
	}
	r.marks = kept
}

// before is the index of the latest mark that is not after a time; -1: there is none.
func (r *rests) before(at time.Duration) int {
	return sort.Search(len(r.marks), func(i int) bool { return r.marks[i].at > at }) - 1
}

// mostlyBusy tells whether the transport was busy for most of the time from a start until now.
func (r *rests) mostlyBusy(start, now time.Duration) bool {
	if len(r.marks) == 0 {
		return false
	}
	before, until := r.before(start), time.Duration(0)
	if before >= 0 {
		until = r.marks[before].total
	}
	rest := r.total - until
	if after := before + 1; after < len(r.marks) {
		// Of the idle time that spans the start, what lies before it does not count.
		first := r.marks[after]
		rest -= max(first.total-until-(first.at-start), 0)
	}
	return 2*rest < now-start
}
