package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/store"
)

func TestOutcomes(t *testing.T) {
	const ok = "ok"
	answered := map[string]bool{
		"trailers only": true, "a status that leaves it open": true, "error after an answer": true,
		"HTTP 404": true, "HTTP 503": true,
	}
	sends := func(b []byte) func(*peer) { return func(p *peer) { p.send(1, b) } }
	// The error of those is one that the member did not carry out.
	refused := map[string]bool{"refused": true, "goaway above": true}
	for _, c := range []struct {
		name    string
		do      func(*peer)
		want    string // ok, or the code and a part of the text
		written string // by the connection afterwards
	}{
		{"answer", func(p *peer) { p.answer(1) }, ok, ""},
		{"trailers only", func(p *peer) {
			p.headers(1, true, ":status", "200", "content-type", "application/grpc",
				"grpc-status", "8", "grpc-message", "no %e2%82%ac, 5%25 %zz %")
		}, "ResourceExhausted: no €, 5% %zz %", ""},
		{"a status that leaves it open",
			func(p *peer) { p.begin(1); p.headers(1, true, "grpc-status", "14", "grpc-message", "timed out") },
			"Unavailable: timed out", ""},
		{"a status that does not exist", func(p *peer) { p.begin(1); p.headers(1, true, "grpc-status", "99") },
			`Unknown: "99"`, ""},
		{"error after an answer", func(p *peer) {
			p.begin(1)
			p.data(1, message(okAnswer))
			p.headers(1, true, "grpc-status", "5")
		}, "NotFound: ", ""},
		{"no status", func(p *peer) { p.begin(1); p.headers(1, true, "x", "y") }, "Internal: without a grpc-status", ""},
		{"no trailers", func(p *peer) { p.begin(1); p.must(p.framer.WriteData(1, true, message(okAnswer))) },
			"Internal: without a grpc-status", ""},
		{"no answer", func(p *peer) { p.begin(1); p.end(1) }, "Internal: complete answer", ""},
		{"half an answer", sends(message(okAnswer)[:8]), "Internal: complete answer", ""},
		{"half a prefix", sends([]byte{0, 0}), "Internal: complete answer", ""},
		{"two answers", sends(bytes.Repeat(message(okAnswer), 2)), "Internal: more than one", "RST_STREAM:CANCEL"},
		{"compressed", sends([]byte{1, 0, 0, 0, 1, 0}), "Internal: compressed", "RST_STREAM:CANCEL"},
		{"broken message", sends(message(brokenAnswer)), "Internal: cannot be read: a broken byte", "RST_STREAM:CANCEL"},
		{"short message", sends(message(shortAnswer)), "Internal: cannot be read: cut off", "RST_STREAM:CANCEL"},
		{"data first", func(p *peer) { p.data(1, message(okAnswer)) }, "Internal: before HEADERS",
			"RST_STREAM:PROTOCOL_ERROR"},
		{"headers twice", func(p *peer) { p.begin(1); p.begin(1) }, "Internal: HEADERS twice", "RST_STREAM:PROTOCOL_ERROR"},
		{"not gRPC", func(p *peer) { p.headers(1, false, ":status", "200", "content-type", "text/html") },
			"Unknown: text/html", "RST_STREAM:CANCEL"},
		{"HTTP 404", func(p *peer) { p.headers(1, true, ":status", "404") }, "Unimplemented: 404", ""},
		{"HTTP 503", func(p *peer) { p.headers(1, false, ":status", "503") }, "Unavailable: 503", "RST_STREAM:CANCEL"},
		{"refused", func(p *peer) { p.reset(1, http2.ErrCodeRefusedStream) }, "Unavailable: REFUSED_STREAM", ""},
		{"reset", func(p *peer) { p.begin(1); p.reset(1, http2.ErrCodeCancel) }, "Canceled: CANCEL", ""},
		{"reset with an unknown code", func(p *peer) { p.reset(1, 0xabc) }, "Internal: 0xabc", ""},
		{"window overflow", func(p *peer) { p.window(1, largestWindow) }, "Internal: WINDOW_UPDATE",
			"RST_STREAM:FLOW_CONTROL_ERROR"},
		{"window of nothing", func(p *peer) { p.window(1, 0) }, "Internal: WINDOW_UPDATE", "RST_STREAM:PROTOCOL_ERROR"},
		{"large fields", func(p *peer) {
			var parts [101][]byte
			for i := range parts {
				parts[i] = p.fields("x", strings.Repeat("z", 3000))
			}
			p.block(1, false, parts[:]...)
		}, "ResourceExhausted: header fields of more than", "RST_STREAM:CANCEL"},
		{"goaway above", func(p *peer) { p.goAway(0, http2.ErrCodeNo) }, "Unavailable: NO_ERROR", ""},
		{"goaway and lost", func(p *peer) { p.goAway(1, http2.ErrCodeNo); p.fed(); p.conn.Lost("gone") },
			"Unavailable: gone", ""},
		{"goaway and an answer", func(p *peer) { p.goAway(1, http2.ErrCodeNo); p.answer(1) }, ok, ""},
		{"goaway in two steps", func(p *peer) {
			p.goAway(largestStreamID, http2.ErrCodeNo)
			p.goAway(1, http2.ErrCodeNo)
			p.answer(1)
		}, ok, ""},
		{"lost", func(p *peer) { p.conn.Lost("gone") }, "Unavailable: gone", ""},
		{"interim answer", func(p *peer) { p.headers(1, false, ":status", "103"); p.answer(1) }, ok, ""},
		{"unknown frames", func(p *peer) {
			p.must(p.framer.WriteRawFrame(0x42, 0xff, 1, []byte("x")))
			p.must(p.framer.WritePriority(1, http2.PriorityParam{StreamDep: 3}))
			p.answer(1)
		}, ok, ""},
		{"ping", func(p *peer) { p.ping(); p.must(p.framer.WritePing(true, [8]byte{})); p.answer(1) }, ok,
			"PING:ack:pingpong"},
		{"settings", func(p *peer) { p.set(0x77, 5); p.must(p.framer.WriteSettingsAck()); p.answer(1) }, ok, "SETTINGS:ack"},
		{"padding and priority", func(p *peer) {
			p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: p.fields(":status", "200", "content-type", "application/grpc+proto"), EndHeaders: true,
				PadLength: 9, Priority: http2.PriorityParam{StreamDep: 5, Weight: 3},
			}))
			p.must(p.framer.WriteDataPadded(1, false, message(okAnswer), make([]byte, 200)))
			p.must(p.framer.WriteDataPadded(1, false, nil, make([]byte, 3)))
			p.end(1)
		}, ok, ""},
		{"continuation", func(p *peer) {
			block := p.fields(":status", "200", "content-type", "application/grpc", "x-long", strings.Repeat("z", 300))
			parts := slices.Collect(slices.Chunk(block, 1))
			p.block(1, false, slices.Insert(parts, 1, make([][]byte, maxBlockFrames-len(parts)+1)...)...)
			p.data(1, message(okAnswer))
			p.block(1, true, nil, p.fields("grpc-status", "0"))
		}, ok, ""},
		{"an answer in small frames", func(p *peer) {
			p.begin(1)
			for _, b := range message(okAnswer) {
				p.data(1, []byte{b})
				p.data(1, nil)
			}
			p.end(1)
		}, ok, ""},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			p := newPeer(t, Options{})
			got, s := &p.got, p.call(get, 10, 0)
			p.written()
			c.do(p)
			for all := bytes.Clone(p.toConn.Bytes()); len(all) > 0; {
				n := min(piece, len(all))
				p.must(p.conn.Feed(all[:n]))
				all = all[n:]
			}
			if len(got.failures) != 1 || s.id != 0 || p.conn.Active() != 0 {
				t.Errorf("%s in pieces of %d bytes: %d outcomes, %d calls under way", c.name, piece, len(got.failures),
					p.conn.Active())
				continue
			}
			outcome := ok
			if f := got.failures[0]; f != nil {
				outcome = fmt.Sprintf("%v: %s", f.Code, f.Text)
				assert.That(t, f.Unknown != refused[c.name] && f.Answered == answered[c.name], "%s in pieces of %d bytes: %+v",
					c.name, piece, *f)
			} else if !bytes.Equal(got.body, okAnswer) {
				t.Errorf("%s in pieces of %d bytes: answer %q", c.name, piece, got.body)
			}
			code, text, _ := strings.Cut(c.want, ": ")
			assert.That(t, strings.HasPrefix(outcome, code) && strings.Contains(outcome, text),
				"%s in pieces of %d bytes: %s, want %s", c.name, piece, outcome, c.want)
			assert.Equal(t, p.written(), c.written, "%s in pieces of %d bytes: it writes", c.name, piece)
		}
	}
}

