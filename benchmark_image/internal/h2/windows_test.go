package h2

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

func TestSendWindows(t *testing.T) {
	p := newPeer(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	var got outcomes
	large, small := &Stream{Owner: &got}, &Stream{Owner: &got}
	p.start(large, put, 95, 99_900) // 100000 bytes with the prefix
	p.start(small, put, 3, 0)
	received, frames := map[uint32]int{}, 0
	ended := map[uint32]bool{}
	var content []byte
	take := func() {
		p.frames(func(f http2.Frame) {
			if d, ok := f.(*http2.DataFrame); ok {
				received[d.StreamID] += len(d.Data())
				ended[d.StreamID] = d.StreamEnded()
				frames++
				if d.StreamID == 1 {
					content = append(content, d.Data()...)
				}
			}
		})
	}
	expect := func(what string, first, second int) {
		t.Helper()
		if take(); received[1] != first || received[3] != second || ended[1] != (first == 100_000) ||
			ended[3] != (second == 8) {
			t.Errorf("%s: %v bytes received, ended %v", what, received, ended)
		}
	}
	expect("10 bytes of window each", 10, 8)
	p.must(p.framer.WriteWindowUpdate(1, 20))
	p.must(p.feed())
	expect("20 more", 30, 8)
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	p.must(p.framer.WriteWindowUpdate(1, 10))
	p.must(p.feed())
	expect("10 more, but 10 less for all", 30, 8)
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 90_000}))
	p.must(p.feed())
	expect("up to the window of the connection", defaultWindow-8, 8)
	before := frames
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 40_000},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: 200_000}))
	p.must(p.framer.WriteWindowUpdate(0, 1<<20))
	p.must(p.feed())
	expect("everything", 100_000, 8)
	if frames != before+1 {
		t.Errorf("%d frames for the last 34473 bytes", frames-before)
	}
	want := append(binary.BigEndian.AppendUint32([]byte{0}, 99_995),
		strings.Repeat("h", 95)+strings.Repeat("t", 99_900)...)
	if !bytes.Equal(content, want) {
		t.Error("the message does not arrive as it was sent")
	}
	p.answer(1)
	p.answer(3)
	p.must(p.feed())
	if len(got.failures) != 2 || got.failures[0] != nil || got.failures[1] != nil {
		t.Errorf("outcomes %v", got.failures)
	}
}

func TestReceiveWindows(t *testing.T) {
	p := newPeer(t, Options{Window: 100_000})
	var got outcomes
	p.start(&Stream{Owner: &got}, put, 10, 0)
	p.written()
	p.begin(1)
	const size = 1_000_000
	answer := binary.BigEndian.AppendUint32([]byte{0}, size)
	answer = append(answer, 0x7a)             // field 15, bytes
	answer = append(answer, 0xbc, 0x84, 0x3d) // 999996
	answer = append(answer, make([]byte, 999_996)...)
	connection, stream := int64(100_000), int64(100_000)
	for len(answer) > 0 {
		n := min(int64(len(answer)), 16_000, connection, stream)
		if n <= 0 {
			t.Fatalf("the member is stuck with %d bytes to send", len(answer))
		}
		p.must(p.framer.WriteDataPadded(1, false, answer[:n], nil))
		answer = answer[n:]
		connection, stream = connection-n, stream-n
		p.must(p.feed())
		p.frames(func(f http2.Frame) {
			if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 0 {
				connection += int64(u.Increment)
			} else if ok {
				stream += int64(u.Increment)
			}
		})
	}
	p.end(1)
	p.must(p.feed())
	if len(got.failures) != 1 || got.failures[0] != nil {
		t.Errorf("outcomes %+v", got.failures)
	}
}
