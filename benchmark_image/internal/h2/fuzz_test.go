package h2

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/inputtest"
)

// FuzzConn feeds malformed frames, in two pieces, and cancels calls between them. For every input, each call that is
// not cancelled has exactly one outcome, and every answer that is read was in the input.
func FuzzConn(native *testing.F) {
	f := inputtest.F{F: native}
	p := newPeer(f, Options{})
	p.answer(1)
	p.headers(3, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "8", "grpc-message", "no%20")
	p.must(p.framer.WriteGoAway(5, http2.ErrCodeNo, nil))
	f.Add(bytes.Clone(p.toConn.Bytes()), uint16(20))
	p.toConn.Reset()
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100_000},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}))
	p.must(p.framer.WriteWindowUpdate(0, 70_000))
	p.must(p.framer.WriteRSTStream(1, http2.ErrCodeRefusedStream))
	p.must(p.framer.WritePing(false, [8]byte{}))
	f.Add(bytes.Clone(p.toConn.Bytes()), uint16(1))
	p.toConn.Reset()
	p.begin(1)
	p.data(1, message(brokenAnswer))
	p.end(1)
	p.answer(3)
	p.answer(5)
	f.Add(bytes.Clone(p.toConn.Bytes()), uint16(60))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		c := newPeer(t, Options{Window: defaultWindow}).conn
		started, cancelled, more := 0, 0, 20
		var got outcomes
		start := func(s *Stream) {
			if more > 0 && c.CanStart() {
				more--
				started++
				c.Start(s, get, append(AppendPrefix(nil), "key"...), make([]byte, started*10_000))
			}
		}
		got.again = start
		var all [4]Stream
		for i := range all {
			all[i].Owner = &got
			start(&all[i])
		}
		split := min(int(cut), len(b))
		err := c.Feed(b[:split])
		if err == nil {
			c.Wrote(min(len(c.Output()), int(cut)))
			for i := range all {
				if cut>>i&1 == 1 && all[i].Active() {
					c.Cancel(&all[i])
					cancelled++
					if all[i].Active() {
						t.Error("a call goes on that was cancelled")
					}
					start(&all[i])
				}
			}
			err = c.Feed(b[split:])
		}
		if fault := new(ConnError); err != nil && !errors.As(err, &fault) {
			t.Errorf("an error of another kind: %v", err)
		}
		c.Lost("over")
		if len(got.failures)+cancelled != started || c.Active() != 0 || c.firstBlocked != nil {
			t.Errorf("%d calls, %d outcomes, %d cancelled, %d under way", started, len(got.failures), cancelled, c.Active())
		}
		if len(got.body) > len(b) {
			t.Errorf("answers of %d bytes were read from %d", len(got.body), len(b))
		}
	})
}