func TestLateAnswersAreIgnored(t *testing.T) {
	p := newPeer(t, Options{Window: defaultWindow})
	s := &Stream{Owner: &p.got}
	for round := range uint32(20) {
		id := 4*round + 1
		p.start(s, get, 10, 0)
		assert.That(t, p.conn.Cancel(s), "a request that was sent cannot have happened")
		p.start(s, get, 10, 0)
		p.begin(id)
		p.data(id, make([]byte, 10_000)) // still counts for the window of the connection
		p.headers(id, true, "grpc-status", "0", "x-late", fmt.Sprint(round))
		p.answer(id + 2)
		p.fed()
		p.reset(id, http2.ErrCodeStreamClosed)
		p.window(id, 10)
		p.fed()
	}
	p.succeeded(20)
	if got := p.written(); strings.Count(got, "RST_STREAM:CANCEL") != 20 || !strings.Contains(got, "WINDOW_UPDATE") {
		t.Errorf("written: %s", got)
	}
}

func TestBrokenConnections(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, id uint32, payload string) func(*peer) {
		return func(p *peer) { p.must(p.framer.WriteRawFrame(kind, flags, id, []byte(payload))) }
	}
	setting := func(id http2.SettingID, value uint32) func(*peer) { return func(p *peer) { p.set(id, value) } }
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
		"headers that are no HPACK":     {raw(http2.FrameHeaders, 4, 1, strings.Repeat("\xff", 12)), CompressionError},
		"headers cut off":               {raw(http2.FrameHeaders, 4, 1, "\x40\x05ab"), CompressionError},
		"continuation alone":            {raw(http2.FrameContinuation, 4, 1, ""), ProtocolError},
		"headers without an end":        {func(p *peer) { raw(http2.FrameHeaders, 0, 1, "")(p); p.ping() }, ProtocolError},
		"endless headers": {func(p *peer) {
			p.block(1, false, slices.Repeat([][]byte{make([]byte, 16384)}, 6)...)
		}, EnhanceYourCalm},
		"endless empty headers": {func(p *peer) {
			p.block(1, false, make([][]byte, maxBlockFrames+3)...)
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
				p.ping()
			}
		}, EnhanceYourCalm},
	} {
		p := newPeer(t, Options{Window: defaultWindow})
		p.call(put, 10, 0)
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
		assert.Equal(t, p.written(), "GOAWAY", "%s: the connection writes", name)
		p.conn.Lost(fault.Error())
		f := p.got.failures
		assert.That(t, len(f) == 1 && f[0] != nil && f[0].Unknown, "%s: outcomes %v", name, f)
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
		assert.That(t, err != nil && strings.Contains(err.Error(), want) && !c.Ready(), "%q: %v, want %q", sent, err, want)
	}
}

