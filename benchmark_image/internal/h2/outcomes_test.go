package h2

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// TestOutcomes has what a member may do with a request, and the outcome.
func TestOutcomes(t *testing.T) {
	const ok = "ok"
	answered := map[string]bool{
		"trailers only": true, "a status that leaves it open": true, "error after an answer": true,
		"HTTP 404": true, "HTTP 503": true,
	}
	for name, c := range map[string]struct {
		do      func(*peer)
		want    string // ok, or the code
		text    string // a part of it
		unknown bool
		written string // by the connection afterwards
	}{
		"answer": {func(p *peer) { p.answer(1) }, ok, "", false, ""},
		"trailers only": {func(p *peer) {
			p.headers(1, true, ":status", "200", "content-type", "application/grpc",
				"grpc-status", "8", "grpc-message", "no %e2%82%ac, 5%25 %zz %")
		}, "ResourceExhausted", "no €, 5% %zz %", true, ""},
		"a status that leaves it open": {
			func(p *peer) { p.begin(1); p.headers(1, true, "grpc-status", "14", "grpc-message", "timed out") },
			"Unavailable", "timed out", true, ""},
		"a status that does not exist": {func(p *peer) { p.begin(1); p.headers(1, true, "grpc-status", "99") },
			"Unknown", `"99"`, true, ""},
		"error after an answer": {
			func(p *peer) { p.begin(1); p.data(1, message(okAnswer)); p.headers(1, true, "grpc-status", "5") },
			"NotFound", "", true, ""},
		"no status": {func(p *peer) { p.begin(1); p.headers(1, true, "x", "y") },
			"Internal", "without a grpc-status", true, ""},
		"no trailers": {func(p *peer) { p.begin(1); p.must(p.framer.WriteData(1, true, message(okAnswer))) },
			"Internal", "without a grpc-status", true, ""},
		"no answer": {func(p *peer) { p.begin(1); p.end(1) }, "Internal", "complete answer", true, ""},
		"half an answer": {func(p *peer) { p.begin(1); p.data(1, message(okAnswer)[:8]); p.end(1) },
			"Internal", "complete answer", true, ""},
		"half a prefix": {func(p *peer) { p.begin(1); p.data(1, []byte{0, 0}); p.end(1) },
			"Internal", "complete answer", true, ""},
		"two answers": {
			func(p *peer) { p.begin(1); p.data(1, append(message(okAnswer), message(okAnswer)...)); p.end(1) },
			"Internal", "more than one", true, "RST_STREAM:CANCEL"},
		"compressed": {func(p *peer) { p.begin(1); p.data(1, []byte{1, 0, 0, 0, 1, 0}); p.end(1) },
			"Internal", "compressed", true, "RST_STREAM:CANCEL"},
		"broken message": {func(p *peer) { p.begin(1); p.data(1, message(brokenAnswer)); p.end(1) },
			"Internal", "cannot be read: a broken byte", true, "RST_STREAM:CANCEL"},
		"short message": {func(p *peer) { p.begin(1); p.data(1, message(shortAnswer)); p.end(1) },
			"Internal", "cannot be read: cut off", true, "RST_STREAM:CANCEL"},
		"data first": {func(p *peer) { p.data(1, message(okAnswer)) },
			"Internal", "before HEADERS", true, "RST_STREAM:PROTOCOL_ERROR"},
		"headers twice": {func(p *peer) { p.begin(1); p.begin(1) },
			"Internal", "HEADERS twice", true, "RST_STREAM:PROTOCOL_ERROR"},
		"not gRPC": {func(p *peer) { p.headers(1, false, ":status", "200", "content-type", "text/html") },
			"Unknown", "text/html", true, "RST_STREAM:CANCEL"},
		"HTTP 404": {func(p *peer) { p.headers(1, true, ":status", "404") }, "Unimplemented", "404", true, ""},
		"HTTP 503": {func(p *peer) { p.headers(1, false, ":status", "503") },
			"Unavailable", "503", true, "RST_STREAM:CANCEL"},
		"refused": {func(p *peer) { p.must(p.framer.WriteRSTStream(1, http2.ErrCodeRefusedStream)) },
			"Unavailable", "REFUSED_STREAM", false, ""},
		"reset": {func(p *peer) { p.begin(1); p.must(p.framer.WriteRSTStream(1, http2.ErrCodeCancel)) },
			"Canceled", "CANCEL", true, ""},
		"reset with an unknown code": {func(p *peer) { p.must(p.framer.WriteRSTStream(1, 0xabc)) },
			"Internal", "0xabc", true, ""},
		"window overflow": {func(p *peer) { p.must(p.framer.WriteWindowUpdate(1, largestWindow)) },
			"Internal", "WINDOW_UPDATE", true, "RST_STREAM:FLOW_CONTROL_ERROR"},
		"window of nothing": {func(p *peer) { p.must(p.framer.WriteWindowUpdate(1, 0)) },
			"Internal", "WINDOW_UPDATE", true, "RST_STREAM:PROTOCOL_ERROR"},
		"large fields": {func(p *peer) {
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: p.fields("x", strings.Repeat("z", 3000)),
			}))
			for i := range 100 {
				p.must(p.framer.WriteContinuation(1, i == 99, p.fields("x", strings.Repeat("z", 3000))))
			}
		}, "ResourceExhausted", "header fields of more than", true, "RST_STREAM:CANCEL"},
		"goaway above": {func(p *peer) { p.must(p.framer.WriteGoAway(0, http2.ErrCodeNo, []byte("bye"))) },
			"Unavailable", "NO_ERROR", false, ""},
		"goaway and lost": {func(p *peer) {
			p.must(p.framer.WriteGoAway(1, http2.ErrCodeNo, nil))
			p.must(p.feed())
			p.conn.Lost("gone")
		}, "Unavailable", "gone", true, ""},
		"goaway and an answer": {func(p *peer) { p.must(p.framer.WriteGoAway(1, http2.ErrCodeNo, nil)); p.answer(1) },
			ok, "", false, ""},
		"lost":           {func(p *peer) { p.conn.Lost("gone") }, "Unavailable", "gone", true, ""},
		"interim answer": {func(p *peer) { p.headers(1, false, ":status", "103"); p.answer(1) }, ok, "", false, ""},
		"unknown frames": {func(p *peer) {
			p.must(p.framer.WriteRawFrame(0x42, 0xff, 1, []byte("x")))
			p.must(p.framer.WritePriority(1, http2.PriorityParam{StreamDep: 3}))
			p.answer(1)
		}, ok, "", false, ""},
		"ping": {func(p *peer) {
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
			p.must(p.framer.WritePing(true, [8]byte{}))
			p.answer(1)
		}, ok, "", false, "PING:ack:pingpong"},
		"settings": {func(p *peer) {
			p.must(p.framer.WriteSettings(http2.Setting{ID: 0x77, Val: 5}))
			p.must(p.framer.WriteSettingsAck())
			p.answer(1)
		}, ok, "", false, "SETTINGS:ack"},
		"padding and priority": {func(p *peer) {
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: p.fields(":status", "200", "content-type", "application/grpc+proto"), EndHeaders: true,
				PadLength: 9, Priority: http2.PriorityParam{StreamDep: 5, Weight: 3},
			}))
			p.must(p.framer.WriteDataPadded(1, false, message(okAnswer), make([]byte, 200)))
			p.must(p.framer.WriteDataPadded(1, false, nil, make([]byte, 3)))
			p.end(1)
		}, ok, "", false, ""},
		"continuation": {func(p *peer) {
			block := p.fields(":status", "200", "content-type", "application/grpc", "x-long", strings.Repeat("z", 300))
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1]}))
			for range maxBlockFrames - len(block[1:]) {
				p.must(p.framer.WriteContinuation(1, false, nil))
			}
			for i := range block[1:] {
				p.must(p.framer.WriteContinuation(1, i+2 == len(block), block[i+1:i+2]))
			}
			p.data(1, message(okAnswer))
			block = p.fields("grpc-status", "0")
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true}))
			p.must(p.framer.WriteContinuation(1, true, block))
		}, ok, "", false, ""},
		"an answer in small frames": {func(p *peer) {
			p.begin(1)
			for _, b := range message(okAnswer) {
				p.data(1, []byte{b})
				p.data(1, nil)
			}
			p.end(1)
		}, ok, "", false, ""},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			p := newPeer(t, Options{})
			var got outcomes
			s := &Stream{Owner: &got}
			p.start(s, get, 10, 0)
			p.written()
			c.do(p)
			for all := bytes.Clone(p.toConn.Bytes()); len(all) > 0; {
				n := min(piece, len(all))
				p.must(p.conn.Feed(all[:n]))
				all = all[n:]
			}
			if len(got.failures) != 1 || s.Active() || p.conn.Active() != 0 {
				t.Errorf("%s in pieces of %d bytes: %d outcomes, %d calls under way", name, piece, len(got.failures),
					p.conn.Active())
				continue
			}
			f := got.failures[0]
			if f == nil {
				if c.want != ok || !bytes.Equal(got.body, okAnswer) {
					t.Errorf("%s in pieces of %d bytes: answer %q", name, piece, got.body)
				}
			} else if f.Code.String() != c.want || !strings.Contains(f.Text, c.text) || f.Unknown != c.unknown ||
				f.Answered != answered[name] {
				t.Errorf("%s in pieces of %d bytes: %+v", name, piece, *f)
			}
			if got := p.written(); got != c.written {
				t.Errorf("%s in pieces of %d bytes: the connection writes %q, want %q", name, piece, got, c.written)
			}
		}
	}
}

