package probe

import "encoding/binary"

// etherType is 88B5, "local experimental Ethertype 1" of IEEE 802: no host answers it, no stack takes it.
const etherType = 0x88b5

// Offsets in a frame: Ethernet header, then the mark.
const (
	headerBytes = 14
	markBytes   = 16 // run (8), stream (4), number of the frame in it (4)
)

// warmupStream is the stream number of the warm-up's frames.
const warmupStream = ^uint32(0)

// mark identifies a frame: a random number of the run, its stream and its number there.
type mark struct {
	run    uint64
	stream uint32
	number uint32
}

// newFrame is a frame of a length between two addresses, all zero after its mark.
func newFrame(to, from [6]byte, length int) []byte {
	frame := make([]byte, length)
	copy(frame[0:], to[:])
	copy(frame[6:], from[:])
	binary.BigEndian.PutUint16(frame[12:], etherType)
	return frame
}

func (m mark) encode(frame []byte) {
	binary.BigEndian.PutUint64(frame[headerBytes:], m.run)
	binary.BigEndian.PutUint32(frame[headerBytes+8:], m.stream)
	binary.BigEndian.PutUint32(frame[headerBytes+12:], m.number)
}

// decode reads the mark of a frame that is for the address to; false for anything else.
func decode(frame []byte, to [6]byte) (mark, bool) {
	if len(frame) < headerBytes+markBytes || [6]byte(frame[:6]) != to || binary.BigEndian.Uint16(frame[12:]) != etherType {
		return mark{}, false
	}
	return mark{
		run:    binary.BigEndian.Uint64(frame[headerBytes:]),
		stream: binary.BigEndian.Uint32(frame[headerBytes+8:]),
		number: binary.BigEndian.Uint32(frame[headerBytes+12:]),
	}, true
}
