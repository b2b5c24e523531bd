package probe

import (
	"bytes"
	"encoding/binary"
)

// etherType is 88B5, "local experimental Ethertype 1" of IEEE 802: no host answers it, no stack takes it.
const etherType = 0x88b5

const headerBytes = 14 // of an Ethernet frame; its mark follows

// warmupStream is the stream number of the warm-up's frames.
const warmupStream = ^uint32(0)

// Mark identifies what a prober sends: a random number of the run, what of it is sent (a stream of frames, or a pair of
// hosts), and its number there.
type Mark struct {
	Run            uint64
	Stream, Number uint32
}

// MarkBytes is the length of a mark.
const MarkBytes = 16

// Encode writes the mark to the beginning of a buffer. The number of the run is mixed with the others, so that a bit
// that is flipped in any of them makes it the mark of another run.
func (m Mark) Encode(to []byte) {
	binary.BigEndian.PutUint64(to, m.Run^m.mixed())
	binary.BigEndian.PutUint32(to[8:], m.Stream)
	binary.BigEndian.PutUint32(to[12:], m.Number)
}

// DecodeMark reads the mark at the beginning of a buffer, which must be long enough.
func DecodeMark(from []byte) Mark {
	m := Mark{binary.BigEndian.Uint64(from), binary.BigEndian.Uint32(from[8:]), binary.BigEndian.Uint32(from[12:])}
	m.Run ^= m.mixed()
	return m
}

// mixed differs for any two pairs of stream and number: an odd number has an inverse.
func (m Mark) mixed() uint64 { return (uint64(m.Stream)<<32 | uint64(m.Number)) * 0x9e3779b97f4a7c15 }

// newFrame is a frame of a length between two addresses, all zero after its mark.
func newFrame(to, from [6]byte, length int) []byte {
	frame := make([]byte, length)
	copy(frame[0:], to[:])
	copy(frame[6:], from[:])
	binary.BigEndian.PutUint16(frame[12:], etherType)
	return frame
}

// decode reads the mark of a frame that is for the address to; false for anything else, and where a byte behind the
// mark is not zero: a link may flip bits.
func decode(frame []byte, to [6]byte) (Mark, bool) {
	if len(frame) < headerBytes+MarkBytes || [6]byte(frame[:6]) != to || binary.BigEndian.Uint16(frame[12:]) != etherType {
		return Mark{}, false
	}
	// All zero: the first byte is, and each equals the one before it.
	padding := frame[headerBytes+MarkBytes:]
	if len(padding) > 0 && (padding[0] != 0 || !bytes.Equal(padding[1:], padding[:len(padding)-1])) {
		return Mark{}, false
	}
	return DecodeMark(frame[headerBytes:]), true
}
