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

// Switch is a learning Ethernet switch with zero forwarding delay; all delay is in the links. Frames to group addresses
// are flooded, including the reserved ones (LLDP, spanning tree, pause). There is no spanning tree: a link that would
// close a loop is refused.
type Switch struct {
	name      string
	out       []*Direction // directions that leave the switch
	slackNS   int64        // the shortest delay of any of them
	addresses map[uint64]learned
	sweptNS   int64 // when aged addresses were last removed because the table was full
	counts    SwitchCounts
}

// SwitchCounts counts the frames that came to a switch by what it did with them.
type SwitchCounts struct {
	Forwarded     uint64 `json:"forwarded"`      // to the one link where the destination was learned
	Flooded       uint64 `json:"flooded"`        // unknown or group destination: to every other link
	Filtered      uint64 `json:"filtered"`       // to the link that the frame came from, or there is no other
	InvalidSource uint64 `json:"invalid_source"` // a group address or all zero: dropped, as by the Linux bridge
	NotLearned    uint64 `json:"not_learned"`    // the address table is full
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
	sw.learn(source, from.back, atNS)
	if destination&groupBit == 0 {
		if entry, ok := sw.addresses[destination]; ok && atNS-entry.seenNS <= ageingNS {
			if entry.out == from.back {
				sw.counts.Filtered++
				f.pool.Release(handle)
				return
			}
			sw.counts.Forwarded++
			f.offer(entry.out, handle, bytes, atNS)
			return
		}
	}
	if len(sw.out) > 1 {
		sw.counts.Flooded++
	} else {
		sw.counts.Filtered++
	}
	for _, out := range sw.out {
		if out != from.back {
			f.pool.Retain(handle)
			f.offer(out, handle, bytes, atNS)
		}
	}
	f.pool.Release(handle)
}

// updateSlack must be called when a direction that leaves the switch was added, removed or changed.
func (sw *Switch) updateSlack() {
	sw.slackNS = maxSlackNS
	for _, out := range sw.out {
		params := out.line.Params()
		sw.slackNS = min(sw.slackNS, params.DelayNS-params.Jitter.ReachNS())
	}
}

func (sw *Switch) learn(source uint64, out *Direction, atNS int64) {
	entry, known := sw.addresses[source]
	if known && entry.out == out && atNS-entry.seenNS < refreshNS {
		return
	}
	if !known && len(sw.addresses) >= maxAddresses {
		if atNS-sw.sweptNS >= refreshNS {
			sw.sweptNS = atNS
			sw.forgetOlderThan(atNS - ageingNS)
		}
		if len(sw.addresses) >= maxAddresses {
			sw.counts.NotLearned++
			return
		}
	}
	sw.addresses[source] = learned{out, atNS}
}

// forgetOlderThan removes the entries last seen before seenNS.
func (sw *Switch) forgetOlderThan(seenNS int64) {
	for a, entry := range sw.addresses {
		if entry.seenNS < seenNS {
			delete(sw.addresses, a)
		}
	}
}

// forgetBehind removes the addresses learned behind a link that went down or was removed.
func (sw *Switch) forgetBehind(out *Direction) {
	for a, entry := range sw.addresses {
		if entry.out == out {
			delete(sw.addresses, a)
		}
	}
}

// address reads 6 octets; b must have them.
func address(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}
