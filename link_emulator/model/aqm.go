package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"containernet-env/link_emulator/input"
)

// Discipline is which of the frames that wait is sent next, and which are dropped instead.
type Discipline string

const (
	FIFO    Discipline = "" // tail drop; see Line
	CoDel   Discipline = "codel"
	FQCoDel Discipline = "fq_codel"
)

// Ranges and defaults of the parameters: those of RFC 8289 and RFC 8290, and of Linux.
const (
	MaxFlows         = 65536
	MinQuantum       = 256 // so that a round of deficits is short
	MaxQuantum       = 1 << 20
	usualTargetNS    = int64(5e6)
	usualIntervalNS  = int64(100e6)
	usualFlows       = 1024
	usualQuantum     = fullFrameBytes
	codelMemory      = 16 // intervals since the last drop, within which CoDel resumes near its earlier rate
	overflowMost     = 64 // frames that an overflow drops at most
	unclassifiedFlow = 0
)

// AQM is the queue discipline of a direction, CoDel (RFC 8289) or FQ-CoDel (RFC 8290). The zero value is a FIFO queue.
type AQM struct {
	Kind       Discipline  `json:"kind"`
	TargetNS   int64       `json:"target_ns"`     // the sojourn time that may stand
	IntervalNS int64       `json:"interval_ns"`   // for so long; about the longest round trip
	ECN        bool        `json:"ecn"`           // mark frames whose sender takes that, instead of dropping them
	Flows      input.Limit `json:"flows"`         // of FQCoDel: queues, which flows are hashed to
	Quantum    input.Limit `json:"quantum_bytes"` // of FQCoDel: what a flow may send in its turn
}

// MarshalJSON implements json.Marshaler: null is a FIFO queue.
func (a AQM) MarshalJSON() ([]byte, error) {
	if a.Kind == FIFO {
		return []byte("null"), nil
	}
	type fields AQM
	return json.Marshal(fields(a))
}

// UnmarshalJSON implements json.Unmarshaler. What it does not name has its default; as in Linux, FQ-CoDel marks and
// CoDel does not.
func (a *AQM) UnmarshalJSON(data []byte) error {
	type fields AQM
	var of struct {
		Kind Discipline `json:"kind"`
	}
	*a = AQM{}
	if string(data) == "null" {
		return nil
	}
	err := json.Unmarshal(data, &of)
	a.TargetNS, a.IntervalNS = usualTargetNS, usualIntervalNS
	switch {
	case of.Kind == FQCoDel:
		a.ECN, a.Flows, a.Quantum = true, usualFlows, usualQuantum
	case of.Kind != CoDel && err == nil:
		err = fmt.Errorf("kind: got %q, allowed: %s, %s", of.Kind, CoDel, FQCoDel)
	}
	if err = cmp.Or(err, input.Decode(data, (*fields)(a))); err != nil {
		return fmt.Errorf("aqm.%w", err)
	}
	return nil
}

func (a AQM) check() error {
	if a.Kind == FIFO {
		return nil
	}
	err := cmp.Or(
		input.Range("aqm.target_ns", a.TargetNS, 1, MaxDelayNS),
		input.Range("aqm.interval_ns", a.IntervalNS, 1, MaxDelayNS),
	)
	if a.Kind == FQCoDel {
		return cmp.Or(err, input.Range("aqm.flows", a.Flows, 1, MaxFlows),
			input.Range("aqm.quantum_bytes", a.Quantum, MinQuantum, MaxQuantum))
	}
	if err == nil && (a.Flows != 0 || a.Quantum != 0) {
		err = fmt.Errorf("aqm.kind: got %q with flows or quantum_bytes, allowed: %s", a.Kind, FQCoDel)
	}
	return err
}

