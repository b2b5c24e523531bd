package fabric

import (
	"encoding/json"

	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/model"
)

// Drop is why a direction lost a frame.
type Drop uint8

const (
	DropQueue     Drop = iota // the queue limit was reached
	DropDown                  // the link was down when the frame came, or the far interface when it arrived
	DropCut                   // in flight when the link went down
	DropLoss                  // lost on the wire, as configured
	DropAQM                   // by the queue discipline, before the queue was full
	DropPartition             // a partition separates its sender from the port
	DropBuffers               // no frame memory left
	DropOversize              // longer than the MTU of the sender's port or the far one allows
	DropDevice                // the kernel had no room for it at the far port
	DropError                 // the kernel refused it for another reason
	dropCauses

	Delivered = dropCauses // it was not lost
)

// dropNames are the names of the causes in the control protocol.
var dropNames = [dropCauses]string{
	"queue", "down", "cut", "loss", "aqm", "partition", "buffers", "oversize", "device", "error",
}

// Drops counts the frames that a direction has lost, by cause.
type Drops [dropCauses]uint64

// MarshalJSON implements json.Marshaler.
func (d Drops) MarshalJSON() ([]byte, error) {
	named := make(map[string]uint64, dropCauses)
	for cause, n := range d {
		named[dropNames[cause]] = n
	}
	return json.Marshal(named)
}

// Link is a cable: two directions that are up or down together.
type Link struct {
	name       string
	adminUp    bool
	directions [2]*Direction // from a to b, and back
}

// Direction is one direction of a link: the model of its line, its far end, and its counters.
type Direction struct {
	line model.Line
	pool *framepool.Pool
	link *Link
	to   end
	back *Direction // the other direction of the link

	dueNS    int64 // of the next due frame, while scheduled
	position int   // in the schedule
	order    uint64

	Counts
}

// Counts are the counters of a direction. Offered + Duplicated = Frames + the sum of Drops + those in flight.
type Counts struct {
	Offered   uint64 `json:"offered"`   // frames that came to the direction
	Unmatched uint64 `json:"unmatched"` // those of them whose time of arrival is only a bound; see Fabric.Unmatched
	Frames    uint64 `json:"frames"`    // frames that arrived at its far end
	Bytes     uint64 `json:"bytes"`     // their bytes
	Drops     Drops  `json:"drops"`
	// Frames at its far end that came a second time, that had a bit flipped, and that its queue discipline had marked.
	Duplicated uint64   `json:"duplicated"`
	Corrupted  uint64   `json:"corrupted"`
	Marked     uint64   `json:"marked"`
	Lateness   Lateness `json:"lateness"` // at the port at the far end; a switch gets frames at their scheduled times
}

// end is one end of a link: exactly one of the two is set.
type end struct {
	port *Port
	sw   *Switch
}

func (d *Direction) delivered(bytes int) {
	d.Frames++
	d.Bytes += uint64(bytes)
}

func (d *Direction) drop(cause Drop) { d.Drops[cause]++ }

// refuse drops a frame that was not stored.
func (d *Direction) refuse(cause Drop) {
	d.Offered++
	d.drop(cause)
}

// lose drops a stored frame, with the reference to it.
func (d *Direction) lose(handle framepool.Handle, cause Drop) {
	d.drop(cause)
	d.pool.Release(handle)
}

// Content implements model.Store.
func (d *Direction) Content(handle uint32, bytes int) []byte {
	return d.pool.Frame(framepool.Handle(handle), bytes)
}

// Dropped implements model.Store.
func (d *Direction) Dropped(handle uint32, full bool) {
	cause := DropAQM
	if full {
		cause = DropQueue
	}
	d.lose(framepool.Handle(handle), cause)
}

// Up reports whether the link forwards frames: it was not taken down and no port at its ends has died.
func (l *Link) Up() bool {
	return l.adminUp && l.directions[0].to.alive() && l.directions[1].to.alive()
}

func (e end) alive() bool { return e.port == nil || e.port.alive }

// cut drops the frames in flight on l and removes the addresses learned through it.
func (f *Fabric) cut(l *Link, nowNS int64) {
	for _, d := range l.directions {
		d.line.Cut(nowNS, func(frame model.Frame) { d.lose(framepool.Handle(frame.Handle), DropCut) })
		f.reschedule(d)
		if sw := d.back.to.sw; sw != nil {
			sw.addresses.forgetBehind(d)
		}
	}
}

