package model

// MaxInFlight bounds the frames that one direction holds, waiting and in the delay line together. It bounds the memory of
// the ring (24 MiB) when a broadcast storm makes many lines hold the same few stored frames.
const MaxInFlight = 1 << 20

// Verdict is what became of an offered frame.
type Verdict uint8

const (
	Accepted  Verdict = iota
	QueueFull         // the queue limit is reached
	LineFull          // MaxInFlight is reached
)

// Frame is one frame on the line: an opaque handle of the caller, its length, and when it reaches the far end.
type Frame struct {
	DueNS  int64
	startN int64 // when it starts onto the wire (the serializer takes it)
	Handle uint32
	Bytes  uint32
}

// Line is one direction of a link. A frame offered at t departs the serializer at
//
//	s = max(t, departure of the frame before it) + 8*bytes/rate     (rate unlimited: s = max(t, that departure))
//
// and is due at s + delay, never before the frame ahead of it. Departures are kept as exact fractions, so rounding
// never adds up; a due time is rounded up to the next nanosecond, never down. Frames between offer and start wait: the
// queue limit counts them and only them. Times must be >= 0; an offer earlier than the one before it is
// treated like any other (it finds the serializer taken).
//
// The zero Line is unlimited and without delay; use Set. Not safe for concurrent use.
type Line struct {
	asked     Params // as given, QueueFrames may be 0
	params    Params // resolved
	departNS  int64  // departure of the last accepted frame is departNS + departRem/rate
	departRem int64
	lastDueNS int64

	ring    []Frame // power of two; positions below are absolute and masked
	head    uint64  // oldest frame on the line
	waiting uint64  // oldest frame that had not started when last looked at
	tail    uint64

	highWater int
}

// Params is what the direction holds now, the default queue limit filled in.
func (l *Line) Params() Params { return l.params.Resolved() }

// Asked is what was last given to Set: QueueFrames is 0 where the default was asked for.
func (l *Line) Asked() Params { return l.asked }

// Len is the number of frames on the line, waiting or travelling.
func (l *Line) Len() int { return int(l.tail - l.head) }

// HighWater is the largest number of frames that ever waited at once.
func (l *Line) HighWater() int { return l.highWater }

// Offer puts a frame on the line at nowNS. Only Accepted takes the handle over.
func (l *Line) Offer(nowNS int64, handle uint32, bytes int) Verdict {
	if l.tail-l.head >= MaxInFlight {
		return LineFull
	}
	startNS := nowNS
	if busy := l.departCeil(); busy > nowNS {
		startNS = busy
		if waiting := l.Waiting(nowNS); waiting >= l.params.QueueFrames {
			return QueueFull
		} else if waiting+1 > l.highWater {
			l.highWater = waiting + 1
		}
	} else {
		l.departNS, l.departRem = nowNS, 0
	}
	l.serialize(bytes)
	l.lastDueNS = max(l.lastDueNS, l.departCeil()+l.params.DelayNS)
	l.push(Frame{DueNS: l.lastDueNS, startN: startNS, Handle: handle, Bytes: uint32(bytes)})
	return Accepted
}

// Waiting is the number of frames that have not started onto the wire at nowNS.
func (l *Line) Waiting(nowNS int64) int {
	for l.waiting < l.tail && l.at(l.waiting).startN <= nowNS {
		l.waiting++
	}
	return int(l.tail - l.waiting)
}

// Next is when the oldest frame is due; false when the line is empty.
func (l *Line) Next() (dueNS int64, ok bool) {
	if l.head == l.tail {
		return 0, false
	}
	return l.at(l.head).DueNS, true
}

// Pop takes the oldest frame off. The caller must have seen that it is due; the line must not be empty.
func (l *Line) Pop() Frame {
	f := *l.at(l.head)
	l.head++
	l.waiting = max(l.waiting, l.head)
	return f
}

// Set changes the parameters at nowNS. Frames that have started keep the times they have (they are on the wire already);
// frames that wait follow the new rate and delay from the end of the frame in service on. Order is kept: when the delay
// shrinks, what is travelling holds back what follows. Frames above a smaller queue limit stay.
// p must have passed Check.
func (l *Line) Set(nowNS int64, p Params) {
	first := l.tail - uint64(l.Waiting(nowNS))
	l.asked, l.params = p, p.Resolved()
	if first == l.tail {
		l.departNS, l.departRem = l.departCeil(), 0 // the remainder was a fraction of the old rate
		return
	}
	l.departNS, l.departRem = l.at(first).startN, 0
	l.lastDueNS = 0
	if first > l.head {
		l.lastDueNS = l.at(first - 1).DueNS
	}
	for i := first; i < l.tail; i++ {
		f := l.at(i)
		f.startN = l.departCeil()
		l.serialize(int(f.Bytes))
		l.lastDueNS = max(l.lastDueNS, l.departCeil()+l.params.DelayNS)
		f.DueNS = l.lastDueNS
	}
}

// Cut empties the line at nowNS, as a cable that is cut loses what is on it, and hands every frame to lost. The
// serializer is idle afterwards.
func (l *Line) Cut(nowNS int64, lost func(Frame)) {
	for l.head < l.tail {
		lost(l.Pop())
	}
	l.departNS, l.departRem, l.lastDueNS = nowNS, 0, nowNS
}

// serialize moves the departure on by the time that bytes take at the rate.
func (l *Line) serialize(bytes int) {
	if l.params.RateBPS == 0 {
		return
	}
	work := int64(bytes)*8*1e9 + l.departRem
	l.departNS += work / l.params.RateBPS
	l.departRem = work % l.params.RateBPS
}

func (l *Line) departCeil() int64 {
	if l.departRem > 0 {
		return l.departNS + 1
	}
	return l.departNS
}

func (l *Line) at(position uint64) *Frame { return &l.ring[position&uint64(len(l.ring)-1)] }

func (l *Line) push(f Frame) {
	if int(l.tail-l.head) == len(l.ring) {
		grown := make([]Frame, max(64, 2*len(l.ring)))
		for i := l.head; i < l.tail; i++ {
			grown[i&uint64(len(grown)-1)] = *l.at(i)
		}
		l.ring = grown
	}
	l.tail++
	*l.at(l.tail - 1) = f
}
