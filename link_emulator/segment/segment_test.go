package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"containernet-env/link_emulator/assert"
)

// shape is a TCP frame to be made.
type shape struct {
	version, tags, options int // options: bytes of those of TCP
	flags                  byte
	payload                []byte
}

// make is the partial frame; its checksums are computed in the plainest way.
func (s shape) make() (frame []byte, tcpAt int) {
	frame = append(frame, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2)
	for range s.tags {
		frame = append(frame, 0x81, 0, 0, 7)
	}
	tcpLength := 20 + s.options + len(s.payload)
	addresses := []byte{10, 0, 0, 1, 10, 0, 0, 2}
	if s.version == 4 {
		ip := []byte{0x45, 3, 0, 0, 0xff, 0xfe, 0x40, 0, 64, 6, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+tcpLength))
		ip = append(ip, addresses...)
		binary.BigEndian.PutUint16(ip[10:], ^plainSum(ip))
		frame = append(append(frame, 8, 0), ip...)
	} else {
		addresses = bytes.Repeat([]byte{0xfd, 7}, 16)
		frame = append(frame, 0x86, 0xdd, 0x60, 1, 2, 3, byte(tcpLength>>8), byte(tcpLength), 6, 64)
		frame = append(frame, addresses...)
	}
	tcpAt = len(frame)
	tcp := []byte{0x12, 0x34, 0, 80, 0xff, 0xff, 0xf0, 0, 1, 2, 3, 4}
	tcp = append(tcp, byte(20+s.options)<<2, s.flags, 5, 6, 0, 0, 0, 0)
	tcp = append(tcp, bytes.Repeat([]byte{1}, s.options)...)
	pseudo := append(append([]byte{}, addresses...), 0, 6, byte(tcpLength>>8), byte(tcpLength))
	binary.BigEndian.PutUint16(tcp[16:], plainSum(pseudo))
	return append(append(frame, tcp...), s.payload...), tcpAt
}

