package fabric

import "math"

// The schedule is a heap of directions, not of frames: each direction knows which of its frames is due next. Its size
// is the number of directions with frames in flight.

const unscheduled = -1

// reschedule moves d to the place of its next due frame, or removes it when it is empty. Must be called whenever that
// frame or its due time has changed.
func (f *Fabric) reschedule(d *Direction) {
	dueNS, some := d.line.Next()
	switch {
	case !some && d.position == unscheduled:
	case !some:
		f.unschedule(d)
	case d.position == unscheduled:
		d.dueNS = dueNS
		d.position = len(f.schedule)
		f.schedule = append(f.schedule, d)
		f.siftUp(d.position)
	default:
		d.dueNS = dueNS
		f.siftDown(d.position)
		f.siftUp(d.position)
	}
}

// NextDue is when Advance must be called next for every frame to be on time at its port; 0 and false when nothing is in
// flight. A frame that is due at a switch can wait: it enters its next link with its scheduled time, so it only has to
// be moved before anything can be due at the end of that link.
func (f *Fabric) NextDue() (dueNS int64, ok bool) {
	const never = math.MaxInt64
	if dueNS = f.earliest(0, never); dueNS == never {
		return 0, false
	}
	return dueNS, true
}

// earliest is the smaller of best and the first time at which the subheap of i needs an Advance.
func (f *Fabric) earliest(i int, best int64) int64 {
	if i >= len(f.schedule) || f.schedule[i].dueNS >= best {
		return best
	}
	d := f.schedule[i]
	slack := int64(0)
	if d.to.sw != nil {
		slack = d.to.sw.slackNS
	}
	best = min(best, d.dueNS+slack)
	return f.earliest(2*i+2, f.earliest(2*i+1, best))
}

func (f *Fabric) unschedule(d *Direction) {
	hole, last := d.position, len(f.schedule)-1
	f.swap(hole, last)
	f.schedule[last] = nil
	f.schedule = f.schedule[:last]
	d.position = unscheduled
	if hole < last {
		f.siftDown(hole)
		f.siftUp(hole)
	}
}

func (f *Fabric) before(i, j int) bool {
	a, b := f.schedule[i], f.schedule[j]
	return a.dueNS < b.dueNS || a.dueNS == b.dueNS && a.order < b.order
}

func (f *Fabric) swap(i, j int) {
	s := f.schedule
	s[i], s[j] = s[j], s[i]
	s[i].position, s[j].position = i, j
}

func (f *Fabric) siftUp(i int) {
	for i > 0 && f.before(i, (i-1)/2) {
		f.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (f *Fabric) siftDown(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(f.schedule); child++ {
			if f.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		f.swap(i, first)
		i = first
	}
}