// DirectionState holds the parameters, with the default queue limit filled in, and the counters of a direction.
type DirectionState struct {
	model.Params
	Counts
	InFlight            int          `json:"in_flight"`              // frames that are waiting or in flight
	QueueHighWater      int          `json:"queue_high_water"`       // the most frames that waited at once
	QueueHighWaterBytes int64        `json:"queue_high_water_bytes"` // the most bytes that waited at once
	WireDelay           model.Delays `json:"wire_delay"`             // of the frames accepted since the last reset
	Traces              *TraceState  `json:"traces,omitempty"`       // what it follows
}

// TraceState names what a direction follows.
type TraceState struct {
	Rate    *string `json:"rate"`
	Delay   *string `json:"delay"`
	StartNS int64   `json:"start_ns"`
}

// LinkState is a link as it is now.
type LinkState struct {
	Up      bool           `json:"up"`       // forwards frames
	AdminUp bool           `json:"admin_up"` // not taken down
	AToB    DirectionState `json:"a_to_b"`
	BToA    DirectionState `json:"b_to_a"`
}

func (l *Link) state() *LinkState {
	return &LinkState{Up: l.Up(), AdminUp: l.adminUp, AToB: l.directions[0].state(), BToA: l.directions[1].state()}
}

func (d *Direction) state() DirectionState {
	state := DirectionState{Params: d.line.Params(), Counts: d.Counts, InFlight: d.line.Len(),
		WireDelay: d.line.Delays(), Traces: d.followed()}
	state.Lateness = d.Lateness.snapshot()
	state.QueueHighWater, state.QueueHighWaterBytes = d.line.HighWater()
	return state
}

// followed is nil where a direction follows nothing.
func (d *Direction) followed() *TraceState {
	name := func(trace *model.Trace) *string {
		if trace == nil {
			return nil
		}
		return &trace.Name
	}
	traces := d.line.Following()
	if traces.Rate == nil && traces.Delay == nil {
		return nil
	}
	return &TraceState{name(traces.Rate), name(traces.Delay), traces.StartNS}
}

// Port connects one host's interface to the network. It has at most one link.
type Port struct {
	name     string
	id       uint32 // never reused; owner of the port's frames in the pool
	sink     Sink
	maxFrame int // MTU + frameOverhead
	alive    bool
	out      *Direction // from the port into the network; nil while no link is attached

	offload    bool      // see TakesPartial
	train      []arrival // partial frames that are due, and wait for others of their flow until Advance ends
	trainBytes int

	PortCounts
}

// PortCounts are the counters of a port. Received frames came from the host; sent ones went to it.
type PortCounts struct {
	ReceivedFrames uint64    `json:"received_frames"`
	ReceivedBytes  uint64    `json:"received_bytes"`
	SentFrames     uint64    `json:"sent_frames"`
	SentBytes      uint64    `json:"sent_bytes"`
	Dropped        PortDrops `json:"drops"`
}

// PortDrops counts frames from the host that were dropped before a link.
type PortDrops struct {
	Malformed uint64 `json:"malformed"` // shorter than an Ethernet header, or no frames at all
	NoLink    uint64 `json:"no_link"`   // no link was attached
}

// PortState is the current state of a port.
type PortState struct {
	Alive bool `json:"alive"`
	PortCounts
	Lateness Lateness `json:"lateness"` // of the link's direction that ends here
}

// TakesPartial has the port's host get partial frames, joined where they may be.
func (p *Port) TakesPartial() { p.offload = true }

// Name is the port's name in the control protocol.
func (p *Port) Name() string { return p.name }

// LeastDelayNS is how long any frame of the port's host needs at least to the end of its first link: so much later than
// it came, it may enter by Ingress. Without a link it is a second.
func (p *Port) LeastDelayNS() int64 {
	if p.out == nil {
		return 1e9
	}
	return p.out.line.LeastDelayNS()
}

// state is that of the port, given those of all links.
func (p *Port) state(links map[string]*LinkState) PortState {
	state := PortState{Alive: p.alive, PortCounts: p.PortCounts}
	if p.out != nil {
		link := links[p.out.link.name]
		if state.Lateness = link.BToA.Lateness; p.out.back == p.out.link.directions[0] {
			state.Lateness = link.AToB.Lateness
		}
	}
	return state
}
