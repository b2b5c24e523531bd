package model

// MaxInFlight bounds the frames that one direction holds, waiting and in the delay line together. It bounds the memory of
// the ring (32 MiB) when a broadcast storm makes many lines hold the same few stored frames.
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
	DueNS   int64
	startNS int64 // when it starts onto the wire (the serializer takes it)
	Handle  uint32
	Bytes   uint32
	Lost    bool // the wire loses it: at DueNS it is gone
	gone    bool // taken off out of turn; see reorder.go
}

// moment is a time as an exact fraction of a nanosecond: ns + part/rate, the rate being the line's.
type moment struct{ ns, part int64 }

func (m moment) ceil() int64 {
	if m.part > 0 {
		return m.ns + 1
	}
	return m.ns
}

func (m moment) after(other moment) bool {
	return m.ns > other.ns || m.ns == other.ns && m.part > other.part
}

// Line is one direction of a link. A frame offered at t departs the serializer at
//
//	s = max(t, departure of the frame before it) + 8*bytes/rate     (rate unlimited: s = max(t, that departure))
//
// and is due at s + delay, where the delay is drawn for each frame if there is jitter. Without reordering it is never due before the
// frame ahead of it is, plus its own 8*bytes/rate: frames that jitter pushes together come out one after the other at
// the rate, not on top of each other. Frames that a change pushes together keep their order only; see Set. Times are kept as exact fractions,
// so rounding never adds up; a due time is rounded up to the next nanosecond, never down. Frames between offer and start wait: the queue limits count them and only them. Times must
// be >= 0; an offer earlier than the one before it is treated like any other (it finds the serializer taken).
//
// The zero Line needs a Set before its first Offer. Not safe for concurrent use.
type Line struct {
	Salt uint64 // sets the draws of this line apart from those of others with the same seed; to be set before the first Set

	asked       Params // as given
	params      Params // resolved
	limitFrames int
	limitBytes  int64
	chance      chance
	depart      moment // departure of the last accepted frame
	last        moment // due time of the last accepted frame; with reordering, the latest of all
	paced       moment // the frame after it is due no sooner than it takes at the rate after this: last, unless a change cut that short

	ring    []Frame // power of two; positions below are absolute and masked
	head    uint64  // oldest frame on the line
	waiting uint64  // oldest frame that had not started when last looked at
	tail    uint64
	count   int // frames on the line: those between head and tail that have not gone

	overtaking bool     // frames are taken off by due time, not by position
	heap       []uint32 // positions by due time, while overtaking

	waitingBytes   int64 // of the frames from waiting to tail
	highWater      int
	highWaterBytes int64
}

// Params is what the direction holds now, with the default queue limit filled in.
func (l *Line) Params() Params { return l.params }

// Asked is what was last given to Set.
func (l *Line) Asked() Params { return l.asked }

// Len is the number of frames on the line, waiting or travelling.
func (l *Line) Len() int { return l.count }

// HighWater is the largest number of frames, and of bytes, that waited at once since the last ResetHighWater.
func (l *Line) HighWater() (frames int, bytes int64) { return l.highWater, l.highWaterBytes }

// ResetHighWater begins with what waits at nowNS.
func (l *Line) ResetHighWater(nowNS int64) {
	l.highWater = l.Waiting(nowNS)
	l.highWaterBytes = l.waitingBytes
}

// Offer puts a frame on the line at nowNS. Only Accepted takes the handle over.
func (l *Line) Offer(nowNS int64, handle uint32, bytes int) Verdict {
	if l.tail-l.head >= MaxInFlight {
		return LineFull
	}
	startNS := nowNS
	if busy := l.depart.ceil(); busy > nowNS {
		startNS = busy
		waiting := l.Waiting(nowNS)
		if waiting >= l.limitFrames || l.waitingBytes+int64(bytes) > l.limitBytes {
			return QueueFull
		}
		l.highWater = max(l.highWater, waiting+1)
		l.highWaterBytes = max(l.highWaterBytes, l.waitingBytes+int64(bytes))
	} else {
		l.depart = moment{ns: nowNS}
	}
	frame := Frame{startNS: startNS, Handle: handle, Bytes: uint32(bytes)}
	frame.DueNS = l.schedule(bytes, l.tail)
	frame.Lost = l.params.Loss.Model != NoLoss && l.chance.lost(&l.params.Loss, l.tail)
	l.push(frame)
	return Accepted
}

// Waiting is the number of frames that have not started onto the wire at nowNS.
func (l *Line) Waiting(nowNS int64) int {
	for l.waiting < l.tail && l.at(l.waiting).startNS <= nowNS {
		l.start()
	}
	return int(l.tail - l.waiting)
}

