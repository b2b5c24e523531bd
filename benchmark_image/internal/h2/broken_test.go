package h2

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// TestBrokenConnections has protocol violations of a member.
func TestBrokenConnections(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, id uint32, payload string) func(*peer) {
		return func(p *peer) { p.must(p.framer.WriteRawFrame(kind, flags, id, []byte(payload))) }
	}
	setting := func(id http2.SettingID, value uint32) func(*peer) {
		return func(p *peer) { p.must(p.framer.WriteSettings(http2.Setting{ID: id, Val: value})) }
	}
	for name, c := range map[string]struct {
		do   func(*peer)
		want ErrorCode
	}{
		"push":                          {raw(http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02"), ProtocolError},
		"push enabled":                  {setting(http2.SettingEnablePush, 1), ProtocolError},
		"large initial window":          {setting(http2.SettingInitialWindowSize, 1<<31), FlowControlError},
		"small frames":                  {setting(http2.SettingMaxFrameSize, 16383), ProtocolError},
		"large frames":                  {setting(http2.SettingMaxFrameSize, 1<<24), ProtocolError},
		"settings on a stream":          {raw(http2.FrameSettings, 0, 1, ""), ProtocolError},
		"half a setting":                {raw(http2.FrameSettings, 0, 0, "12345"), FrameSizeError},
		"acknowledged settings":         {raw(http2.FrameSettings, 1, 0, "123456"), FrameSizeError},
		"a large frame":                 {raw(http2.FrameData, 0, 1, strings.Repeat("x", 16385)), FrameSizeError},
		"data on no stream":             {raw(http2.FrameData, 0, 0, "x"), ProtocolError},
		"data on a stream of its own":   {raw(http2.FrameData, 0, 2, "x"), ProtocolError},
		"data on a stream to come":      {raw(http2.FrameData, 0, 3, "x"), ProtocolError},
		"headers on a stream to come":   {raw(http2.FrameHeaders, 4, 3, ""), ProtocolError},
		"reset of a stream to come":     {raw(http2.FrameRSTStream, 0, 3, "1234"), ProtocolError},
		"window of a stream to come":    {raw(http2.FrameWindowUpdate, 0, 3, "\x00\x00\x00\x01"), ProtocolError},
		"padding longer than its frame": {raw(http2.FrameData, 8, 1, "\x05abcd"), ProtocolError},
		"no room for padding":           {raw(http2.FrameData, 8, 1, ""), FrameSizeError},
		"no room for priority":          {raw(http2.FrameHeaders, 0x24, 1, "abc"), FrameSizeError},
		"headers that are no HPACK": {raw(http2.FrameHeaders, 4, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
			CompressionError},
		"headers cut off":    {raw(http2.FrameHeaders, 4, 1, "\x40\x05ab"), CompressionError},
		"continuation alone": {raw(http2.FrameContinuation, 4, 1, ""), ProtocolError},
		"headers without an end": {
			func(p *peer) { raw(http2.FrameHeaders, 0, 1, "")(p); p.must(p.framer.WritePing(false, [8]byte{})) },
			ProtocolError},
		"endless headers": {func(p *peer) {
			raw(http2.FrameHeaders, 0, 1, "")(p)
			for range 5 {
				raw(http2.FrameContinuation, 0, 1, strings.Repeat("x", 16384))(p)
			}
		}, EnhanceYourCalm},
		"endless empty headers": {func(p *peer) {
			raw(http2.FrameHeaders, 0, 1, "")(p)
			for range maxBlockFrames + 1 {
				raw(http2.FrameContinuation, 0, 1, "")(p)
			}
		}, EnhanceYourCalm},
		"short reset":              {raw(http2.FrameRSTStream, 0, 1, "123"), FrameSizeError},
		"reset of nothing":         {raw(http2.FrameRSTStream, 0, 0, "1234"), ProtocolError},
		"short ping":               {raw(http2.FramePing, 0, 0, "1234567"), FrameSizeError},
		"ping on a stream":         {raw(http2.FramePing, 0, 1, "12345678"), ProtocolError},
		"short goaway":             {raw(http2.FrameGoAway, 0, 0, "1234567"), FrameSizeError},
		"goaway on a stream":       {raw(http2.FrameGoAway, 0, 1, "12345678"), ProtocolError},
		"short window update":      {raw(http2.FrameWindowUpdate, 0, 0, "123"), FrameSizeError},
		"window update of nothing": {raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), ProtocolError},
		"too large a window":       {raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff"), FlowControlError},
		"short priority":           {raw(http2.FramePriority, 0, 1, "1234"), FrameSizeError},
		"more than the window": {func(p *peer) {
			p.begin(1)
			for range 5 {
				p.data(1, make([]byte, 16384)) // the first is an empty message, the rest are others
			}
		}, FlowControlError},
		"a flood of pings": {func(p *peer) {
			for range maxOutput/17 + 1 {
				p.must(p.framer.WritePing(false, [8]byte{}))
			}
		}, EnhanceYourCalm},
	} {
		p := newPeer(t, Options{Window: defaultWindow})
		var got outcomes
		p.start(&Stream{Owner: &got}, put, 10, 0)
		if name == "more than the window" {
			p.conn.consumed, p.conn.receiveLeft = 0, 1000 // as if window updates were in flight
		}
		c.do(p)
		var fault *ConnError
		if err := p.feed(); !errors.As(err, &fault) || fault.Code != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
			continue
		}
		p.written()
		p.conn.Leave(fault)
		if got := p.written(); got != "GOAWAY" {
			t.Errorf("%s: the connection writes %q", name, got)
		}
		p.conn.Lost(fault.Error())
		if last := got.failures[len(got.failures)-1]; len(got.failures) != 1 || last == nil || !last.Unknown {
			t.Errorf("%s: outcomes %v", name, got.failures)
		}
	}
}

func TestMembersThatSpeakSomethingElse(t *testing.T) {
	for sent, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\n": "HTTP/1",
		"\x15\x03\x03\x00\x02\x02\x0a":     "TLS", "\x15\x03\x01\x00\x02\x02\x46\x00\x00\x00": "TLS",
		"SSH-2.0-OpenSSH_9\r\n": "does not begin with SETTINGS", "": "closes new connections",
	} {
		c := NewConn("m:1", methods, Options{})
		err := c.Feed([]byte(sent))
		if err == nil {
			err = c.EOF()
		}
		if err == nil || !strings.Contains(err.Error(), want) || c.Ready() {
			t.Errorf("%q: %v, want %q", sent, err, want)
		}
	}
}
