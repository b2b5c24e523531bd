package load

import "time"

// rests are the times in which a transport was idle, because all requests in flight waited for the members.
type rests struct {
	total time.Duration
	marks []mark // in order; none: the transport does not report them
}

// mark is the total idle time until a moment.
type mark struct{ at, total time.Duration }

// markDistance bounds how many marks there are; it is the precision of idle times.
const markDistance = time.Millisecond

// add notes an idle time. Idle times are added in order.
func (r *rests) add(from, to time.Duration) {
	r.total += to - from
	if n := len(r.marks); n == 0 || to-r.marks[n-1].at >= markDistance {
		r.marks = append(r.marks, mark{to, r.total})
	}
}

// forget drops marks that later starts do not need.
func (r *rests) forget(start time.Duration) {
	for len(r.marks) > 1 && r.marks[1].at <= start {
		r.marks = r.marks[1:]
	}
}

// mostlyBusy tells whether the transport was busy for most of the time from a start until now. Starts must not decrease
// from one call to the next.
func (r *rests) mostlyBusy(start, now time.Duration) bool {
	r.forget(start)
	if len(r.marks) == 0 {
		return false
	}
	rest := r.total
	if first := r.marks[0]; first.at <= start {
		rest -= first.total
	}
	return 2*rest < now-start
}