// Store has the frames of a line with a queue discipline, which reads their headers and gives back those that it drops.
type Store interface {
	// Content is what a frame holds, valid until the next call.
	Content(handle uint32, bytes int) []byte
	// Dropped gives a frame back: full: the queue limit was reached; else the discipline has dropped it.
	Dropped(handle uint32, full bool)
}

// queue is where frames wait in front of a line with a queue discipline. Which of them is next is decided when the
// serializer is free: at the departure of the frame before it, an exact time. Nothing needs the decision before a frame
// that it sends can be due, so it is carried out only then: frames that came before it and are read late still take
// part in it.
type queue struct {
	AQM
	store  Store
	hash   uint64
	leadNS int64 // from a decision to the earliest due time of a frame that it sends

	frames, bytes int // that wait
	sinceNS       int64
	decidedNS     int64 // of the latest decision

	waiting  []waiting // slots of frames, linked in the order of their flow
	free     int32     // first of the unused slots
	flows    []flow
	newFlows turns // new flows, in the order of their turns: those that had nothing waiting
	oldFlows turns
}

// none is no slot and no flow.
const none = -1

type waiting struct {
	atNS   int64
	handle uint32
	bytes  uint32
	next   int32
	marks  bool // its sender takes marks: ECT
}

// flow is a queue of frames with the state of CoDel (RFC 8289, section 5; names as there).
type flow struct {
	head, tail int32
	bytes      int
	next       int32 // flow whose turn is next
	active     bool
	deficit    int

	dropping         bool
	count, lastCount int
	firstAboveNS     int64 // 0: the sojourn time is not above the target
	dropNextNS       int64
}

// turns is a list of flows.
type turns struct{ first, last int32 }

func newQueue(aqm AQM, store Store, hash uint64) *queue {
	empty := turns{none, none}
	q := &queue{AQM: aqm, store: store, hash: hash, free: none, newFlows: empty, oldFlows: empty}
	q.flows = make([]flow, max(1, int(aqm.Flows)))
	for i := range q.flows {
		q.flows[i] = flow{head: none, tail: none, next: none}
	}
	return q
}

// enqueue takes a frame that came at nowNS.
func (q *queue) enqueue(nowNS int64, handle uint32, bytes int) {
	frame := waiting{atNS: nowNS, handle: handle, bytes: uint32(bytes), next: none}
	index := int32(unclassifiedFlow)
	if q.ECN || len(q.flows) > 1 {
		packet := packetOf(q.store.Content(handle, bytes))
		frame.marks = packet.marks()
		if len(q.flows) > 1 {
			index = int32(packet.hash(q.hash) % uint64(len(q.flows)))
		}
	}
	slot := q.free
	if slot == none {
		slot = int32(len(q.waiting))
		q.waiting = append(q.waiting, frame)
	} else {
		q.free = q.waiting[slot].next
		q.waiting[slot] = frame
	}
	f := &q.flows[index]
	if f.tail == none {
		f.head = slot
	} else {
		q.waiting[f.tail].next = slot
	}
	f.tail = slot
	f.bytes += bytes
	if q.frames == 0 {
		q.sinceNS = nowNS
	}
	q.frames++
	q.bytes += bytes
	if !f.active {
		f.active, f.deficit = true, int(q.Quantum)
		q.append(&q.newFlows, index)
	}
}

// take removes the first frame of a flow; false: there is none.
func (q *queue) take(f *flow) (frame waiting, ok bool) {
	slot := f.head
	if slot == none {
		return frame, false
	}
	frame = q.waiting[slot]
	if f.head = frame.next; f.head == none {
		f.tail = none
	}
	q.waiting[slot].next, q.free = q.free, slot
	f.bytes -= int(frame.bytes)
	q.frames--
	q.bytes -= int(frame.bytes)
	return frame, true
}

