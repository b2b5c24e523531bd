// Package fabric is the network inside the emulator: ports, switches and links, and the frames in flight
// between them.
//
// It does no I/O and has no clock. Frames enter through Ingress with the time of their arrival, move from link to link
// at their scheduled times, and leave through the Sink of a port. A frame enters its next link at its due time on the
// previous one, however late the caller is, so lateness does not accumulate over hops.
//
// A Fabric is not safe for concurrent use: it belongs to the thread that runs the data path.
package fabric

import (
	"math"

	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/segment"
)

// The size of an Ethernet header, and what a frame may have on top of the MTU: the header and two VLAN tags (802.1ad).
const (
	headerBytes   = 14
	frameOverhead = headerBytes + 2*4
)

// Sink hands frames to the host of a port at once: one, or partial ones that may be joined (see package segment). They
// are valid only during the call, at or after dueNS, when the host should get the first of them. fate is Delivered or
// why the host did not get them, lateNS how long after dueNS they were handed over; negative: before.
type Sink interface {
	Deliver(frames [][]byte, partial bool, dueNS int64) (fate Drop, lateNS int64)
}

// Fabric is the graph and everything that travels on it. Make it with New.
type Fabric struct {
	pool      *framepool.Pool
	ports     map[string]*Port
	switches  map[string]*Switch
	links     map[string]*Link
	schedule  []*Direction              // heap by the due time of each direction's next frame
	nextOrder uint64                    // creation order of directions, the tie-break of the schedule
	portByID  []*Port                   // nil: removed
	addresses *addressTable             // of all switches in a routed network, see SetRoutes; else nil
	setOf     map[uint32]int            // by port id, while partitioned
	changes   uint64                    // see Changes
	trains    []*Port                   // which have a train
	between   int                       // deliveries since all trains were delivered
	frames    [segment.MaxFrames][]byte // of a delivery
}

// partial marks the owner of a frame in the pool that is partial; see package segment.
const partial = 1 << 31

// arrival is a frame that has come to the port at the end of a direction.
type arrival struct {
	d     *Direction
	frame model.Frame
}

// New makes an empty network whose frames live in pool.
func New(pool *framepool.Pool) *Fabric {
	return &Fabric{
		pool:     pool,
		ports:    map[string]*Port{},
		switches: map[string]*Switch{},
		links:    map[string]*Link{},
	}
}

// Ingress takes a frame that came from the port's host at arrivedNS, which may be long ago. The frame is copied, unless
// it is dropped at once; see Room. Call Advance first, so that frames due earlier enter shared links earlier.
func (f *Fabric) Ingress(port *Port, frame []byte, arrivedNS int64) {
	f.take(port, frame, port.id, arrivedNS)
}

// IngressPartial is Ingress of a partial frame; see package segment.
func (f *Fabric) IngressPartial(port *Port, frame []byte, arrivedNS int64) {
	f.take(port, frame, port.id|partial, arrivedNS)
}

func (f *Fabric) take(port *Port, frame []byte, owner uint32, arrivedNS int64) {
	port.ReceivedFrames++
	port.ReceivedBytes += uint64(len(frame))
	switch {
	case len(frame) < headerBytes:
		port.Dropped.Malformed++
	case port.out == nil:
		port.Dropped.NoLink++
	case len(frame) > port.maxFrame:
		port.out.refuse(DropOversize)
	case !port.out.link.Up():
		port.out.refuse(DropDown)
	default:
		if handle, ok := f.pool.Store(frame, owner); ok {
			f.offer(port.out, handle, len(frame), arrivedNS)
		} else {
			port.out.refuse(DropBuffers)
		}
	}
}

// Malformed counts what the port's host sent that is no frame.
func (f *Fabric) Malformed(port *Port) {
	port.ReceivedFrames++
	port.Dropped.Malformed++
}

// Changes differs from its earlier value if any Port.LeastDelayNS may.
func (f *Fabric) Changes() uint64 { return f.changes }

// Unmatched counts a frame of the port's host whose time of arrival is only a bound, on the link that it enters next.
func (f *Fabric) Unmatched(port *Port) {
	if port.out != nil {
		port.out.Unmatched++
	}
}

// Room is a buffer for the next frame from port. Ingress does not copy a frame that is read into it, if nothing happens
// in between. nil: use any other buffer. It is longer than any frame that the port may send, so a frame that fills it
// is too long.
func (f *Fabric) Room(port *Port) []byte {
	if room := f.pool.Room(); len(room) > port.maxFrame {
		return room
	}
	return nil
}

// Advance moves every frame that is due up to and including nowNS, in order of due time.
func (f *Fabric) Advance(nowNS int64) {
	for len(f.schedule) > 0 && f.schedule[0].dueNS <= nowNS {
		if f.between >= mostBetween {
			f.deliverTrains()
		}
		direction := f.schedule[0]
		if direction.line.Decide(direction.dueNS) {
			f.reschedule(direction)
			continue
		}
		frame := direction.line.Pop()
		f.reschedule(direction)
		if frame.Lost {
			direction.lose(framepool.Handle(frame.Handle), DropLoss)
			continue
		}
		if (frame.Marked || frame.Flip != 0) && !f.alter(direction, &frame) {
			direction.drop(DropBuffers)
			continue
		}
		if frame.Twice {
			direction.Duplicated++
			f.pool.Retain(framepool.Handle(frame.Handle))
			f.arrive(direction, frame)
		}
		f.arrive(direction, frame)
	}
	f.deliverTrains()
}