// start moves the frame that waits first onto the wire.
func (l *Line) start() {
	l.waitingBytes -= int64(l.at(l.waiting).Bytes)
	l.waiting++
}

// Next is when the next frame is due; false when the line is empty.
func (l *Line) Next() (dueNS int64, ok bool) {
	switch {
	case l.count == 0:
		return 0, false
	case l.overtaking:
		return l.at(uint64(l.heap[0])).DueNS, true
	}
	return l.at(l.head).DueNS, true
}

// Pop takes the frame off that is due next. The caller must have seen that it is due; the line must not be empty.
func (l *Line) Pop() Frame {
	position := l.head
	if l.overtaking {
		position = l.takeEarliest()
	}
	f := *l.at(position)
	for l.waiting <= position {
		l.start()
	}
	l.count--
	l.remove(position)
	return f
}

// Set changes the parameters at nowNS. Frames that have started keep the times they have (they are on the wire already);
// frames that wait follow the new rate and delay from the end of the frame in service on; who is lost stays lost. Frames above a smaller queue limit
// stay. Another seed restarts the draws; what waits keeps its own. p must have passed Check.
//
// Order is kept: when the delay or the jitter's reach shrinks, what is travelling on the longer wire holds back what follows, and that
// comes right behind it, all at one moment: the serializer has spaced it already. Spacing it again would keep the old delay for as
// long as the link is busy.
func (l *Line) Set(nowNS int64, p Params) {
	first := l.tail - uint64(l.Waiting(nowNS))
	l.asked, l.params = p, p.Resolved()
	l.limitFrames, l.limitBytes = l.params.QueueFrames, l.params.QueueBytes
	if l.limitFrames == 0 {
		l.limitFrames = MaxInFlight
	}
	if l.limitBytes == 0 {
		l.limitBytes = MaxQueueBytes * 10 // more than MaxInFlight frames are long
	}
	// The fractions were of the old rate.
	l.depart = moment{ns: l.depart.ceil()}
	l.last = moment{ns: l.last.ceil()}
	if first < l.tail {
		l.depart = moment{ns: l.at(first).startNS}
		l.last = moment{ns: l.latestDue(first)}
	}
	// No later than the new parameters could have made it.
	l.paced = moment{ns: min(l.last.ns, l.depart.ns+l.params.DelayNS+l.params.Jitter.ReachNS())}
	for i := first; i < l.tail; i++ {
		f := l.at(i)
		f.startNS = l.depart.ceil()
		f.DueNS = l.schedule(int(f.Bytes), i)
	}
	l.setOvertaking(p.Jitter.Reorder)
	if l.chance.random == nil || p.Seed != l.chance.seed {
		l.Restart()
	}
}

// Restart begins the draws anew, from the seed, with the next frame that is offered. Those that wait keep their own.
func (l *Line) Restart() { l.chance.restart(l.params.Seed, l.Salt, l.tail) }

// Cut empties the line at nowNS, as a cable that is cut loses what is on it, and hands every frame to lost. The
// serializer is idle afterwards.
func (l *Line) Cut(nowNS int64, lost func(Frame)) {
	for l.count > 0 {
		lost(l.Pop())
	}
	now := moment{ns: nowNS}
	l.depart, l.last, l.paced = now, now, now
}

// schedule moves the departure on by the time that the bytes of the frame at position take at the rate, and returns when it is due at the far end.
func (l *Line) schedule(bytes int, position uint64) int64 {
	var took moment
	if rate := l.params.RateBPS; rate != 0 {
		work := int64(bytes) * 8 * 1e9
		took = moment{work / rate, work % rate}
		l.depart = l.add(l.depart, took)
	}
	due := l.depart
	due.ns += l.chance.delay(&l.params, position)
	if l.params.Jitter.Reorder {
		if due.after(l.last) {
			l.last = due
		}
		return due.ceil()
	}
	if held := l.add(l.paced, took); held.after(due) {
		due = held
	}
	l.paced = due
	if l.last.after(due) {
		due = l.last
	}
	l.last = due
	return due.ceil()
}

func (l *Line) add(a, b moment) moment {
	sum := moment{a.ns + b.ns, a.part + b.part}
	if sum.part > 0 && sum.part >= l.params.RateBPS {
		sum.part -= l.params.RateBPS
		sum.ns++
	}
	return sum
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
	l.count++
	l.waitingBytes += int64(f.Bytes)
	*l.at(l.tail - 1) = f
	if l.overtaking {
		l.enter(l.tail - 1)
	}
}
