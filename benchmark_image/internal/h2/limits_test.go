package h2

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/store"
)

func TestLimitsOfTheMember(t *testing.T) {
	p := newPeer(t, Options{}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
	var got outcomes
	var all [3]Stream
	for i := range all {
		all[i].Owner = &got
	}
	for i := range 2 {
		if !p.conn.CanStart() {
			t.Errorf("call %d cannot start", i)
		}
		p.start(&all[i], put, 1, 0)
	}
	if p.conn.CanStart() {
		t.Error("three calls at once, two are allowed")
	}
	p.answer(3)
	p.must(p.feed())
	if !p.conn.CanStart() {
		t.Error("the member does not count calls that are over")
	}
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
	p.must(p.feed())
	if p.conn.CanStart() || p.conn.Closing() {
		t.Error("no calls are allowed for now")
	}
}

func TestGoAwaySplitsTheCalls(t *testing.T) {
	p := newPeer(t, Options{})
	var kept, refused outcomes
	var all [100]Stream
	for i := range all {
		all[i].Owner = &kept
		if i >= 40 {
			all[i].Owner = &refused
		}
		p.start(&all[i], put, 1, 0)
	}
	p.must(p.framer.WriteGoAway(79, http2.ErrCodeEnhanceYourCalm, nil))
	p.must(p.feed())
	if len(kept.failures) != 0 || len(refused.failures) != 60 || !p.conn.Closing() || p.conn.CanStart() ||
		p.conn.Active() != 40 {
		t.Errorf("%d and %d outcomes, %d under way", len(kept.failures), len(refused.failures), p.conn.Active())
	}
	for _, f := range refused.failures {
		if f.Unknown || f.Code != store.Unavailable || !strings.Contains(f.Text, "ENHANCE_YOUR_CALM") {
			t.Errorf("%+v", f)
		}
	}
	for i := range 40 {
		p.answer(uint32(2*i + 1))
	}
	p.must(p.feed())
	if len(kept.failures) != 40 || p.conn.EOF() != nil {
		t.Errorf("%d outcomes", len(kept.failures))
	}
}

func TestNumbersOfStreamsEnd(t *testing.T) {
	p := newPeer(t, Options{FirstStream: largestStreamID - 2})
	var got outcomes
	var first, last Stream
	first.Owner, last.Owner = &got, &got
	p.start(&first, put, 1, 0)
	p.start(&last, put, 1, 0)
	if p.conn.CanStart() || !p.conn.Closing() {
		t.Error("a stream after the last number")
	}
	p.answer(largestStreamID)
	p.answer(largestStreamID - 2)
	p.must(p.feed())
	if len(got.failures) != 2 || got.failures[0] != nil || got.failures[1] != nil {
		t.Errorf("outcomes %v", got.failures)
	}
}

func TestAcknowledgementsWaitForTheNextRequest(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(p *peer, s *Stream)
		waits   bool
		written string
	}{
		"nothing": {func(*peer, *Stream) {}, false, ""},
		"a ping": {func(p *peer, _ *Stream) { p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong")))) }, true,
			"PING:ack:pingpong"},
		"settings and a ping": {func(p *peer, _ *Stream) {
			p.must(p.framer.WriteSettings())
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
		}, true, "SETTINGS:ack PING:ack:pingpong"},
		"a request after a ping": {func(p *peer, s *Stream) {
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
			p.must(p.feed())
			p.start(s, put, 1, 0)
		}, false, "PING:ack:pingpong HEADERS DATA"},
		"a ping after a request": {func(p *peer, s *Stream) {
			p.start(s, put, 1, 0)
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
		}, false, "HEADERS DATA PING:ack:pingpong"},
		"a ping after a request that was written in part": {func(p *peer, s *Stream) {
			p.start(s, put, 1, 0)
			p.frames(func(http2.Frame) {})
			p.conn.Cancel(s)
			p.reading.Write(p.conn.Output()[:5])
			p.conn.Wrote(5)
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
		}, false, "RST_STREAM:CANCEL PING:ack:pingpong"},
		"a request that a window blocks": {func(p *peer, s *Stream) {
			p.start(s, put, 1, defaultWindow)
			p.frames(func(http2.Frame) {})
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
		}, false, "PING:ack:pingpong"},
		"a ping after GOAWAY": {func(p *peer, _ *Stream) {
			p.must(p.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
			p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
		}, false, "PING:ack:pingpong"},
		"many pings": {func(p *peer, _ *Stream) {
			for range 8 {
				p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong"))))
			}
		}, false, strings.TrimSpace(strings.Repeat("PING:ack:pingpong ", 8))},
	} {
		p := newPeer(t, Options{})
		if p.conn.Waits() {
			t.Error("the opening waits")
		}
		p.written()
		c.do(p, &Stream{Owner: &outcomes{}})
		p.must(p.feed())
		if got := p.conn.Waits(); got != c.waits {
			t.Errorf("%s: waits is %v", name, got)
		}
		if got := p.written(); got != c.written {
			t.Errorf("%s: the connection writes %q, want %q", name, got, c.written)
		}
		if p.conn.Waits() {
			t.Errorf("%s: what was written waits", name)
		}
	}
}
