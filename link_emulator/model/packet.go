package model

import "encoding/binary"

// What of a frame's content the model reads and changes. All other frames have neither flow nor marks.

const (
	ethernetBytes = 14
	vlanBytes     = 4
	ipv4Bytes     = 20
	ipv6Bytes     = 40
	// minPayload is the least payload of an Ethernet frame.
	minPayload = 46
)

// packet is the part of a frame behind its Ethernet header and at most two VLAN tags.
type packet struct {
	version int    // of IP: 4, 6; 0: it has none
	data    []byte // to the end of the IP packet; without IP, to that of the frame
}

func packetOf(frame []byte) packet {
	if len(frame) < ethernetBytes {
		return packet{}
	}
	etherType, data := binary.BigEndian.Uint16(frame[ethernetBytes-2:]), frame[ethernetBytes:]
	for tags := 0; tags < 2 && (etherType == 0x8100 || etherType == 0x88a8) && len(data) >= vlanBytes; tags++ {
		etherType, data = binary.BigEndian.Uint16(data[vlanBytes-2:]), data[vlanBytes:]
	}
	switch {
	case etherType == 0x0800 && len(data) >= ipv4Bytes && data[0]>>4 == 4:
		if length := int(binary.BigEndian.Uint16(data[2:])); length >= ipv4Bytes && length <= len(data) {
			return packet{4, data[:length]}
		}
	case etherType == 0x86dd && len(data) >= ipv6Bytes && data[0]>>4 == 6:
		if length := ipv6Bytes + int(binary.BigEndian.Uint16(data[4:])); length <= len(data) {
			return packet{6, data[:length]}
		}
	}
	return packet{0, data}
}

// marks reports whether the sender takes marks instead of drops: ECT(0), ECT(1), or CE of an earlier queue (RFC 3168).
func (p packet) marks() bool {
	switch p.version {
	case 4:
		return p.data[1]&3 != 0
	case 6:
		return p.data[1]>>4&3 != 0
	}
	return false
}

// Mark sets CE in a frame whose sender takes marks, with the checksum of an IPv4 header (RFC 1624, equation 3).
func Mark(frame []byte) {
	switch p := packetOf(frame); p.version {
	case 4:
		before := binary.BigEndian.Uint16(p.data)
		p.data[1] |= 3
		sum := uint32(^binary.BigEndian.Uint16(p.data[10:])) + uint32(^before) + uint32(binary.BigEndian.Uint16(p.data))
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(p.data[10:], ^uint16(sum>>16+sum))
	case 6:
		p.data[1] |= 3 << 4
	}
}

// Corrupt flips one bit, which a number chooses evenly: of IPv4, anywhere in the packet; of IPv6, behind the first 8
// bytes, of which no checksum has all; of other frames in the first 46 bytes behind the header.
func Corrupt(frame []byte, number uint16) {
	p := packetOf(frame)
	part := p.data
	switch p.version {
	case 0:
		part = part[:min(len(part), minPayload)]
	case 6:
		part = part[8:]
	}
	if bits := len(part) * 8; bits > 0 {
		bit := int(uint64(number) * uint64(bits) >> 16)
		part[bit/8] ^= 0x80 >> (bit % 8)
	}
}

// hash is of addresses, protocol and ports: those of TCP, UDP, DCCP, SCTP and UDP-Lite. Fragments have no ports, so
// that all of a packet are of one flow, and frames without IP are one flow together.
func (p packet) hash(key uint64) uint64 {
	mix := func(data []byte) {
		for ; len(data) >= 4; data = data[4:] {
			key = scramble(key ^ uint64(binary.BigEndian.Uint32(data)))
		}
	}
	var protocol byte
	var rest []byte
	whole := true
	switch p.version {
	case 0:
		return scramble(key)
	case 4:
		mix(p.data[12:20])
		protocol, rest = p.data[9], p.data[min(int(p.data[0]&15)*4, len(p.data)):]
		whole = binary.BigEndian.Uint16(p.data[6:])&0x3fff == 0 // neither an offset nor more fragments
	case 6:
		mix(p.data[8:40])
		protocol, rest = p.data[6], p.data[ipv6Bytes:]
		for whole && len(rest) >= 8 && (protocol == 0 || protocol == 43 || protocol == 44 || protocol == 60) {
			// Hop-by-hop options, routing, fragment, destination options.
			whole = protocol != 44
			length := 8
			if whole {
				length += int(rest[1]) * 8
			}
			protocol, rest = rest[0], rest[min(length, len(rest)):]
		}
	}
	key = scramble(key ^ uint64(protocol)<<32)
	switch protocol {
	case 6, 17, 33, 132, 136:
		if whole && len(rest) >= 4 {
			mix(rest[:4])
		}
	}
	return key
}
