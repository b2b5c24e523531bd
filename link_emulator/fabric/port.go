package fabric

// Port is where one host's interface joins the network. It carries at most one link.
type Port struct {
	name     string
	id       uint32 // never used twice; owner of the port's frames in the pool
	sink     Sink
	maxFrame int // MTU + frameOverhead
	alive    bool
	out      *Direction // from the port into the network; nil while no link is attached

	received tally // read from the host
	sent     tally // delivered to the host
	dropped  PortDrops
}

// PortDrops counts frames from the host that never came to a link.
type PortDrops struct {
	Malformed uint64 // shorter than an Ethernet header
	Oversize  uint64 // longer than the MTU allows
	NoLink    uint64 // no link was attached
}

// PortState is a port as it is now. Received frames came from the host; sent ones went to it.
type PortState struct {
	Alive                                                bool
	ReceivedFrames, ReceivedBytes, SentFrames, SentBytes uint64
	Dropped                                              PortDrops
	Lateness                                             Lateness // of the link's direction that ends here
}

// Name is the port's name in the control protocol.
func (p *Port) Name() string { return p.name }

func (p *Port) state() PortState {
	var lateness Lateness
	if p.out != nil {
		lateness = p.out.back.lateness
	}
	return PortState{
		Lateness:       lateness,
		Alive:          p.alive,
		ReceivedFrames: p.received.frames,
		ReceivedBytes:  p.received.bytes,
		SentFrames:     p.sent.frames,
		SentBytes:      p.sent.bytes,
		Dropped:        p.dropped,
	}
}