// plainSum is RFC 1071, number by number.
func plainSum(data []byte) uint16 {
	total := uint32(0)
	for i, b := range data {
		if i%2 == 0 {
			total += uint32(b) << 8
		} else {
			total += uint32(b)
		}
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// header is that of a TAP.
func header(flags, gso byte, size, start, offset int) []byte {
	data := []byte{flags, gso}
	for _, value := range []int{0, size, start, offset} {
		data = binary.NativeEndian.AppendUint16(data, uint16(value))
	}
	return data
}

func numbered(length int) []byte {
	payload := make([]byte, length)
	for i := range payload {
		payload[i] = byte(i * 7 >> 3)
	}
	return payload
}

// split is the frames of a segment of so many payload bytes each.
func split(t testing.TB, s shape, size int) (frames [][]byte, tcpAt int) {
	t.Helper()
	whole, tcpAt := s.make()
	piece, ok := Read(append(header(1, map[int]byte{4: 1, 6: 4}[s.version], size, tcpAt, 16), whole...))
	assert.Must(t, ok && piece.Partial(), "a segment of a kernel is refused: %+v", piece)
	for frame := piece.Next(make([]byte, piece.MostBytes())); frame != nil; {
		frames = append(frames, frame)
		frame = piece.Next(make([]byte, piece.MostBytes()))
	}
	return frames, tcpAt
}

func TestASegmentIsSplitAsTheKernelDoes(t *testing.T) {
	for _, s := range []shape{
		{4, 0, 12, 0x19, numbered(3000)}, {6, 0, 12, 0x18, numbered(2000)}, {4, 1, 0, 0x10, numbered(5001)},
		{6, 2, 40, 0x10, numbered(1001)}, {4, 2, 40, 0x19, numbered(10)},
	} {
		name := fmt.Sprintf("IPv%d, %d tags, %d bytes", s.version, s.tags, len(s.payload))
		frames, tcpAt := split(t, s, 1000)
		assert.Equal(t, len(frames), (len(s.payload)+999)/1000, "%s", name)
		for i, frame := range frames {
			// What a host would send that has no offload: the same frame, with its own part of the payload.
			part := s
			part.payload = s.payload[i*1000 : min(len(s.payload), (i+1)*1000)]
			if i < len(frames)-1 {
				part.flags &^= 0x09
			}
			want, _ := part.make()
			binary.BigEndian.PutUint32(want[tcpAt+4:], 0xfffff000+uint32(i*1000))
			if s.version == 4 {
				ip := want[tcpAt-20 : tcpAt]
				binary.BigEndian.PutUint16(ip[4:], 0xfffe+uint16(i))
				binary.BigEndian.PutUint16(ip[10:], 0)
				binary.BigEndian.PutUint16(ip[10:], ^plainSum(ip))
			}
			assert.Must(t, bytes.Equal(frame, want), "%s: frame %d\n got %x\nwant %x", name, i, frame, want)
			Complete(frame)
			assert.Equal(t, binary.BigEndian.Uint16(frame[tcpAt+16:]), ^plainSum(want[tcpAt:]), "%s: checksum", name)
		}
	}
}

// Frames that were split and are joined are what the kernel had handed over.
func TestWhatWasSplitIsJoined(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		s := shape{4 + 2*random.IntN(2), random.IntN(3), 4 * random.IntN(11), 0x10, numbered(1 + random.IntN(60_000))}
		s.flags |= byte(random.IntN(2)) * 8
		size := max(32+random.IntN(9000), (len(s.payload)+MaxFrames-1)/MaxFrames)
		frames, tcpAt := split(t, s, size)
		if !Begins(frames[0]) {
			assert.Must(t, len(frames) == 1, "the first frame of %d begins nothing", len(frames))
			continue
		}
		total := len(frames[0])
		for i := range frames[1:] {
			assert.Must(t, Continues(frames[0], frames[i], frames[i+1], total),
				"%+v, frames of %d: %d does not follow", s, size, i+1)
			total += len(frames[i+1])
		}
		head := make([]byte, HeaderBytes+MaxHeaders)
		length, payloadAt := Join(head, frames)
		joined := head[:length]
		for _, frame := range frames {
			joined = append(joined, frame[payloadAt:]...)
		}
		whole, _ := s.make()
		want := append(header(1, map[int]byte{4: 1, 6: 4}[s.version], min(size, len(s.payload)), tcpAt, 16), whole...)
		if len(frames) == 1 {
			copy(want, header(1, 0, 0, tcpAt, 16))
		}
		copy(want[2:4], joined[2:4]) // the length of the headers is a hint
		assert.Must(t, bytes.Equal(joined, want), "%d frames of %d\n got %x\nwant %x", len(frames), size, joined,
			want)
	}
}

func TestWhatIsNotJoined(t *testing.T) {
	for _, version := range []int{4, 6} {
		frames, tcp := split(t, shape{version, 0, 12, 0x18, numbered(3000)}, 1000)
		refused := func(why string, change func(first, last, next []byte) (a, b, c []byte)) {
			t.Helper()
			copies := make([][]byte, 3)
			for i := range copies {
				copies[i] = bytes.Clone(frames[i])
			}
			first, last, next := change(copies[0], copies[1], copies[2])
			assert.That(t, !Continues(first, last, next, len(first)+len(last)), "IPv%d: %s", version, why)
		}
		assert.That(t, Continues(frames[0], frames[1], frames[2], 2*len(frames[0])), "IPv%d: the same flow", version)
		assert.That(t, !Continues(frames[0], frames[1], frames[2], 64_550), "IPv%d: beyond the longest packet", version)
		ip := tcp - map[int]int{4: 20, 6: 40}[version]
		places := map[string]int{
			"another sender": 6, "another host": 5, "marks": ip + 1, "another address": tcp - 1,
			"another port": tcp + 1, "a hole": tcp + 4, "another acknowledgement": tcp + 11, "other flags": tcp + 13,
			"another window": tcp + 15, "an urgent pointer": tcp + 19, "other options": tcp + 25,
			"other lengths of headers": tcp + 12,
		}
		if version == 4 {
			places["another identification"], places["a fragment"], places["another time to live"] = ip+5, ip+6, ip+8
		} else {
			places["another hop limit"] = ip + 7
		}
		for why, place := range places {
			refused(why, func(first, last, next []byte) (a, b, c []byte) {
				next[place] ^= 0x40
				return first, last, next
			})
		}
		refused("a pushed frame before it", func(first, last, next []byte) (a, b, c []byte) {
			last[tcp+13] |= 8
			return first, last, next
		})
		refused("an end before it", func(first, last, next []byte) (a, b, c []byte) {
			last[tcp+13] |= 1
			return first, last, next
		})
		short, _ := split(t, shape{version, 0, 12, 0x10, numbered(500)}, 1000)
		refused("a short frame before it", func(first, _, next []byte) (a, b, c []byte) {
			last := bytes.Clone(short[0])
			binary.BigEndian.PutUint32(next[tcp+4:], binary.BigEndian.Uint32(last[tcp+4:])+500)
			if version == 4 {
				binary.BigEndian.PutUint16(next[ip+4:], binary.BigEndian.Uint16(last[ip+4:])+1)
			}
			return first, last, next
		})
		longer, _ := split(t, shape{version, 0, 12, 0x10, numbered(3003)}, 1001)
		refused("a longer frame", func(first, last, _ []byte) (a, b, c []byte) {
			copy(longer[2][tcp+4:tcp+8], frames[2][tcp+4:tcp+8])
			return first, last, longer[2]
		})
		if version == 4 {
			fragment := bytes.Clone(frames[0])
			fragment[ip+7] = 1
			assert.That(t, !Begins(fragment), "a fragment begins")
		}
		none, _ := split(t, shape{version, 0, 12, 0x10, nil}, 1000)
		assert.That(t, !Begins(none[0]), "IPv%d: an acknowledgement begins", version)
		for _, flags := range []byte{0x12, 0x14, 0x18, 0x11, 0x50} {
			frame, _ := shape{version, 0, 0, flags, numbered(10)}.make()
			assert.That(t, !Begins(frame), "IPv%d: a frame with flags %x begins", version, flags)
		}
	}
}

func TestOtherChecksumsAreCompletedAndMalformedPiecesRefused(t *testing.T) {
	frame, tcpAt := shape{version: 4, payload: numbered(9)}.make()
	udp := tcpAt // a header of UDP in its place
	frame[tcpAt-11] = 17
	copy(frame[udp+6:], []byte{0, 0})
	piece, ok := Read(append(header(1, 0, 0, udp, 6), frame...))
	assert.That(t, ok && !piece.Partial(), "it stays partial")
	assert.That(t, bytes.Equal(piece.Bytes(), frame), "the frame is not as it was stamped any more")
	read := piece.Next(make([]byte, len(frame)))
	assert.Equal(t, plainSum(read[udp:]), 0xffff, "sum with the checksum")
	assert.That(t, piece.Next(read) == nil, "there is a second frame")
	for _, bad := range [][]byte{
		header(1, 0, 0, len(frame), 6), header(0, 1, 1000, udp, 16), header(1, 1, 1000, udp, 6),
		header(1, 5, 99, udp, 16),
	} {
		_, ok := Read(append(bad, frame...))
		assert.That(t, !ok, "header %x is taken", bad)
	}
	tcp, tcpAt := shape{version: 4, payload: numbered(99)}.make()
	wrong := bytes.Clone(tcp)
	wrong[tcpAt+16] ^= 0x55 // a receiver would trust it
	piece, _ = Read(append(header(1, 0, 0, tcpAt, 16), wrong...))
	assert.That(t, bytes.Equal(piece.Next(make([]byte, len(tcp))), tcp), "the sum of the pseudo-header stays wrong")
	for size, want := range map[int]bool{31: false, 32: true} {
		_, ok := Read(append(header(1, 1, size, tcpAt, 16), tcp...))
		assert.Equal(t, ok, want, "a segment with frames of %d bytes", size)
	}
	_, ok = Read(make([]byte, HeaderBytes-1))
	assert.That(t, !ok, "less than a header is taken")
}

// FuzzRead: whatever is read, no byte of a payload is lost, and nothing fails.
func FuzzRead(f *testing.F) {
	for _, s := range []shape{{4, 0, 12, 0x18, numbered(3000)}, {6, 1, 0, 0x10, numbered(100)}} {
		whole, tcpAt := s.make()
		f.Add(append(header(1, 1, 1000, tcpAt, 16), whole...))
		f.Add(append(header(1, 4, 32, tcpAt, 16), whole...))
		f.Add(append(header(1, 0, 0, tcpAt, 16), whole...))
		f.Add(append(header(0, 0, 0, 0, 0), whole...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		piece, ok := Read(bytes.Clone(data))
		if !ok {
			return
		}
		want, room := len(data)-HeaderBytes, make([]byte, piece.MostBytes())
		for frame := piece.Next(room); frame != nil; frame = piece.Next(room) {
			want -= len(frame)
			if piece.size > 0 {
				want += piece.at.payload
			}
		}
		if piece.size > 0 {
			want -= piece.at.payload
		}
		assert.Equal(t, want, 0, "bytes that are in no frame")
	})
}
