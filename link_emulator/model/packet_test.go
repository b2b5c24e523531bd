package model

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"

	"containernet-env/link_emulator/assert"
)

// sum is the Internet checksum of parts of even length, except for the last (RFC 1071): 0xffff where they have their
// own.
func sum(parts ...[]byte) uint16 {
	total := uint32(0)
	for _, part := range parts {
		for i := range part {
			total += uint32(part[i]) << (8 * (1 - i%2))
		}
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// drawPacket is a random frame with UDP over IP, all of whose checksums are right, behind so many VLAN tags.
func drawPacket(random *rand.Rand, version, tags int) []byte {
	payload := make([]byte, 8+random.IntN(100))
	for i := range payload {
		payload[i] = byte(random.Uint32())
	}
	binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
	copy(payload[6:], []byte{0, 0})
	var header []byte
	if version == 4 {
		header = make([]byte, 20+4*random.IntN(3))
		for i := range header {
			header[i] = byte(random.Uint32())
		}
		header[0], header[9] = byte(0x40+len(header)/4), 17
		binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(payload)))
		copy(header[6:], []byte{0, 0})
		binary.BigEndian.PutUint16(payload[6:], ^sum(header[12:20], []byte{0, 17}, payload[4:6], payload))
		copy(header[10:], []byte{0, 0})
		binary.BigEndian.PutUint16(header[10:], ^sum(header))
	} else {
		header = make([]byte, 40)
		for i := range header {
			header[i] = byte(random.Uint32())
		}
		header[0], header[6] = 0x60|header[0]&15, 17
		binary.BigEndian.PutUint16(header[4:], uint16(len(payload)))
		binary.BigEndian.PutUint16(payload[6:], ^sum(header[8:40], []byte{0, 17}, payload[4:6], payload))
	}
	frame := make([]byte, 12)
	for range tags {
		frame = append(frame, 0x81, 0, byte(random.Uint32()), byte(random.Uint32()))
	}
	frame = append(frame, map[int][]byte{4: {8, 0}, 6: {0x86, 0xdd}}[version]...)
	frame = append(append(frame, header...), payload...)
	return append(frame, make([]byte, random.IntN(3)*7)...) // padding
}

// intact reports whether a receiver takes a frame: its checksums are right.
func intact(frame []byte, tags int) bool {
	data := frame[14+4*tags:]
	switch binary.BigEndian.Uint16(frame[12+4*tags:]) {
	case 0x0800:
		header, length := int(data[0]&15)*4, int(binary.BigEndian.Uint16(data[2:]))
		if data[0]>>4 != 4 || header < 20 || length < header+8 || length > len(data) || sum(data[:header]) != 0xffff {
			return false
		}
		return data[9] == 17 && sum(data[12:20], []byte{0, 17}, data[header+4:header+6], data[header:length]) == 0xffff
	default:
		length := 40 + int(binary.BigEndian.Uint16(data[4:]))
		return length <= len(data) && sum(data[8:40], []byte{0, 17}, data[44:46], data[40:length]) == 0xffff
	}
}

func flipped(before, after []byte) (count, first int) {
	for i := range before {
		if d := before[i] ^ after[i]; d != 0 {
			if count == 0 {
				first = i
			}
			count += bits.OnesCount8(d)
		}
	}
	return count, first
}

func TestOneBitIsFlippedAndTheReceiverSeesIt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for number := range 60_000 {
		version, tags := 4+2*random.IntN(2), random.IntN(3)
		before := drawPacket(random, version, tags)
		assert.Must(t, intact(before, tags), "the packet of the test")
		after := append([]byte{}, before...)
		Corrupt(after, uint16(number))
		count, at := flipped(before, after)
		assert.Must(t, count == 1 && at >= 14+4*tags, "%d bits were flipped, the first in byte %d", count, at)
		assert.Must(t, !intact(after, tags), "IPv%d: the receiver takes a frame with byte %d damaged", version, at)
	}
	probe := make([]byte, 1514)
	binary.BigEndian.PutUint16(probe[12:], 0x88b5)
	seen := map[int]bool{}
	for number := range 1 << 16 {
		after := append([]byte{}, probe...)
		Corrupt(after, uint16(number))
		count, at := flipped(probe, after)
		assert.Must(t, count == 1 && at >= 14 && at < 60, "%d bits were flipped, the first in byte %d", count, at)
		seen[at] = true
	}
	assert.Equal(t, len(seen), 46, "bytes that were damaged")
	for length := range 60 { // no content makes it fail
		Corrupt(make([]byte, length), 65535)
	}
}