func TestLimitsOfTheMember(t *testing.T) {
	p := newPeer(t, Options{}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
	for i := range 2 {
		assert.That(t, p.conn.CanStart(), "call %d cannot start", i)
		p.call(put, 1, 0)
	}
	assert.That(t, !p.conn.CanStart(), "three calls at once, two are allowed")
	p.answer(3)
	p.fed()
	assert.That(t, p.conn.CanStart(), "the member does not count calls that are over")
	p.set(http2.SettingMaxConcurrentStreams, 0)
	p.fed()
	assert.That(t, !p.conn.CanStart() && !p.conn.Closing(), "no calls are allowed for now")
}

func TestNumbersOfStreamsEnd(t *testing.T) {
	p := newPeer(t, Options{FirstStream: largestStreamID - 2})
	p.call(put, 1, 0)
	p.call(put, 1, 0)
	assert.That(t, !p.conn.CanStart() && p.conn.Closing(), "a stream after the last number")
	p.answer(largestStreamID)
	p.answer(largestStreamID - 2)
	p.succeeded(2)
}

func TestAcknowledgementsWaitForTheNextRequest(t *testing.T) {
	const ack = "PING:ack:pingpong"
	for _, c := range []struct {
		name    string
		do      func(p *peer)
		waits   bool
		written string
	}{
		{"nothing", func(*peer) {}, false, ""},
		{"a ping", (*peer).ping, true, ack},
		{"settings and a ping", func(p *peer) { p.must(p.framer.WriteSettings()); p.ping() }, true, "SETTINGS:ack " + ack},
		{"a request after a ping", func(p *peer) { p.ping(); p.fed(); p.call(put, 1, 0) }, false, ack + " HEADERS DATA"},
		{"a ping after a request", func(p *peer) { p.call(put, 1, 0); p.ping() }, false, "HEADERS DATA " + ack},
		{"a ping after a request that was written in part", func(p *peer) {
			s := p.call(put, 1, 0)
			p.written()
			p.conn.Cancel(s)
			p.reading.Write(p.conn.Output()[:5])
			p.conn.Wrote(5)
			p.ping()
		}, false, "RST_STREAM:CANCEL " + ack},
		{"a request that a window blocks", func(p *peer) { p.call(put, 1, defaultWindow); p.written(); p.ping() }, false,
			ack},
		{"a ping after GOAWAY", func(p *peer) { p.goAway(0, http2.ErrCodeNo); p.ping() }, false, ack},
		{"many pings", func(p *peer) {
			for range 8 {
				p.ping()
			}
		}, false, strings.Repeat(ack+" ", 7) + ack},
	} {
		p := newPeer(t, Options{})
		assert.That(t, !p.conn.Waits(), "the opening waits")
		p.written()
		c.do(p)
		p.fed()
		got := p.conn.Waits()
		assert.That(t, got == c.waits, "%s: waits is %v", c.name, got)
		assert.Equal(t, p.written(), c.written, "%s: the connection writes", c.name)
		assert.That(t, !p.conn.Waits(), "%s: what was written waits", c.name)
	}
}

func TestSendWindows(t *testing.T) {
	p := newPeer(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	p.call(put, 95, 99_900) // 100000 bytes with the prefix
	p.call(put, 3, 0)
	received, ended, frames, before := map[uint32]int{}, map[uint32]bool{}, 0, 0
	var content []byte
	for _, step := range []struct {
		what          string
		do            func()
		first, second int // bytes
	}{
		{"10 bytes of window each", func() {}, 10, 8},
		{"20 more", func() { p.window(1, 20) }, 30, 8},
		{"10 more, but 10 less for all", func() { p.set(http2.SettingInitialWindowSize, 0); p.window(1, 10) }, 30, 8},
		{"the window of the connection", func() { p.set(http2.SettingInitialWindowSize, 90_000) }, defaultWindow - 8, 8},
		{"everything", func() {
			before = frames
			p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 40_000},
				http2.Setting{ID: http2.SettingInitialWindowSize, Val: 200_000}))
			p.window(0, 1<<20)
		}, 100_000, 8},
	} {
		step.do()
		p.fed()
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
		assert.That(t, received[1] == step.first && received[3] == step.second && ended[1] == (step.first == 100_000) &&
			ended[3] == (step.second == 8), "%s: %v bytes received, ended %v", step.what, received, ended)
	}
	assert.That(t, frames == before+1, "%d frames for the last 34473 bytes", frames-before)
	want := append(binary.BigEndian.AppendUint32([]byte{0}, 99_995),
		strings.Repeat("h", 95)+strings.Repeat("t", 99_900)...)
	assert.That(t, bytes.Equal(content, want), "the message does not arrive as it was sent")
	p.answer(1)
	p.answer(3)
	p.succeeded(2)
}

