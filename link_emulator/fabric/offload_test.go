package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/segment"
)

// segments are the partial frames of what a host hands over at once: bytes of a flow, from a sequence number on.
func segments(to, from byte, flow uint16, sequence uint32, length, size int) (frames [][]byte) {
	data := binary.NativeEndian.AppendUint16([]byte{1, 1, 0, 0}, uint16(size))
	data = binary.NativeEndian.AppendUint16(data, 34)
	data = binary.NativeEndian.AppendUint16(data, 16)
	whole := frame(to, from, "")
	copy(whole[12:], []byte{8, 0})
	whole = append(whole, 0x45, 2, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to)
	binary.BigEndian.PutUint16(whole[16:], uint16(40+length))
	binary.BigEndian.PutUint16(whole[18:], uint16(sequence/uint32(size)))
	whole = append(whole, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(whole[34:], flow)
	binary.BigEndian.PutUint32(whole[38:], sequence)
	for i := range length {
		whole = append(whole, byte(int(sequence)+i))
	}
	piece, ok := segment.Read(append(data, whole...))
	if !ok {
		panic("a segment is refused")
	}
	for next := piece.Next(make([]byte, piece.MostBytes())); next != nil; {
		frames = append(frames, next)
		next = piece.Next(make([]byte, piece.MostBytes()))
	}
	return frames
}

func completed(frame []byte) []byte {
	frame = bytes.Clone(frame)
	segment.Complete(frame)
	return frame
}

// splitSink takes apart what it is given, as a host's kernel does not, and keeps the frames.
type splitSink struct {
	frames []string
	most   int // frames in one delivery
	nowNS  int64
}

func (s *splitSink) Deliver(frames [][]byte, partial bool, dueNS int64) (Drop, int64) {
	s.most = max(s.most, len(frames))
	if !partial {
		s.frames = append(s.frames, string(frames[0]))
		return Delivered, s.nowNS - dueNS
	}
	head := make([]byte, segment.HeaderBytes+segment.MaxHeaders)
	length, payloadAt := segment.Join(head, frames)
	joined := head[:length]
	for _, frame := range frames {
		joined = append(joined, frame[payloadAt:]...)
	}
	piece, ok := segment.Read(joined)
	if !ok {
		panic("what is handed over is nothing that a kernel takes")
	}
	for next := piece.Next(make([]byte, 2000)); next != nil; next = piece.Next(make([]byte, 2000)) {
		s.frames = append(s.frames, string(completed(next)))
	}
	return Delivered, s.nowNS - dueNS
}

func advance(n *network, sinks [2]*splitSink, nowNS int64) {
	sinks[0].nowNS, sinks[1].nowNS = nowNS, nowNS
	n.Advance(nowNS)
}

// With offload, links decide of each frame what they decide without: hosts get the same frames in the same order, and
// the counters are the same. What differs is how many are handed over at once.
func TestOffloadChangesNoFrame(t *testing.T) {
	most := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 26))
		params := model.Params{DelayNS: random.Int64N(3) * ms, Seed: int64(seed),
			Loss:        model.Loss{Model: model.Independent, Ratio: float64(random.IntN(2)) / 20},
			Duplication: float64(random.IntN(2)) / 20, Corruption: float64(random.IntN(2)) / 20}
		if random.IntN(2) == 0 {
			params.RateBPS = input.Limit(1e9 * (1 + random.Int64N(20)))
		}
		networks, sinks := [2]*network{}, [2][2]*splitSink{}
		for with := range networks {
			n := newNetwork(t)
			assert.OK(t, n.AddSwitch("s1"))
			for i, name := range []string{"h0", "h1"} {
				sinks[with][i] = &splitSink{}
				p, err := n.AddPort(name, 1500, sinks[with][i])
				assert.OK(t, err)
				if with == 1 {
					p.TakesPartial()
				}
				n.addLink("l"+name, port(name), sw("s1"), params)
			}
			networks[with] = n
		}
		sequences, nowNS := map[string]uint32{}, int64(0)
		for round := range 40 {
			nowNS += random.Int64N(ms / 10)
			for _, n := range networks {
				if round == 20 && seed%4 == 0 {
					assert.OK(t, n.Partition([][]string{{"h0"}, {"h1"}}))
				} else if round == 30 {
					n.Heal()
				}
			}
			from, flow := byte(random.IntN(2)), uint16(random.IntN(2))
			key := fmt.Sprint(from, flow)
			length := 1 + random.IntN(12_000)
			for _, frame := range segments(1-from, from, flow, sequences[key], length, 1400) {
				for with, n := range networks {
					advance(n, sinks[with], nowNS)
					sender := n.ports[fmt.Sprintf("h%d", from)]
					if with == 1 && random.IntN(20) > 0 {
						n.IngressPartial(sender, frame, nowNS)
					} else {
						n.Ingress(sender, completed(frame), nowNS)
					}
				}
			}
			sequences[key] += uint32(length+1399) / 1400 * 1400
		}
		for with, n := range networks {
			advance(n, sinks[with], nowNS+1000*ms)
			assert.Equal(t, n.pool.Usage().Frames, 0, "seed %d: frames that are still held", seed)
		}
		for i := range sinks[0] {
			same := slices.Equal(sinks[0][i].frames, sinks[1][i].frames)
			assert.Must(t, same, "seed %d: h%d got other frames", seed, i)
			most = max(most, sinks[1][i].most)
		}
		assert.Equal(t, networks[1].State(), networks[0].State(), "seed %d: counters", seed)
	}
	assert.That(t, most > 5, "at most %d frames were handed over at once", most)
}

