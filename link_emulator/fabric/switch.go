package fabric

import (
	"encoding/binary"

	"containernet-env/link_emulator/framepool"
)

// ageingNS is the ageing time of learned addresses: the default of IEEE 802.1Q (table 8-6) and of the Linux bridge.
const ageingNS = int64(300e9)

// refreshNS is the age from which an entry is refreshed: this saves a map write for nearly every frame.
const refreshNS = int64(1e9)

// maxAddresses bounds a switch's address table, so that a host that sends from random addresses cannot exhaust memory.
// Further addresses are not learned: frames to them are flooded.
const maxAddresses = 8192

// maxSlackNS bounds how long a frame that is due at a switch may wait, so that counters and memory do not lag much.
const maxSlackNS = int64(10e6)

// groupBit marks broadcast and multicast addresses (lowest bit of the first octet on the wire).
const groupBit = uint64(1) << 40

// Switch is an Ethernet switch with zero forwarding delay; all delay is in the links. Frames to group addresses are
// flooded, including the reserved ones (LLDP, spanning tree, pause).
//
// Where the links between switches form a tree, each switch learns behind which link an address is. In a routed
// network, all switches share one table of the ports that addresses are behind, and frames go from switch to switch
// along the routes; what is flooded takes the routes to the switch of its sender in the opposite direction, so that
// every switch gets it once, whatever loops there are. Where the routes change, a frame that is under way follows the
// new ones from the next switch on, also back to where it came from.
type Switch struct {
	name      string
	out       []*Direction // directions that leave the switch
	slackNS   int64        // the shortest delay of any of them
	addresses *addressTable
	next      map[*Switch]*Direction // in a routed network, by the switch that a frame has to reach
	counts    SwitchCounts
}

type addressTable struct {
	behind  map[uint64]learned
	sweptNS int64 // when aged addresses were last removed because the table was full
}

func newAddressTable() *addressTable { return &addressTable{behind: map[uint64]learned{}} }

// SwitchCounts counts the frames that came to a switch by what it did with them.
type SwitchCounts struct {
	Forwarded     uint64 `json:"forwarded"`      // to the one link where the destination was learned
	Flooded       uint64 `json:"flooded"`        // unknown or group destination: to every other link
	Filtered      uint64 `json:"filtered"`       // to the link that the frame came from, or there is no other
	InvalidSource uint64 `json:"invalid_source"` // a group address or all zero: dropped, as by the Linux bridge
	NotLearned    uint64 `json:"not_learned"`    // the address table is full
	NoRoute       uint64 `json:"no_route"`       // the switch of the destination has no route: dropped
}

type learned struct {
	out    *Direction
	seenNS int64
}

// forward takes a frame that came to sw through the direction from, at atNS, and one reference to the handle.
func (f *Fabric) forward(sw *Switch, from *Direction, handle framepool.Handle, bytes int, atNS int64) {
	frame := f.pool.Frame(handle, bytes)
	destination, source := address(frame[0:]), address(frame[6:])
	if source&groupBit != 0 || source == 0 {
		sw.counts.InvalidSource++
		f.pool.Release(handle)
		return
	}
	home, behind := f.origin(from, handle)
	if f.addresses != nil && home == nil {
		sw.counts.NoRoute++ // its port, or the link of that, was removed while it was under way
		f.pool.Release(handle)
		return
	}
	if (home == nil || home == sw) && !sw.addresses.learn(source, behind, atNS) {
		sw.counts.NotLearned++
	}
	if destination&groupBit == 0 {
		if entry, ok := sw.addresses.behind[destination]; ok && atNS-entry.seenNS <= ageingNS {
			switch out := f.nextHop(sw, entry.out); {
			case out == nil:
				sw.counts.NoRoute++
			case out == from.back && (f.addresses == nil || from.back.to.port != nil):
				sw.counts.Filtered++
			default:
				sw.counts.Forwarded++
				f.offer(out, handle, bytes, atNS)
				return
			}
			f.pool.Release(handle)
			return
		}
	}
	flooded := false
	for _, out := range sw.out {
		if out == from.back || home != nil && out.to.sw != nil && out.to.sw.next[home] != out.back {
			continue
		}
		flooded = true
		f.pool.Retain(handle)
		f.offer(out, handle, bytes, atNS)
	}
	if flooded {
		sw.counts.Flooded++
	} else {
		sw.counts.Filtered++
	}
	f.pool.Release(handle)
}

// origin is where a frame that came to sw through from has its source: the direction that leads there, from sw or, in a
// routed network, from the switch of the port that sent it, which is home.
func (f *Fabric) origin(from *Direction, handle framepool.Handle) (home *Switch, behind *Direction) {
	if f.addresses != nil {
		if port := f.portByID[f.sender(handle)]; port != nil && port.out != nil && port.out.to.sw != nil {
			return port.out.to.sw, port.out.back
		}
	}
	return nil, from.back
}

// nextHop is the direction that a frame takes from sw to what is behind a learned direction; nil: there is no route.
func (f *Fabric) nextHop(sw *Switch, behind *Direction) *Direction {
	if home := behind.back.to.sw; f.addresses != nil && home != sw {
		return sw.next[home]
	}
	return behind
}

// updateSlack must be called when a direction that leaves the switch was added, removed or changed.
func (sw *Switch) updateSlack() {
	sw.slackNS = maxSlackNS
	for _, out := range sw.out {
		sw.slackNS = min(sw.slackNS, out.line.LeastDelayNS())
	}
}

// learn reports whether there was room.
func (t *addressTable) learn(source uint64, out *Direction, atNS int64) bool {
	entry, known := t.behind[source]
	if known && entry.out == out && atNS-entry.seenNS < refreshNS {
		return true
	}
	if !known && len(t.behind) >= maxAddresses {
		if atNS-t.sweptNS >= refreshNS {
			t.sweptNS = atNS
			t.forgetOlderThan(atNS - ageingNS)
		}
		if len(t.behind) >= maxAddresses {
			return false
		}
	}
	t.behind[source] = learned{out, atNS}
	return true
}

// forgetOlderThan removes the entries last seen before seenNS.
func (t *addressTable) forgetOlderThan(seenNS int64) {
	for a, entry := range t.behind {
		if entry.seenNS < seenNS {
			delete(t.behind, a)
		}
	}
}

// forgetBehind removes the addresses learned behind a link that went down or was removed.
func (t *addressTable) forgetBehind(out *Direction) {
	for a, entry := range t.behind {
		if entry.out == out {
			delete(t.behind, a)
		}
	}
}

// address reads 6 octets; b must have them.
func address(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}
