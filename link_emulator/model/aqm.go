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

// room is where frames wait for a line with a queue discipline. Which of them is next is decided when the serializer is
// free: at the departure of the frame before it, an exact time. Nothing needs the decision before a frame that it sends
// can be due, so it is carried out only then: frames that came before it and are read late still take part in it.
type room struct {
	AQM
	store  Store
	hash   uint64
	leadNS int64 // from a decision to the earliest due time of a frame that it sends

	frames, bytes int // that wait
	sinceNS       int64
	decidedNS     int64 // of the latest decision

	waiting []waiting // slots of frames, linked in the order of their flow
	free    int32     // first of the unused slots
	flows   []flow
	fresh   turns // new flows, in the order of their turns: those that had nothing waiting
	old     turns
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

func newRoom(aqm AQM, store Store, hash uint64) *room {
	r := &room{AQM: aqm, store: store, hash: hash, free: none, fresh: turns{none, none}, old: turns{none, none}}
	r.flows = make([]flow, max(1, int(aqm.Flows)))
	for i := range r.flows {
		r.flows[i] = flow{head: none, tail: none, next: none}
	}
	return r
}

// enqueue takes a frame that came at nowNS.
func (r *room) enqueue(nowNS int64, handle uint32, bytes int) {
	frame := waiting{atNS: nowNS, handle: handle, bytes: uint32(bytes), next: none}
	index := int32(unclassifiedFlow)
	if r.ECN || len(r.flows) > 1 {
		packet := packetOf(r.store.Content(handle, bytes))
		frame.marks = packet.marks()
		if len(r.flows) > 1 {
			index = int32(packet.hash(r.hash) % uint64(len(r.flows)))
		}
	}
	slot := r.free
	if slot == none {
		slot = int32(len(r.waiting))
		r.waiting = append(r.waiting, frame)
	} else {
		r.free = r.waiting[slot].next
		r.waiting[slot] = frame
	}
	f := &r.flows[index]
	if f.tail == none {
		f.head = slot
	} else {
		r.waiting[f.tail].next = slot
	}
	f.tail = slot
	f.bytes += bytes
	if r.frames == 0 {
		r.sinceNS = nowNS
	}
	r.frames++
	r.bytes += bytes
	if !f.active {
		f.active, f.deficit = true, int(r.Quantum)
		r.append(&r.fresh, index)
	}
}

// take removes the first frame of a flow; false: there is none.
func (r *room) take(f *flow) (frame waiting, ok bool) {
	slot := f.head
	if slot == none {
		return frame, false
	}
	frame = r.waiting[slot]
	if f.head = frame.next; f.head == none {
		f.tail = none
	}
	r.waiting[slot].next, r.free = r.free, slot
	f.bytes -= int(frame.bytes)
	r.frames--
	r.bytes -= int(frame.bytes)
	return frame, true
}

// overflow drops frames of the flow with most bytes, from its head, until half of them are gone, at most 64 (RFC 8290,
// section 4.1). As in Linux, CoDel counts them.
func (r *room) overflow() {
	fattest := &r.flows[0]
	for i := range r.flows {
		if r.flows[i].bytes > fattest.bytes {
			fattest = &r.flows[i]
		}
	}
	half := fattest.bytes / 2
	for dropped, bytes := 0, 0; dropped == 0 || dropped < overflowMost && bytes < half; dropped++ {
		frame, _ := r.take(fattest)
		bytes += int(frame.bytes)
		r.store.Dropped(frame.handle, true)
		fattest.count++
	}
}

func (r *room) append(t *turns, index int32) {
	r.flows[index].next = none
	if t.last == none {
		t.first = index
	} else {
		r.flows[t.last].next = index
	}
	t.last = index
}

func (r *room) removeFirst(t *turns) (index int32) {
	index = t.first
	if t.first = r.flows[index].next; t.first == none {
		t.last = none
	}
	return index
}

// next chooses the frame that is sent at nowNS, with CoDel or without; false: all that waited were dropped. New flows
// have their turn before old ones, each until its deficit is used up (RFC 8290, section 4.2).
func (r *room) next(nowNS int64, codel bool) (frame waiting, marked, ok bool) {
	for {
		list := &r.fresh
		if list.first == none {
			list = &r.old
		}
		if list.first == none {
			return frame, false, false
		}
		f := &r.flows[list.first]
		if f.deficit <= 0 && len(r.flows) > 1 {
			f.deficit += int(r.Quantum)
			r.append(&r.old, r.removeFirst(list))
			continue
		}
		if !codel {
			frame, ok = r.take(f)
		} else {
			frame, marked, ok = r.dequeue(f, nowNS)
		}
		if ok {
			f.deficit -= int(frame.bytes)
			return frame, marked, true
		}
		// A new flow goes through the old ones once before it is forgotten, or it would always be a new one.
		if index := r.removeFirst(list); list == &r.fresh && r.old.first != none {
			r.append(&r.old, index)
		} else {
			f.active = false
		}
	}
}

// shouldDrop reports whether the sojourn time has been above the target for an interval, as the frame leaves the queue.
// It counts as below where no more than a full frame is left in all queues.
func (r *room) shouldDrop(f *flow, frame waiting, ok bool, nowNS int64) bool {
	if !ok || nowNS-frame.atNS < r.TargetNS || r.bytes <= fullFrameBytes {
		f.firstAboveNS = 0
		return false
	}
	if f.firstAboveNS == 0 {
		f.firstAboveNS = nowNS + r.IntervalNS
		return false
	}
	return nowNS >= f.firstAboveNS
}

// dequeue is CoDel's (RFC 8289, section 5.5).
func (r *room) dequeue(f *flow, nowNS int64) (frame waiting, marked, ok bool) {
	frame, ok = r.take(f)
	drop := r.shouldDrop(f, frame, ok, nowNS)
	if f.dropping {
		if !drop {
			f.dropping = false
		}
		for f.dropping && nowNS >= f.dropNextNS {
			f.count++
			if r.ECN && frame.marks {
				f.dropNextNS = r.controlLaw(f.dropNextNS, f.count)
				return frame, true, true
			}
			r.store.Dropped(frame.handle, false)
			frame, ok = r.take(f)
			if r.shouldDrop(f, frame, ok, nowNS) {
				f.dropNextNS = r.controlLaw(f.dropNextNS, f.count)
			} else {
				f.dropping = false
			}
		}
		return frame, false, ok
	}
	if drop {
		if marked = r.ECN && frame.marks; !marked {
			r.store.Dropped(frame.handle, false)
			frame, ok = r.take(f)
			r.shouldDrop(f, frame, ok, nowNS)
		}
		f.dropping = true
		// Where it was dropping not long ago, it resumes near the rate that was right then.
		delta := f.count - f.lastCount
		f.count = 1
		if delta > 1 && nowNS-f.dropNextNS < codelMemory*r.IntervalNS {
			f.count = delta
		}
		f.dropNextNS = r.controlLaw(nowNS, f.count)
		f.lastCount = f.count
	}
	return frame, marked, ok
}

// controlLaw is when the next frame is dropped: an interval over the root of the number of drops later.
func (r *room) controlLaw(atNS int64, count int) int64 {
	return atNS + int64(float64(r.IntervalNS)/math.Sqrt(float64(count)))
}

// offer takes a frame that comes to a line with a queue discipline at nowNS.
func (r *room) offer(l *Line, nowNS int64, handle uint32, bytes int) Verdict {
	r.decide(l, nowNS)
	if int(l.tail-l.first())+r.frames >= MaxInFlight {
		return LineFull
	}
	idle := r.frames == 0 && l.depart.ceil() <= nowNS
	full := !idle && (r.frames >= l.limitFrames || int64(r.bytes+bytes) > l.limitBytes)
	if full && r.Kind == CoDel {
		return QueueFull
	}
	r.enqueue(nowNS, handle, bytes)
	for full && r.frames > 0 && (r.frames > l.limitFrames || int64(r.bytes) > l.limitBytes) {
		r.overflow()
	}
	if !idle && nowNS >= l.resetNS {
		l.highWater = max(l.highWater, r.frames)
		l.highWaterBytes = max(l.highWaterBytes, int64(r.bytes))
	}
	return Accepted
}

// decisionNS is when the serializer takes the next frame.
func (r *room) decisionNS(l *Line) int64 { return max(l.depart.ceil(), r.sinceNS, r.decidedNS) }

// decide carries out the decisions up to nowNS.
func (r *room) decide(l *Line, nowNS int64) {
	for r.frames > 0 {
		atNS := r.decisionNS(l)
		if atNS > nowNS {
			return
		}
		r.decidedNS = atNS
		if frame, marked, ok := r.next(atNS, true); ok {
			l.leaveQueue(atNS)
			l.start(atNS, frame, marked)
		}
	}
}

// drain takes out all that waits, in the order of the discipline, without CoDel.
func (r *room) drain(yield func(waiting) bool) {
	for frame, _, ok := r.next(0, false); ok && yield(frame); {
		frame, _, ok = r.next(0, false)
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
	if l.room == nil || l.room.frames == 0 || l.room.decisionNS(l)+l.room.leadNS > nowNS {
		return false
	}
	l.room.decide(l, nowNS-l.room.leadNS)
	return true
}

// setDiscipline makes the queue discipline that of the parameters. Frames that wait leave before it is another one; a
// FIFO queue's are on the line already.
func (l *Line) setDiscipline() {
	aqm := l.params.AQM
	if r := l.room; r != nil && (r.Kind != aqm.Kind || r.Flows != aqm.Flows) {
		for frame := range r.drain {
			l.start(max(l.depart.ceil(), frame.atNS), frame, false)
		}
		l.room = nil
	}
	if aqm.Kind == FIFO {
		return
	}
	if l.room == nil {
		l.room = newRoom(aqm, l.Store, scramble(l.Salt^scramble(uint64(l.params.Seed))))
	}
	l.room.AQM = aqm
	l.room.leadNS = l.LeastDelayNS()
}