// alter changes the content of a frame as the direction has; false, without the frame: there is no memory for a copy.
func (f *Fabric) alter(d *Direction, frame *model.Frame) bool {
	handle, ok := f.pool.Own(framepool.Handle(frame.Handle), int(frame.Bytes))
	if !ok {
		return false
	}
	frame.Handle = uint32(handle)
	content := f.pool.Frame(handle, int(frame.Bytes))
	if frame.Marked {
		d.Marked++
		model.Mark(content)
	}
	if frame.Flip != 0 {
		f.complete(handle, content)
		d.Corrupted++
		model.Corrupt(content, frame.Flip)
	}
	return true
}

// offer puts a stored frame on a link at nowNS and takes over one reference to the handle.
func (f *Fabric) offer(d *Direction, handle framepool.Handle, bytes int, nowNS int64) {
	d.Offered++
	if !d.link.Up() {
		d.lose(handle, DropDown)
		return
	}
	switch d.line.Offer(nowNS, uint32(handle), bytes) {
	case model.QueueFull:
		d.lose(handle, DropQueue)
	case model.LineFull:
		d.lose(handle, DropBuffers)
	}
	// With reordering, the new frame may be due before all the others, and a queue discipline may have chosen one.
	if dueNS, _ := d.line.Next(); d.position == unscheduled || dueNS != d.dueNS {
		f.reschedule(d)
	}
}

// arrive passes a frame at the end of a direction to the switch or port there.
func (f *Fabric) arrive(d *Direction, frame model.Frame) {
	handle, bytes := framepool.Handle(frame.Handle), int(frame.Bytes)
	if d.to.sw != nil {
		d.delivered(bytes)
		f.forward(d.to.sw, d, handle, bytes, frame.DueNS)
		return
	}
	port := d.to.port
	fate := Delivered
	switch {
	case bytes > port.maxFrame:
		fate = DropOversize
	case !port.alive:
		fate = DropDown
	case f.separated(f.sender(handle), port.id):
		fate = DropPartition
	}
	if fate != Delivered {
		d.lose(handle, fate)
		return
	}
	isPartial := f.pool.Owner(handle)&partial != 0
	if isPartial && !port.offload {
		own, ok := f.pool.Own(handle, bytes)
		if !ok {
			d.drop(DropBuffers)
			return
		}
		f.complete(own, f.pool.Frame(own, bytes))
		handle, frame.Handle, isPartial = own, uint32(own), false
	}
	content := f.pool.Frame(handle, bytes)
	if isPartial && f.boards(port, arrival{d, frame}, content) {
		return
	}
	f.deliverTrain(port)
	f.frames[0] = content
	f.between++
	fate, lateNS := port.sink.Deliver(f.frames[:1], isPartial, frame.DueNS)
	f.account(d, port, frame, fate, lateNS)
}

// boards has a partial frame wait for others of its flow, behind those that wait already or as the first one; false: it
// is to be delivered now.
func (f *Fabric) boards(port *Port, came arrival, content []byte) bool {
	if count := len(port.train); count > 0 {
		first := f.content(port.train[0])
		if segment.Continues(first, f.content(port.train[count-1]), content, port.trainBytes) {
			port.train = append(port.train, came)
			port.trainBytes += len(content)
			if len(port.train) == segment.MaxFrames || segment.Ends(first, content) {
				f.deliverTrain(port)
			}
			return true
		}
	}
	if !segment.Begins(content) {
		return false
	}
	f.deliverTrain(port)
	f.trains = append(f.trains, port)
	port.train = append(port.train, came)
	port.trainBytes = len(content)
	return true
}

func (f *Fabric) content(came arrival) []byte {
	return f.pool.Frame(framepool.Handle(came.frame.Handle), int(came.frame.Bytes))
}

// mostBetween: frames that are due wait for others of their flow while so many deliveries are made, at most.
const mostBetween = 64

func (f *Fabric) deliverTrains() {
	for _, port := range f.trains {
		f.deliverTrain(port)
	}
	f.trains, f.between = f.trains[:0], 0
}

// deliverTrain hands the frames that wait for others of their flow to the host of a port.
func (f *Fabric) deliverTrain(port *Port) {
	if len(port.train) == 0 {
		return
	}
	for i, each := range port.train {
		f.frames[i] = f.content(each)
	}
	f.between++
	firstNS := port.train[0].frame.DueNS
	fate, lateNS := port.sink.Deliver(f.frames[:len(port.train)], true, firstNS)
	for _, each := range port.train {
		f.account(each.d, port, each.frame, fate, firstNS+lateNS-each.frame.DueNS)
	}
	port.train = port.train[:0]
}

// account counts a frame that was delivered, or not, and releases it.
func (f *Fabric) account(d *Direction, port *Port, frame model.Frame, fate Drop, lateNS int64) {
	d.Lateness.Record(lateNS)
	if fate == Delivered {
		d.delivered(int(frame.Bytes))
		port.SentFrames++
		port.SentBytes += uint64(frame.Bytes)
	} else {
		d.drop(fate)
	}
	f.pool.Release(framepool.Handle(frame.Handle))
}

// sender is the port whose host sent a frame, by its number.
func (f *Fabric) sender(handle framepool.Handle) uint32 { return f.pool.Owner(handle) &^ partial }

// complete finishes the checksum of a frame that is partial.
func (f *Fabric) complete(handle framepool.Handle, content []byte) {
	if f.pool.Owner(handle)&partial != 0 {
		segment.Complete(content)
		f.pool.SetOwner(handle, f.sender(handle))
	}
}

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
