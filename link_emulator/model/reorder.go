package model

// With reordering, frames leave a line by due time. They stay in the ring in order of arrival, which the queue and Set
// need; in addition, a heap orders their positions by due time. A frame that left out of order keeps its slot, marked
// as gone, until those ahead of it have left.

// setOvertaking turns the heap on, or off once it is empty: frames may still overtake when reordering is turned off.
func (l *Line) setOvertaking(reorder bool) {
	if !reorder && !l.overtaking {
		return
	}
	l.overtaking = reorder || l.count > 0
	l.heap = l.heap[:0]
	if !l.overtaking {
		return
	}
	for position := l.head; position < l.tail; position++ {
		if !l.at(position).gone {
			l.enter(position)
		}
	}
}

// latestDue is the latest due time of the frames before position end; 0 when there are none.
func (l *Line) latestDue(end uint64) (dueNS int64) {
	if !l.overtaking {
		if end > l.head {
			return l.at(end - 1).DueNS
		}
		return 0
	}
	for position := l.head; position < end; position++ {
		if f := l.at(position); !f.gone {
			dueNS = max(dueNS, f.DueNS)
		}
	}
	return dueNS
}

// remove frees the slot of a frame that was popped, and the slots of gone frames right behind it.
func (l *Line) remove(position uint64) {
	if position != l.head {
		l.at(position).gone = true
		return
	}
	l.head++
	for l.overtaking && l.head < l.tail && l.at(l.head).gone {
		l.head++
	}
	if l.overtaking && l.count == 0 && !l.params.Jitter.Reorder {
		l.overtaking = false
	}
}

// earlier orders the heap; frames due at the same time leave in order of arrival.
func (l *Line) earlier(a, b uint32) bool {
	dueA, dueB := l.at(uint64(a)).DueNS, l.at(uint64(b)).DueNS
	return dueA < dueB || dueA == dueB && int32(a-b) < 0
}

func (l *Line) enter(position uint64) {
	l.heap = append(l.heap, uint32(position))
	h := l.heap
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !l.earlier(h[i], h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// takeEarliest pops the heap and returns the position. The ring is shorter than 2^32, so the lower 32 bits identify a
// position.
func (l *Line) takeEarliest() uint64 {
	h := l.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	l.heap = h[:last]
	h = l.heap
	for i := 0; ; {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if l.earlier(h[child], h[first]) {
				first = child
			}
		}
		if first == i {
			break
		}
		h[i], h[first] = h[first], h[i]
		i = first
	}
	return l.head + uint64(top-uint32(l.head))
}