func TestReceiveWindows(t *testing.T) {
	p := newPeer(t, Options{Window: 100_000})
	p.call(put, 10, 0)
	p.written()
	p.begin(1)
	const size = 1_000_000
	answer := append(binary.BigEndian.AppendUint32([]byte{0}, size), make([]byte, size)...)
	connection, stream := int64(100_000), int64(100_000)
	for len(answer) > 0 {
		n := min(int64(len(answer)), 16_000, connection, stream)
		assert.Must(t, n > 0, "the member is stuck with %d bytes to send", len(answer))
		p.must(p.framer.WriteDataPadded(1, false, answer[:n], nil))
		answer = answer[n:]
		connection, stream = connection-n, stream-n
		p.fed()
		p.frames(func(f http2.Frame) {
			if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 0 {
				connection += int64(u.Increment)
			} else if ok {
				stream += int64(u.Increment)
			}
		})
	}
	p.end(1)
	p.succeeded(1)
}

// TestRequestsReachTheMember has header tables that hold all fields, some, or none, and a token that changes.
func TestRequestsReachTheMember(t *testing.T) {
	for _, tables := range [][]uint32{nil, {0}, {100}, {500}, {1000}, {65536}, {0, 4096}, {4096, 0}} {
		for scheme, secure := range map[string]bool{"http": false, "https": true} {
			p := newPeer(t, Options{Secure: secure})
			requests := 0
			for round := range 60 {
				token := ""
				switch {
				case round == 1:
					for _, size := range tables {
						p.set(http2.SettingHeaderTableSize, size)
						// A decoder does not care if the connection uses less of the table than allowed.
						p.reader.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(max(size, tableSize))
					}
					p.fed()
				case round > 1:
					token = fmt.Sprintf("token-%d%s", round, strings.Repeat("x", 7*round))
					p.conn.SetToken(token)
				}
				var want, got []string
				for i, call := range []int{put, put, get, put, get, txn, status, status, put} {
					p.call(call, i, 10*i)
					message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(11*i)),
						strings.Repeat("h", i)+strings.Repeat("t", 10*i)...)
					want = append(want, fmt.Sprintf("%d POST %s %s member:2379 application/grpc trailers %s", 2*requests+1, scheme,
						methods[call], token), fmt.Sprintf("%q true", message))
					requests++
				}
				p.frames(func(f http2.Frame) {
					switch f := f.(type) {
					case *http2.MetaHeadersFrame:
						fields := make(map[string]string)
						for _, field := range f.Fields {
							fields[field.Name] += field.Value
						}
						got = append(got, strings.Join([]string{fmt.Sprint(f.StreamID), fields[":method"], fields[":scheme"],
							fields[":path"], fields[":authority"], fields["content-type"], fields["te"], fields["token"]}, " "))
					case *http2.DataFrame:
						got = append(got, fmt.Sprintf("%q %v", f.Data(), f.StreamEnded()))
					}
				})
				assert.That(t, slices.Equal(got, want), "tables %v, round %d: %q arrived, want %q", tables, round, got, want)
			}
		}
	}
}