// overflow drops frames of the flow with most bytes, from its head, until half of them are gone, at most 64 (RFC 8290,
// section 4.1). As in Linux, CoDel counts them.
func (q *queue) overflow() {
	fattest := &q.flows[0]
	for i := range q.flows {
		if q.flows[i].bytes > fattest.bytes {
			fattest = &q.flows[i]
		}
	}
	half := fattest.bytes / 2
	for dropped, bytes := 0, 0; dropped == 0 || dropped < overflowMost && bytes < half; dropped++ {
		frame, _ := q.take(fattest)
		bytes += int(frame.bytes)
		q.store.Dropped(frame.handle, true)
		fattest.count++
	}
}

func (q *queue) append(t *turns, index int32) {
	q.flows[index].next = none
	if t.last == none {
		t.first = index
	} else {
		q.flows[t.last].next = index
	}
	t.last = index
}

func (q *queue) removeFirst(t *turns) (index int32) {
	index = t.first
	if t.first = q.flows[index].next; t.first == none {
		t.last = none
	}
	return index
}

// next chooses the frame that is sent at nowNS, with CoDel or without; false: all that waited were dropped. New flows
// have their turn before old ones, each until its deficit is used up (RFC 8290, section 4.2).
func (q *queue) next(nowNS int64, codel bool) (frame waiting, marked, ok bool) {
	for {
		list := &q.newFlows
		if list.first == none {
			list = &q.oldFlows
		}
		if list.first == none {
			return frame, false, false
		}
		f := &q.flows[list.first]
		if f.deficit <= 0 && len(q.flows) > 1 {
			f.deficit += int(q.Quantum)
			q.append(&q.oldFlows, q.removeFirst(list))
			continue
		}
		if !codel {
			frame, ok = q.take(f)
		} else {
			frame, marked, ok = q.dequeue(f, nowNS)
		}
		if ok {
			f.deficit -= int(frame.bytes)
			return frame, marked, true
		}
		// A new flow goes through the old ones once before it is forgotten, or it would always be a new one.
		if index := q.removeFirst(list); list == &q.newFlows && q.oldFlows.first != none {
			q.append(&q.oldFlows, index)
		} else {
			f.active = false
		}
	}
}

// shouldDrop reports whether the sojourn time has been above the target for an interval, as the frame leaves the queue.
// It counts as below where no more than a full frame is left in all queues.
func (q *queue) shouldDrop(f *flow, frame waiting, ok bool, nowNS int64) bool {
	if !ok || nowNS-frame.atNS < q.TargetNS || q.bytes <= fullFrameBytes {
		f.firstAboveNS = 0
		return false
	}
	if f.firstAboveNS == 0 {
		f.firstAboveNS = nowNS + q.IntervalNS
		return false
	}
	return nowNS >= f.firstAboveNS
}

// dequeue is CoDel's (RFC 8289, section 5.5).
func (q *queue) dequeue(f *flow, nowNS int64) (frame waiting, marked, ok bool) {
	frame, ok = q.take(f)
	drop := q.shouldDrop(f, frame, ok, nowNS)
	if f.dropping {
		if !drop {
			f.dropping = false
		}
		for f.dropping && nowNS >= f.dropNextNS {
			f.count++
			if q.ECN && frame.marks {
				f.dropNextNS = q.controlLaw(f.dropNextNS, f.count)
				return frame, true, true
			}
			q.store.Dropped(frame.handle, false)
			frame, ok = q.take(f)
			if q.shouldDrop(f, frame, ok, nowNS) {
				f.dropNextNS = q.controlLaw(f.dropNextNS, f.count)
			} else {
				f.dropping = false
			}
		}
		return frame, false, ok
	}
	if drop {
		if marked = q.ECN && frame.marks; !marked {
			q.store.Dropped(frame.handle, false)
			frame, ok = q.take(f)
			q.shouldDrop(f, frame, ok, nowNS)
		}
		f.dropping = true
		// Where it was dropping not long ago, it resumes near the rate that was right then.
		delta := f.count - f.lastCount
		f.count = 1
		if delta > 1 && nowNS-f.dropNextNS < codelMemory*q.IntervalNS {
			f.count = delta
		}
		f.dropNextNS = q.controlLaw(nowNS, f.count)
		f.lastCount = f.count
	}
	return frame, marked, ok
}

