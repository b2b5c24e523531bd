package model

import (
	"encoding/json"
	"math"
)

// MaxInFlight bounds the frames that one direction holds, in the queue and the delay line together. It bounds the
// memory of the ring (40 MiB) when a broadcast storm makes many lines hold the same few stored frames.
const MaxInFlight = 1 << 20

// Verdict is the result of Offer.
type Verdict uint8

const (
	Accepted  Verdict = iota
	QueueFull         // the queue limit is reached
	LineFull          // MaxInFlight is reached
)

// Frame is one frame on the line: an opaque handle of the caller, its length, and when it reaches the far end.
type Frame struct {
	DueNS   int64
	startNS int64 // when the serializer starts sending it
	endNS   int64 // when it has sent it
	Handle  uint32
	Bytes   uint32
	Lost    bool   // lost on the wire: dropped at DueNS
	Marked  bool   // CE is to be set: see Mark
	Twice   bool   // arrives twice, one right behind the other
	gone    bool   // taken off out of order; see reorder below
	Flip    uint16 // chooses the bit that is flipped, see Corrupt; 0: none
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
//	s = max(t, departure of the frame before it) + 8*(bytes + overhead)/rate
//	(rate unlimited: s = max(t, that departure))
//
// and is due at s + delay, where the delay varies if there is jitter. Without reordering it is due no earlier than the
// frame ahead of it, which jitter almost never and a change of parameters for a while makes a difference; see
// leastCorrelation and Set. While the delay falls, frames are due closer together than the rate alone would have them.
// Times are exact fractions, so rounding errors do not accumulate; a due time is rounded up to the next nanosecond.
// Frames between offer and start are waiting: the queue limits count exactly these, by the time of the offer. One that
// has left waits all the same for a frame that came before its start and is offered late, as by a caller that lags
// behind in reading. Times must be >= 0; a frame that is offered with an earlier time than one before it comes with
// that one, so that order is kept.
//
// The zero Line needs a Set before its first Offer. Not safe for concurrent use.
type Line struct {
	Salt  uint64 // makes the draws independent of other lines with the same seed; to be set before the first Set
	Store Store  // of the frames, for a queue discipline; likewise

	configured  Params // as configured
	params      Params // resolved
	limitFrames int
	limitBytes  int64
	chance      chance
	offeredNS   int64  // the latest time of an offer
	depart      moment // departure of the last accepted frame
	last        moment // due time of the last accepted frame; with reordering, the latest of all
	rate        int64  // of the last accepted frame; depart and last are in its fractions
	delays      Delays
	following   following // see trace.go
	queue       *queue    // where frames wait before they are accepted; nil: FIFO

	ring    []Frame // power of two; positions below are absolute and masked
	head    uint64  // oldest frame on the line
	waiting uint64  // oldest frame that had not started at the latest offer; it may have left since
	tail    uint64
	count   int // frames on the line: those between head and tail that are not gone

	overtaking bool     // frames are taken off by due time, not by position
	heap       []uint32 // positions by due time, while overtaking

	waitingBytes   int64 // of the frames from waiting to tail
	resetNS        int64 // of the last ResetCounters
	highWater      int
	highWaterBytes int64
}

// Params are the current parameters, with the default queue limit filled in.
func (l *Line) Params() Params { return l.params }

// Configured are the parameters of the last Set.
func (l *Line) Configured() Params { return l.configured }

// Len is the number of frames on the line, waiting or in flight.
func (l *Line) Len() int {
	if l.queue != nil {
		return l.count + l.queue.frames
	}
	return l.count
}

// HighWater is the largest number of frames, and of bytes, that waited at once since the last ResetCounters.
func (l *Line) HighWater() (frames int, bytes int64) { return l.highWater, l.highWaterBytes }

// Delays are those of the frames accepted since the last ResetCounters.
func (l *Line) Delays() Delays { return l.delays }

// ResetCounters resets the high water to what waits at nowNS, and the delays.
func (l *Line) ResetCounters(nowNS int64) {
	l.resetNS = nowNS
	if l.queue != nil {
		l.queue.decide(l, nowNS)
	}
	l.highWater, l.highWaterBytes = l.Waiting(nowNS)
	l.delays = Delays{}
}

// Offer puts a frame on the line at nowNS. The line owns the handle only if the frame is Accepted.
func (l *Line) Offer(nowNS int64, handle uint32, bytes int) Verdict {
	nowNS = max(nowNS, l.offeredNS)
	l.offeredNS = nowNS
	if l.queue != nil {
		return l.queue.offer(l, nowNS, handle, bytes)
	}
	l.leaveQueue(nowNS)
	if l.tail-l.first() >= MaxInFlight {
		return LineFull
	}
	startNS := l.begin(nowNS)
	if startNS > nowNS {
		waiting := int(l.tail - l.waiting)
		if waiting >= l.limitFrames || l.waitingBytes+int64(bytes) > l.limitBytes {
			return QueueFull
		}
		if nowNS >= l.resetNS { // else it is offered late, and belongs to the time before
			l.highWater = max(l.highWater, waiting+1)
			l.highWaterBytes = max(l.highWaterBytes, l.waitingBytes+int64(bytes))
		}
	}
	if startNS == nowNS || startNS > l.depart.ceil() {
		l.depart = moment{ns: startNS} // it was idle before
	}
	l.accept(startNS, handle, bytes, false)
	return Accepted
}

// leaveQueue notes which frames the serializer has started by nowNS.
func (l *Line) leaveQueue(nowNS int64) {
	for l.waiting < l.tail && l.at(l.waiting).startNS <= nowNS {
		l.waitingBytes -= int64(l.at(l.waiting).Bytes)
		l.waiting++
	}
}

// accept puts a frame on the line behind the departure of the one before it, and draws its fate. It is made where it
// stays: copies would cost as much as the rest.
func (l *Line) accept(startNS int64, handle uint32, bytes int, marked bool) {
	if int(l.tail-l.first()) == len(l.ring) {
		l.grow()
	}
	f := l.at(l.tail)
	*f = Frame{startNS: startNS, Handle: handle, Bytes: uint32(bytes), Marked: marked}
	l.schedule(f, l.tail)
	l.delays.add(f.DueNS - l.depart.ceil())
	f.Lost = l.params.Loss.Model != NoLoss && l.chance.lost(&l.params.Loss, l.tail)
	f.Twice = l.params.Duplication > 0 && l.chance.twice(l.params.Duplication, l.tail)
	if l.params.Corruption > 0 {
		f.Flip = l.chance.flip(l.params.Corruption, l.tail)
	}
	l.tail++
	l.count++
	l.waitingBytes += int64(bytes)
	if l.overtaking {
		l.enter(l.tail - 1)
	}
}

// Waiting is the number of frames that the serializer has not started at nowNS, and their bytes. nowNS must be no
// earlier than the latest offer.
func (l *Line) Waiting(nowNS int64) (frames int, bytes int64) {
	frames, bytes = l.notStarted(nowNS)
	if l.queue != nil {
		frames, bytes = frames+l.queue.frames, bytes+int64(l.queue.bytes)
	}
	return frames, bytes
}

// notStarted are those that wait on the line itself.
func (l *Line) notStarted(nowNS int64) (frames int, bytes int64) {
	position, bytes := l.waiting, l.waitingBytes
	for position < l.tail && l.at(position).startNS <= nowNS {
		bytes -= int64(l.at(position).Bytes)
		position++
	}
	return int(l.tail - position), bytes
}

// first is the position of the oldest slot in use: of a frame that is on the line, or that may still count as waiting.
func (l *Line) first() uint64 { return min(l.head, l.waiting) }

// Next is when the next frame is due, or a decision has to be made: see Decide. False when the line is empty.
func (l *Line) Next() (dueNS int64, ok bool) {
	if l.queue == nil || l.queue.frames == 0 {
		return l.nextDue()
	}
	decideNS := l.queue.decisionNS(l) + l.queue.leadNS
	if dueNS, ok = l.nextDue(); !ok || decideNS < dueNS {
		return decideNS, true
	}
	return dueNS, ok
}

func (l *Line) nextDue() (dueNS int64, ok bool) {
	switch {
	case l.count == 0:
		return 0, false
	case l.overtaking:
		return l.at(uint64(l.heap[0])).DueNS, true
	}
	return l.at(l.head).DueNS, true
}

// Pop removes the frame that is due next. The caller has checked that it is due; the line must not be empty.
func (l *Line) Pop() Frame {
	position := l.head
	if l.overtaking {
		position = l.takeEarliest()
	}
	f := *l.at(position)
	l.count--
	l.remove(position)
	return f
}

// Set changes the parameters at nowNS. Frames that have started keep their times (they are on the wire already).
// Waiting frames follow the new rate and delay after the frame in service; lost frames stay lost. Frames above a
// smaller queue limit stay. A different seed restarts the draws; waiting frames keep theirs. Frames that wait when the
// queue discipline changes leave before those that come later. p must have passed Check.
//
// Order is kept. When the delay shrinks, or jitter is drawn anew, frames in flight on the longer wire hold back those
// behind them, which then arrive right behind the last of them, all at once: the serializer has spaced them already.
// Spacing them again would keep the old delay for as long as the link is busy.
//
// nowNS must be no earlier than the due time of any frame that was popped, but by Cut.
func (l *Line) Set(nowNS int64, p Params) { l.change(nowNS, p, l.following.traces) }

// change sets parameters and traces; see Set and Follow.
func (l *Line) change(nowNS int64, p Params, traces Traces) {
	if l.queue != nil {
		l.queue.decide(l, nowNS)
	}
	waiting, _ := l.notStarted(nowNS)
	first := l.tail - uint64(waiting)
	l.configured, l.params = p, p.Resolved()
	l.limitFrames, l.limitBytes = int(l.params.QueueFrames), int64(l.params.QueueBytes)
	if l.limitFrames == 0 {
		l.limitFrames = MaxInFlight
	}
	if l.limitBytes == 0 {
		l.limitBytes = MaxQueueBytes * 10 // more than MaxInFlight frames can have
	}
	// The fractions were in units of the old rate.
	l.depart = moment{ns: l.depart.ceil()}
	l.last = moment{ns: l.last.ceil()}
	l.rate = int64(l.params.RateBPS)
	held := l.following.traces.Rate
	keepsTimes := l.following.restart(traces)
	if first < l.tail {
		l.depart = moment{ns: l.at(first).startNS}
		if held != nil { // it may wait for something else than the frame before it
			l.depart.ns = nowNS
			if first > l.head {
				l.depart.ns = max(nowNS, l.at(first-1).endNS)
			}
		}
		l.last = moment{ns: l.latestDue(first)}
	}
	for i := first; i < l.tail; i++ {
		f := l.at(i)
		if keepsTimes {
			l.depart = moment{ns: f.endNS}
			f.DueNS = l.arrive(f, i)
			continue
		}
		f.startNS = l.begin(nowNS)
		if f.startNS > l.depart.ceil() {
			l.depart = moment{ns: f.startNS}
		}
		l.schedule(f, i)
	}
	l.setOvertaking(p.Jitter.Reorder)
	l.setDiscipline()
	if l.chance.random == nil || p.Seed != l.chance.seed {
		l.Restart(nowNS)
	}
}

// Restart restarts the draws from the seed at nowNS, with the next offered frame. Waiting frames keep theirs.
func (l *Line) Restart(nowNS int64) { l.chance.restart(l.params.Seed, l.Salt, l.tail, nowNS) }

// Cut empties the line at nowNS, as a cut cable loses what is on it, and passes every frame to lost. The serializer is
// idle afterwards.
func (l *Line) Cut(nowNS int64, lost func(Frame)) {
	for l.count > 0 {
		lost(l.Pop())
	}
	if l.queue != nil {
		for frame := range l.queue.drain {
			lost(Frame{Handle: frame.handle, Bytes: frame.bytes})
		}
		l.queue = nil
		l.setDiscipline()
	}
	l.waiting, l.waitingBytes = l.tail, 0
	now := moment{ns: nowNS}
	l.depart, l.last = now, now
	l.following.start(l.following.traces)
}

// schedule advances the departure by the transmission time of the frame at position, and sets when it departs and when
// it is due at the far end.
func (l *Line) schedule(f *Frame, position uint64) {
	l.transmit(f.startNS, int(f.Bytes))
	f.endNS = l.depart.ceil()
	f.DueNS = l.arrive(f, position)
}

// arrive is when a frame is due at the far end that departs at l.depart.
func (l *Line) arrive(f *Frame, position uint64) int64 {
	due := l.depart
	due.ns += l.chance.delay(&l.params, position, l.depart.ns) + l.tracedDelayNS(f.startNS)
	if due.after(l.last) {
		l.last = due
	} else if !l.params.Jitter.Reorder {
		due = l.last
	}
	return due.ceil()
}

func (l *Line) add(a, b moment) moment {
	sum := moment{a.ns + b.ns, a.part + b.part}
	if sum.part > 0 && sum.part >= l.rate {
		sum.part -= l.rate
		sum.ns++
	}
	return sum
}

func (l *Line) at(position uint64) *Frame { return &l.ring[position&uint64(len(l.ring)-1)] }

func (l *Line) grow() {
	grown := make([]Frame, max(64, 2*len(l.ring)))
	for i := l.first(); i < l.tail; i++ {
		grown[i&uint64(len(grown)-1)] = *l.at(i)
	}
	l.ring = grown
}

// Delays sums up what accepted frames take from the serializer to the far end, as it was drawn when they were offered:
// the delay, its jitter, and what a frame waits for those ahead of it after a change.
type Delays struct {
	Count        uint64
	originNS     int64 // close to the mean, so that the squares lose no digits
	sum, squares float64
}

func (d *Delays) add(delayNS int64) {
	if d.Count == 0 {
		d.originNS = delayNS
	}
	d.Count++
	difference := float64(delayNS - d.originNS)
	d.sum += difference
	d.squares += difference * difference
}

// MeanNS is the mean; 0 of none.
func (d *Delays) MeanNS() int64 {
	if d.Count == 0 {
		return 0
	}
	return d.originNS + int64(math.Round(d.sum/float64(d.Count)))
}

// DeviationNS is the standard deviation; 0 of none.
func (d *Delays) DeviationNS() int64 {
	if d.Count == 0 {
		return 0
	}
	n := float64(d.Count)
	return int64(math.Round(math.Sqrt(max(0, d.squares/n-d.sum/n*d.sum/n))))
}

// MarshalJSON implements json.Marshaler.
func (d Delays) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count       uint64 `json:"count"`
		MeanNS      int64  `json:"mean_ns"`
		DeviationNS int64  `json:"deviation_ns"`
	}{d.Count, d.MeanNS(), d.DeviationNS()})
}

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