func TestLateAnswersAreIgnored(t *testing.T) {
	p := newPeer(t, Options{Window: defaultWindow})
	var got outcomes
	s := &Stream{Owner: &got}
	for round := range uint32(20) {
		id := 4*round + 1
		p.start(s, get, 10, 0)
		if !p.conn.Cancel(s) {
			t.Error("a request that was sent cannot have happened")
		}
		p.start(s, get, 10, 0)
		p.begin(id)
		p.data(id, make([]byte, 10_000)) // still counts for the window of the connection
		p.headers(id, true, "grpc-status", "0", "x-late", fmt.Sprint(round))
		p.answer(id + 2)
		p.must(p.feed())
		p.must(p.framer.WriteRSTStream(id, http2.ErrCodeStreamClosed))
		p.must(p.framer.WriteWindowUpdate(id, 10))
		p.must(p.feed())
	}
	if len(got.failures) != 20 || p.conn.Active() != 0 {
		t.Errorf("%d outcomes", len(got.failures))
	}
	for _, f := range got.failures {
		if f != nil {
			t.Errorf("%+v", f)
		}
	}
	if got := p.written(); strings.Count(got, "RST_STREAM:CANCEL") != 20 || !strings.Contains(got, "WINDOW_UPDATE") {
		t.Errorf("written: %s", got)
	}
}
