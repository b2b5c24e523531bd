package load

import "time"

// rests are the times in which a transport had nothing to do, because all that was under way waited for the members.
type rests struct {
	total time.Duration
	marks []mark // in order; none: the transport does not tell
}

// mark is how much rest there was until a time.
type mark struct{ at, total time.Duration }

// markDistance bounds how many marks there are; a rest is known as exactly as that.
const markDistance = time.Millisecond

// add notes a rest. Rests are in order.
func (r *rests) add(from, to time.Duration) {
	r.total += to - from
	if n := len(r.marks); n == 0 || to-r.marks[n-1].at >= markDistance {
		r.marks = append(r.marks, mark{to, r.total})
	}
}

// forget drops what is not needed for starts from this one on.
func (r *rests) forget(start time.Duration) {
	for len(r.marks) > 1 && r.marks[1].at <= start {
		r.marks = r.marks[1:]
	}
}

// mostlyBusy tells whether the transport had something to do for most of the time from a start until now. Starts must not fall from
// one call to the next.
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