// Frames are handed over together where one follows the other and all are due; each is late by itself.
func TestFramesThatAreDueAreHandedOverTogether(t *testing.T) {
	n := star(t, 0, 0)
	for name, p := range n.ports {
		p.TakesPartial()
		n.send(name, frame(255, name[1]-'0', ""), 0)
	}
	n.Advance(0)
	n.received("h0")
	n.received("h1")
	// A byte takes a nanosecond.
	assert.OK(t, n.SetLink("l0", [2]*Change{{Params: model.Params{RateBPS: 8e9}}}, 0))
	flow, other := segments(1, 0, 1, 0, 4000, 1000), segments(1, 0, 2, 0, 1000, 1000)
	for _, f := range [][]byte{flow[0], flow[1], other[0], flow[2], flow[3]} {
		n.IngressPartial(n.ports["h0"], f, ms)
	}
	n.Reset(ms)
	n.sinks["h1"].lateNS = 1000
	n.Advance(ms + 3000)
	n.Advance(ms + 6000)
	assert.Equal(t, n.pieces("h1", flow[0]), "2@1054 1@3162 2@4216", "frames in a delivery")
	assert.Equal(t, n.State().Links["l1"].BToA.Frames, uint64(5), "frames that the last link delivered")
	assert.Equal(t, n.State().Links["l1"].BToA.Lateness.Count, uint64(5), "frames whose lateness is known")
}

// Frames that nothing can follow, and those that have waited for 64 deliveries, are handed over before Advance ends.
func TestFramesWaitForOthersOfTheirFlowNoLongerThanTheyMay(t *testing.T) {
	n := star(t, 0, 0, 0)
	var order []string
	for name, p := range n.ports {
		p.TakesPartial()
		n.sinks[name].check = func(int64) { order = append(order, name) }
	}
	for i := range 3 {
		n.send(fmt.Sprintf("h%d", i), frame(255, byte(i), ""), 0)
	}
	n.Advance(0)
	for _, c := range []struct{ bytes, place int }{{1500, 0}, {1000, 64}} { // a short frame at the end, or none
		order = nil
		for _, f := range segments(1, 0, 1, 0, c.bytes, 1000) {
			n.IngressPartial(n.ports["h0"], f, ms)
		}
		for range 100 {
			n.Ingress(n.ports["h0"], frame(2, 0, ""), ms)
		}
		n.Advance(ms)
		assert.Equal(t, slices.Index(order, "h1"), c.place, "deliveries before that of %d bytes", c.bytes)
	}
}

// No more frames are handed over at once than a kernel would, and no more bytes than an IP packet has.
func TestWhatIsHandedOverAtOnceIsBounded(t *testing.T) {
	n := star(t, 0, 0)
	for _, p := range n.ports {
		p.TakesPartial()
	}
	for i, size := range []int{100, 1400} {
		frames := segments(1, 0, 1, 0, 40*size, size)
		for _, f := range append(frames, segments(1, 0, 1, uint32(40*size), 40*size, size)...) {
			n.IngressPartial(n.ports["h0"], f, int64(i)*ms)
		}
		n.Advance(int64(i) * ms)
		want := []string{"64@-1000000 16@-1000000", "45@0 35@0"}[i]
		assert.Equal(t, n.pieces("h1", frames[0]), want, "frames of %d", size)
	}
}

// pieces takes what a port has got: how many frames came at once, which all begin as one does, and when after 1 ms.
func (n *network) pieces(name string, frame []byte) string {
	var got []string
	for _, d := range n.sinks[name].frames {
		got = append(got, fmt.Sprintf("%d@%d", strings.Count(d.frame, "+"+string(frame[:12]))+1, d.dueNS-ms))
	}
	n.sinks[name].frames = nil
	return strings.Join(got, " ")
}
