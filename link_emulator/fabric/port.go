package fabric

// Port connects one host's interface to the network. It has at most one link.
type Port struct {
	name     string
	id       uint32 // never reused; owner of the port's frames in the pool
	sink     Sink
	maxFrame int // MTU + frameOverhead
	alive    bool
	out      *Direction // from the port into the network; nil while no link is attached
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
	Malformed uint64 `json:"malformed"` // shorter than an Ethernet header
	NoLink    uint64 `json:"no_link"`   // no link was attached
}

// PortState is the current state of a port.
type PortState struct {
	Alive bool `json:"alive"`
	PortCounts
	Lateness Lateness `json:"lateness"` // of the link's direction that ends here
}

// Name is the port's name in the control protocol.
func (p *Port) Name() string { return p.name }

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