func TestRequestsThatWereNotSentAsAWhole(t *testing.T) {
	for name, end := range map[string]func(*peer, *Stream) (unknown bool){
		"lost":      func(p *peer, _ *Stream) bool { p.conn.Lost("gone"); return false },
		"cancelled": func(p *peer, s *Stream) bool { return p.conn.Cancel(s) },
		"answered": func(p *peer, _ *Stream) bool {
			p.headers(1, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "13")
			return false
		},
		"reset": func(p *peer, _ *Stream) bool { p.reset(1, http2.ErrCodeInternal); return false },
	} {
		p := newPeer(t, Options{})
		blocked := p.call(put, 0, 100_000)
		p.written()
		unknown := end(p, blocked)
		p.fed()
		f := p.got.failures
		assert.That(t, !unknown && (name == "cancelled" || len(f) == 1 && !f[0].Unknown), "%s: the request may have happened",
			name)
		assert.That(t, name != "answered" || p.written() == "RST_STREAM:CANCEL", "%s: the stream stays open", name)
		assert.That(t, p.conn.firstBlocked == nil && blocked.id == 0, "%s: the request still waits", name)
	}
	// Sent completely, but not a byte of it written.
	p := newPeer(t, Options{})
	p.written()
	p.call(put, 10, 0)
	n := len(p.conn.Output())
	p.call(put, 10, 0)
	p.conn.Wrote(n + 5)
	p.conn.Lost("gone")
	f := p.got.failures
	assert.That(t, len(f) == 2 && f[0].Unknown != f[1].Unknown, "one of two requests was written: %+v", f)
}