// controlLaw is when the next frame is dropped: an interval over the root of the number of drops later.
func (q *queue) controlLaw(atNS int64, count int) int64 {
	return atNS + int64(float64(q.IntervalNS)/math.Sqrt(float64(count)))
}

// offer takes a frame that comes to a line with a queue discipline at nowNS.
func (q *queue) offer(l *Line, nowNS int64, handle uint32, bytes int) Verdict {
	q.decide(l, nowNS)
	if int(l.tail-l.first())+q.frames >= MaxInFlight {
		return LineFull
	}
	idle := q.frames == 0 && l.depart.ceil() <= nowNS
	full := !idle && (q.frames >= l.limitFrames || int64(q.bytes+bytes) > l.limitBytes)
	if full && q.Kind == CoDel {
		return QueueFull
	}
	q.enqueue(nowNS, handle, bytes)
	for full && q.frames > 0 && (q.frames > l.limitFrames || int64(q.bytes) > l.limitBytes) {
		q.overflow()
	}
	if !idle && nowNS >= l.resetNS {
		l.highWater = max(l.highWater, q.frames)
		l.highWaterBytes = max(l.highWaterBytes, int64(q.bytes))
	}
	return Accepted
}

// decisionNS is when the serializer takes the next frame.
func (q *queue) decisionNS(l *Line) int64 { return max(l.depart.ceil(), q.sinceNS, q.decidedNS) }

// decide carries out the decisions up to nowNS.
func (q *queue) decide(l *Line, nowNS int64) {
	for q.frames > 0 {
		atNS := q.decisionNS(l)
		if atNS > nowNS {
			return
		}
		q.decidedNS = atNS
		if frame, marked, ok := q.next(atNS, true); ok {
			l.leaveQueue(atNS)
			l.start(atNS, frame, marked)
		}
	}
}

// drain takes out all that waits, in the order of the discipline, without CoDel.
func (q *queue) drain(yield func(waiting) bool) {
	for frame, _, ok := q.next(0, false); ok && yield(frame); {
		frame, _, ok = q.next(0, false)
	}
}

// start puts a frame on the line that the serializer takes at atNS.
func (l *Line) start(atNS int64, frame waiting, marked bool) {
	if busyNS := l.depart.ceil(); busyNS < atNS || busyNS <= frame.atNS { // it has not waited for the frame before it
		l.depart = moment{ns: atNS}
	}
	l.accept(atNS, frame.handle, int(frame.bytes), marked)
}

// Decide carries out the decisions of the queue discipline that are needed by nowNS; false: there is none to be made.
// Next may change, and nothing may be due yet.
func (l *Line) Decide(nowNS int64) bool {
	if l.queue == nil || l.queue.frames == 0 || l.queue.decisionNS(l)+l.queue.leadNS > nowNS {
		return false
	}
	l.queue.decide(l, nowNS-l.queue.leadNS)
	return true
}

// setDiscipline makes the queue discipline that of the parameters. Frames that wait leave before it is another one; a
// FIFO queue's are on the line already.
func (l *Line) setDiscipline() {
	aqm := l.params.AQM
	if q := l.queue; q != nil && (q.Kind != aqm.Kind || q.Flows != aqm.Flows) {
		for frame := range q.drain {
			l.start(max(l.depart.ceil(), frame.atNS), frame, false)
		}
		l.queue = nil
	}
	if aqm.Kind == FIFO {
		return
	}
	if l.queue == nil {
		l.queue = newQueue(aqm, l.Store, scramble(l.Salt^scramble(uint64(l.params.Seed))))
	}
	l.queue.AQM = aqm
	l.queue.leadNS = l.LeastDelayNS()
}