func TestMarksAreSetWhereTheSenderTakesThem(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 20_000 {
		version, tags := 4+2*random.IntN(2), random.IntN(3)
		before := drawPacket(random, version, tags)
		ip := 14 + 4*tags
		codepoint := func(frame []byte) byte { // from the header as a whole
			return byte(binary.BigEndian.Uint32(frame[ip:]) >> map[int]int{4: 16, 6: 20}[version] & 3)
		}
		assert.Must(t, packetOf(before).marks() == (codepoint(before) != 0), "IPv%d, codepoint %d", version,
			codepoint(before))
		after := append([]byte{}, before...)
		Mark(after)
		count, _ := flipped(before[:ip], after[:ip])
		same, _ := flipped(before[ip+12:], after[ip+12:])
		assert.Must(t, intact(after, tags) && codepoint(after) == 3 && count+same == 0, "IPv%d: a mark changed more",
			version)
	}
	other := drawPacket(random, 4, 0)
	other[12] = 9
	before := append([]byte{}, other...)
	Mark(other)
	count, _ := flipped(before, other)
	assert.That(t, count == 0 && !packetOf(other).marks(), "a frame without IP was marked")
}

func TestFlowsAreTheirAddressesProtocolAndPorts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	hash := func(frame []byte) uint64 { return packetOf(frame).hash(7) }
	for range 2000 {
		version, tags := 4+2*random.IntN(2), random.IntN(3)
		frame := drawPacket(random, version, tags)
		ip := 14 + 4*tags
		transport, addresses, protocol := ip+40, ip+8, ip+6
		if version == 4 {
			transport, addresses, protocol = ip+int(frame[ip]&15)*4, ip+12, ip+9
		}
		other := append([]byte{}, frame...)
		other[1]++
		other[transport+4]++ // no part of the flow: Ethernet address, the content
		other[ip+1]++
		assert.Must(t, hash(other) == hash(frame), "IPv%d: one flow is two", version)
		for _, at := range []int{addresses, addresses + 7, transport, transport + 3} {
			other := append([]byte{}, frame...)
			other[at]++
			assert.Must(t, hash(other) != hash(frame), "IPv%d: byte %d does not matter", version, at-ip)
		}
		for _, kind := range []byte{6, 33, 132, 136, 1} {
			other := append([]byte{}, frame...)
			other[protocol] = kind
			assert.Must(t, hash(other) != hash(frame), "IPv%d: protocol %d is that of UDP", version, kind)
			ports := append([]byte{}, other...)
			ports[transport]++
			assert.Must(t, (hash(ports) == hash(other)) == (kind == 1), "IPv%d: the ports of protocol %d", version,
				kind)
		}
		assert.Must(t, packetOf(frame).hash(8) != hash(frame), "the key does not matter")
	}
	// Fragments of a packet are one flow, and so is all without IP.
	first, second := drawPacket(random, 4, 0), drawPacket(random, 4, 0)
	copy(second[26:34], first[26:34])
	first[20], second[20], second[21] = 0x20, 0, 9
	assert.Equal(t, hash(first), hash(second), "fragments of IPv4")
	for _, header := range []byte{0, 43, 44, 60} {
		plain := drawPacket(random, 6, 0)
		extended := append(append(append([]byte{}, plain[:54]...), 17, 0, 0, 0, 0, 0, 0, 0), plain[54:]...)
		extended[20] = header
		binary.BigEndian.PutUint16(extended[18:], binary.BigEndian.Uint16(plain[18:])+8)
		ports := append([]byte{}, extended...)
		ports[62]++
		assert.That(t, (hash(extended) == hash(ports)) == (header == 44), "the ports behind extension header %d",
			header)
		assert.That(t, header == 44 || hash(extended) == hash(plain), "extension header %d makes another flow", header)
	}
	assert.Equal(t, hash(make([]byte, 60)), hash([]byte("an ARP request, or whatever has no IP header")), "without IP")
	for range 10_000 { // no content makes it fail
		frame := drawPacket(random, 4+2*random.IntN(2), random.IntN(3))
		for range 5 {
			frame[12+random.IntN(len(frame)-12)] = byte(random.Uint32())
		}
		frame = frame[:random.IntN(len(frame))]
		hash(frame)
		Mark(frame)
		Corrupt(frame, uint16(random.Uint32()))
	}
}