// peer is the member's side of a connection, written with an implementation that is not ours.
type peer struct {
	t       testing.TB
	conn    *Conn
	toConn  bytes.Buffer
	framer  *http2.Framer // writes to toConn
	encoder *hpack.Encoder
	encoded bytes.Buffer
	reading bytes.Buffer
	reader  *http2.Framer // reads what the connection wrote
	begun   bool
	got     outcomes // of the calls
}

func newPeer(t testing.TB, o Options, settings ...http2.Setting) *peer {
	p := &peer{t: t, conn: NewConn("member:2379", methods, o)}
	p.framer = http2.NewFramer(&p.toConn, nil)
	p.framer.AllowIllegalWrites = true
	p.encoder = hpack.NewEncoder(&p.encoded)
	p.reader = http2.NewFramer(nil, &p.reading)
	p.reader.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	p.reader.SetMaxReadFrameSize(largestMaxFrame)
	p.must(p.framer.WriteSettings(settings...))
	assert.OK(t, p.feed())
	return p
}

func (p *peer) must(err error) {
	p.t.Helper()
	assert.OK(p.t, err)
}

// feed passes what was written to the connection.
func (p *peer) feed() error {
	b := bytes.Clone(p.toConn.Bytes())
	p.toConn.Reset()
	return p.conn.Feed(b)
}

func (p *peer) fed() {
	p.t.Helper()
	p.must(p.feed())
}

// frames takes all that the connection wrote; each frame is given to see, and is valid only there.
func (p *peer) frames(see func(http2.Frame)) {
	p.t.Helper()
	p.reading.Write(p.conn.Output())
	p.conn.Wrote(len(p.conn.Output()))
	if !p.begun {
		p.begun = true
		got := string(p.reading.Next(len(preface)))
		assert.Must(p.t, got == preface, "the connection begins with %q", got)
	}
	for {
		f, err := p.reader.ReadFrame()
		if errors.Is(err, io.EOF) {
			return
		}
		p.must(err)
		see(f)
	}
}

// written lists what the connection wrote, one word for each frame.
func (p *peer) written() string {
	p.t.Helper()
	var words []string
	p.frames(func(f http2.Frame) {
		word := f.Header().Type.String()
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			word += ":" + f.ErrCode.String()
		case *http2.SettingsFrame:
			if f.IsAck() {
				word += ":ack"
			}
		case *http2.PingFrame:
			if f.IsAck() {
				word += ":ack:" + string(f.Data[:])
			}
		}
		words = append(words, word)
	})
	return strings.Join(words, " ")
}

