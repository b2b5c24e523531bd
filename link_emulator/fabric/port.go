package fabric

// Port connects one host's interface to the network. It has at most one link.
type Port struct {
	name     string
	id       uint32 // never reused; owner of the port's frames in the pool
	sink     Sink
	maxFrame int // MTU + frameOverhead
	alive    bool
	out      *Direction // from the port into the network; nil while no link is attached

	received tally // read from the host
	sent     tally // delivered to the host
	dropped  PortDrops
}

// PortDrops counts frames from the host that were dropped before a link.
type PortDrops struct {
	Malformed uint64 // shorter than an Ethernet header
	NoLink    uint64 // no link was attached
}

// PortState is the current state of a port. Received frames came from the host; sent ones went to it.
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
