package load

import (
	"sort"
	"time"
)

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
	rest := r.total
	if before := r.before(start); before >= 0 {
		rest -= r.marks[before].total
	}
	return 2*rest < now-start
}