func (p *peer) fields(fields ...string) []byte {
	p.encoded.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.must(p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.encoded.Bytes())
}

// block sends a header block in parts.
func (p *peer) block(id uint32, ends bool, parts ...[]byte) {
	last := len(parts) - 1
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: parts[0], EndStream: ends,
		EndHeaders: last == 0}))
	for i, part := range parts[1:] {
		p.must(p.framer.WriteContinuation(id, i+1 == last, part))
	}
}

func (p *peer) headers(id uint32, ends bool, fields ...string) {
	p.block(id, ends, p.fields(fields...))
}

func (p *peer) begin(id uint32) {
	p.headers(id, false, ":status", "200", "content-type", "application/grpc")
}
func (p *peer) ping()                               { p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong")))) }
func (p *peer) reset(id uint32, code http2.ErrCode) { p.must(p.framer.WriteRSTStream(id, code)) }
func (p *peer) window(id, more uint32)              { p.must(p.framer.WriteWindowUpdate(id, more)) }
func (p *peer) set(id http2.SettingID, value uint32) {
	p.must(p.framer.WriteSettings(http2.Setting{ID: id, Val: value}))
}

// goAway says which stream was the last that is carried out.
func (p *peer) goAway(last uint32, code http2.ErrCode) {
	p.must(p.framer.WriteGoAway(last, code, []byte("bye")))
}

func (p *peer) end(id uint32)            { p.headers(id, true, "grpc-status", "0", "grpc-message", "") }
func (p *peer) data(id uint32, b []byte) { p.must(p.framer.WriteData(id, false, b)) }
func (p *peer) answer(id uint32)         { p.send(id, message(okAnswer)) }
func (p *peer) send(id uint32, b []byte) { p.begin(id); p.data(id, b); p.end(id) }

// methods are the paths that the tests call.
var methods = []string{
	"/package.Service/Put", "/package.Service/Get", "/package.Service/Txn", "/package.Other/Status", "/package.Other/List",
}

const put, get, txn, status = 0, 1, 2, 3

var (
	okAnswer = []byte("good")
	// Answers that an owner cannot read: it returns the error at once, or at the end.
	brokenAnswer, shortAnswer = []byte("b\xffd"), []byte("shor\xfe")
)

func message(b []byte) []byte { return append([]byte{0, 0, 0, byte(len(b) >> 8), byte(len(b))}, b...) }

// outcomes records the answers and outcomes of calls.
type outcomes struct {
	body     []byte
	failures []*store.Failure
}

func (o *outcomes) Feed(b []byte, last bool) error {
	o.body = append(o.body, b...)
	if last && bytes.HasSuffix(o.body, []byte{0xfe}) {
		return errors.New("cut off")
	}
	if bytes.IndexByte(b, 0xff) >= 0 {
		return errors.New("a broken byte")
	}
	return nil
}

func (o *outcomes) Finished(_ *Stream, f *store.Failure) { o.failures = append(o.failures, f) }

// succeeded is for what is sent to the connection now, after which so many calls have ended well.
func (p *peer) succeeded(calls int) {
	p.t.Helper()
	p.fed()
	assert.Equal(p.t, p.got.failures, make([]*store.Failure, calls), "outcomes")
}

// call starts a call whose outcome is one of the peer's.
func (p *peer) call(method, head, tail int) *Stream {
	s := &Stream{Owner: &p.got}
	p.start(s, method, head, tail)
	return s
}

// start sends a request whose message has the given length, at least that of the prefix.
func (p *peer) start(s *Stream, method int, head, tail int) {
	b := append(AppendPrefix(nil), bytes.Repeat([]byte("h"), head)...)
	p.conn.Start(s, method, b, bytes.Repeat([]byte("t"), tail))
	clear(b)
}
