package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"containernet-env/benchmark_image/internal/store"
)

// Feed takes what was read from the member. Owners of calls that end are notified before it returns, and may
// start other calls from the notification. After an error the connection must be given up: Leave, then Lost.
func (c *Conn) Feed(b []byte) error {
	for len(b) > 0 && !c.broken {
		if len(c.in) == 0 && len(b) >= frameHeader {
			length, err := c.frameLength(b)
			if err != nil {
				return err
			}
			if len(b) >= length {
				if err := c.frame(b[:length]); err != nil {
					return err
				}
				b = b[length:]
				continue
			}
		}
		used, err := c.collect(b)
		if err != nil {
			return err
		}
		b = b[used:]
	}
	return nil
}

// collect keeps the beginning of a frame until the rest has arrived.
func (c *Conn) collect(b []byte) (used int, err error) {
	if len(c.in) < frameHeader {
		used = min(frameHeader-len(c.in), len(b))
		c.in = append(c.in, b[:used]...)
		if len(c.in) < frameHeader {
			return used, nil
		}
	}
	length, err := c.frameLength(c.in)
	if err != nil {
		return used, err
	}
	n := min(length-len(c.in), len(b)-used)
	c.in = append(c.in, b[used:used+n]...)
	used += n
	if len(c.in) < length {
		return used, nil
	}
	frame := c.in
	c.in = nil // Feed is not reentrant, but after an error a frame must not be processed twice
	err = c.frame(frame)
	c.in = frame[:0]
	return used, err
}

// frameLength gives the length of a frame with its header, which must have arrived.
func (c *Conn) frameLength(b []byte) (int, error) {
	length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if !c.settled {
		if err := checkFirstFrame(b, length); err != nil {
			return 0, err
		}
	}
	if length > smallestMaxFrame {
		return 0, broken(FrameSizeError, "a frame of %d bytes, at most %d are allowed", length, smallestMaxFrame)
	}
	return frameHeader + length, nil
}

// checkFirstFrame checks that a member begins with SETTINGS (RFC 9113 section 3.4), and otherwise names what
// answers where that is known.
func checkFirstFrame(b []byte, length int) error {
	if b[3] == frameSettings && b[4]&flagAck == 0 && length <= smallestMaxFrame {
		return nil
	}
	if isTLS(b) {
		return errTLS
	}
	if bytes.HasPrefix(b, []byte("HTTP/1")) {
		return broken(ProtocolError, "it answers in HTTP/1")
	}
	return broken(ProtocolError, "it does not begin with SETTINGS")
}

var errTLS = &ConnError{ProtocolError, "it speaks TLS: a CA must be named by which to check its certificate"}

// isTLS tells whether b is the alert with which TLS answers other protocols (RFC 8446 sections 5.1 and 6).
func isTLS(b []byte) bool {
	const alert, majorVersion = 21, 3
	return len(b) >= 2 && b[0] == alert && b[1] == majorVersion
}

// EOF handles that the member has closed the connection. It returns why that is an error, nil if the connection was
// to end anyway.
func (c *Conn) EOF() error {
	switch {
	case !c.settled && isTLS(c.in):
		return errTLS
	case !c.settled && c.headers.scheme == "http":
		// etcd and grpc-go say no more to who does not speak TLS with them.
		return errors.New("the member closes new connections: does it speak TLS?")
	case !c.settled:
		return errors.New("the member closes new connections")
	case len(c.in) > 0:
		return errors.New("the member closed the connection within a frame")
	case c.streams.count > 0 || !c.goAway:
		return errors.New("the member closed the connection")
	}
	return nil
}

func (c *Conn) frame(frame []byte) error {
	kind, flags := frame[3], frame[4]
	id := binary.BigEndian.Uint32(frame[5:]) & largestStreamID
	payload := frame[frameHeader:]
	if c.blockStream != 0 && (kind != frameContinuation || id != c.blockStream) {
		return broken(ProtocolError, "something else than CONTINUATION comes after HEADERS without an end")
	}
	switch kind {
	case frameData:
		return c.onData(id, flags, payload)
	case frameHeaders:
		return c.onHeaders(id, flags, payload)
	case frameContinuation:
		return c.onContinuation(id, flags, payload)
	case frameRSTStream:
		return c.onRSTStream(id, payload)
	case frameSettings:
		return c.onSettings(id, flags, payload)
	case framePing:
		return c.onPing(id, flags, payload)
	case frameGoAway:
		return c.onGoAway(id, payload)
	case frameWindowUpdate:
		return c.onWindowUpdate(id, payload)
	case framePriority:
		return checkStream(kind, id, payload, 5)
	case framePushPromise:
		return broken(ProtocolError, "PUSH_PROMISE though push is disabled")
	}
	return nil // RFC 9113 section 5.5: unknown frames are ignored
}

// checkStream checks a frame of fixed length that belongs to a stream.
func checkStream(kind byte, id uint32, payload []byte, length int) error {
	if id == 0 {
		return broken(ProtocolError, "a frame of type %d without a stream", kind)
	}
	if len(payload) != length {
		return broken(FrameSizeError, "a frame of type %d has %d bytes", kind, len(payload))
	}
	return nil
}

// known checks that a frame belongs to a stream that was opened at some time.
func (c *Conn) known(kind byte, id uint32) error {
	if id == 0 || id%2 == 0 || uint64(id) >= c.nextID {
		return broken(ProtocolError, "a frame of type %d on stream %d, which was not opened", kind, id)
	}
	return nil
}

func (c *Conn) onData(id uint32, flags byte, payload []byte) error {
	if err := c.known(frameData, id); err != nil {
		return err
	}
	s := c.streams.find(id)
	if err := c.account(s, len(payload), flags&flagEndStream != 0); err != nil {
		return err
	}
	data, err := unpad(flags, payload)
	if err != nil || s == nil {
		return err
	}
	ends := flags&flagEndStream != 0
	if !s.headersSeen {
		c.leaveStream(s, ends, ProtocolError, internal("the member sends DATA before HEADERS"))
	} else if failure := s.receive(data); failure != nil {
		c.leaveStream(s, ends, Cancel, failure)
	} else if ends {
		c.leaveStream(s, ends, Cancel, internal("the member ended the stream without a grpc-status"))
	}
	return nil
}

// account counts received data, including padding, and sends window updates when half of a window is used.
// s is nil for a stream that has ended.
func (c *Conn) account(s *Stream, n int, last bool) error {
	if c.receiveLeft -= int64(n); c.receiveLeft < 0 {
		return broken(FlowControlError, "more data than the connection's window allows")
	}
	if c.consumed += uint32(n); c.consumed >= c.window/2 {
		c.out = appendWindowUpdate(c.out, 0, c.consumed)
		c.receiveLeft += int64(c.consumed)
		c.consumed = 0
	}
	if s == nil {
		return nil
	}
	if s.receiveLeft -= int64(n); s.receiveLeft < 0 {
		return broken(FlowControlError, "more data than the stream's window allows")
	}
	if s.consumed += uint32(n); s.consumed >= c.window/2 && !last {
		c.out = appendWindowUpdate(c.out, s.id, s.consumed)
		s.receiveLeft += int64(s.consumed)
		s.consumed = 0
	}
	return nil
}

func (c *Conn) onHeaders(id uint32, flags byte, payload []byte) error {
	if err := c.known(frameHeaders, id); err != nil {
		return err
	}
	payload, err := unpad(flags, payload)
	if err != nil {
		return err
	}
	if flags&flagPriority != 0 {
		if len(payload) < 5 {
			return broken(FrameSizeError, "HEADERS too short for the priority in them")
		}
		payload = payload[5:]
	}
	ends := flags&flagEndStream != 0
	if flags&flagEndHeaders != 0 {
		return c.headerBlock(id, ends, payload)
	}
	c.block = append(c.block[:0], payload...)
	c.blockStream, c.blockEnds, c.blockFrames = id, ends, 0
	return nil
}

func (c *Conn) onContinuation(id uint32, flags byte, payload []byte) error {
	if c.blockStream == 0 {
		return broken(ProtocolError, "CONTINUATION without HEADERS before it")
	}
	if len(c.block)+len(payload) > maxHeaderBlock {
		return broken(EnhanceYourCalm, "a header block of more than %d bytes", maxHeaderBlock)
	}
	if c.blockFrames++; c.blockFrames > maxBlockFrames {
		return broken(EnhanceYourCalm, "a header block of more than %d CONTINUATION frames", maxBlockFrames)
	}
	c.block = append(c.block, payload...)
	if flags&flagEndHeaders == 0 {
		return nil
	}
	c.blockStream = 0
	return c.headerBlock(id, c.blockEnds, c.block)
}

// headerBlock must also decode the blocks of streams that have ended: they change the table.
func (c *Conn) headerBlock(id uint32, ends bool, block []byte) error {
	c.answer = answerHeaders{}
	if _, err := c.decoder.Write(block); err != nil {
		return broken(CompressionError, "%v", err)
	}
	if err := c.decoder.Close(); err != nil {
		return broken(CompressionError, "%v", err)
	}
	s := c.streams.find(id)
	if s == nil {
		return nil
	}
	h := &c.answer
	switch {
	case h.size > maxHeaderList:
		c.leaveStream(s, ends, Cancel, &store.Failure{
			Code: store.ResourceExhausted, Text: fmt.Sprintf("header fields of more than %d bytes",
				maxHeaderList), Unknown: true,
		})
	case s.headersSeen && !ends:
		c.fail(s, ProtocolError, internal("the member sends HEADERS twice"))
	case s.headersSeen:
		c.end(s, s.outcome(h))
	case len(h.status) == 3 && h.status[0] == '1' && !ends:
		// An interim answer (RFC 9110 section 15.2).
	case h.status != "200":
		text := fmt.Sprintf("HTTP status %.20q instead of 200", h.status)
		c.leaveStream(s, ends, Cancel, &store.Failure{Code: codeOfHTTP(h.status), Text: text, Unknown: true, Answered: true})
	case !isGRPC(h.contentType):
		text := fmt.Sprintf("content-type %.100q instead of application/grpc", h.contentType)
		c.leaveStream(s, ends, Cancel, &store.Failure{Code: store.Unknown, Text: text, Unknown: true})
	case ends: // an answer of trailers only
		c.end(s, s.outcome(h))
	default:
		s.headersSeen = true
	}
	return nil
}

// end handles a stream that the member has ended.
func (c *Conn) end(s *Stream, failure *store.Failure) {
	c.answered = true
	c.leaveStream(s, true, Cancel, failure)
}

func (c *Conn) onRSTStream(id uint32, payload []byte) error {
	if err := checkStream(frameRSTStream, id, payload, 4); err != nil {
		return err
	}
	if err := c.known(frameRSTStream, id); err != nil {
		return err
	}
	if s := c.streams.find(id); s != nil {
		code := ErrorCode(binary.BigEndian.Uint32(payload))
		c.finish(s, &store.Failure{
			Code: codeOfReset(code), Text: fmt.Sprintf("the member reset the stream: %v", code), Unknown: code != RefusedStream,
		})
	}
	return nil
}

func (c *Conn) onSettings(id uint32, flags byte, payload []byte) error {
	if id != 0 {
		return broken(ProtocolError, "SETTINGS on a stream")
	}
	if flags&flagAck != 0 {
		if len(payload) != 0 {
			return broken(FrameSizeError, "an acknowledgement of SETTINGS with a payload")
		}
		return nil
	}
	if len(payload)%6 != 0 {
		return broken(FrameSizeError, "SETTINGS of %d bytes", len(payload))
	}
	for ; len(payload) > 0; payload = payload[6:] {
		if err := c.setting(binary.BigEndian.Uint16(payload), binary.BigEndian.Uint32(payload[2:])); err != nil {
			return err
		}
	}
	c.settled = true
	c.acknowledge(frameSettings, nil)
	c.pump()
	return c.checkOutput()
}

func (c *Conn) setting(id uint16, value uint32) error {
	switch id {
	case settingHeaderTableSize:
		c.headers.limit(value)
	case settingEnablePush:
		if value != 0 {
			return broken(ProtocolError, "ENABLE_PUSH is %d", value)
		}
	case settingMaxConcurrentStreams:
		c.peerMaxStreams = value
	case settingInitialWindowSize:
		if value > largestWindow {
			return broken(FlowControlError, "INITIAL_WINDOW_SIZE is %d", value)
		}
		return c.changeWindows(int64(value))
	case settingMaxFrameSize:
		if value < smallestMaxFrame || value > largestMaxFrame {
			return broken(ProtocolError, "MAX_FRAME_SIZE is %d", value)
		}
		c.peerMaxFrame = int(value)
	}
	return nil
}

// changeWindows also applies to streams that are already open, and may make their windows negative
// (RFC 9113 section 6.9.2).
func (c *Conn) changeWindows(initial int64) error {
	change := initial - c.peerInitialWindow
	c.peerInitialWindow = initial
	for _, s := range c.streams.buckets {
		for ; s != nil; s = s.next {
			if s.window += change; s.window > largestWindow {
				return broken(FlowControlError, "INITIAL_WINDOW_SIZE makes a window larger than 2^31-1")
			}
		}
	}
	return nil
}

func (c *Conn) onPing(id uint32, flags byte, payload []byte) error {
	if id != 0 {
		return broken(ProtocolError, "PING on a stream")
	}
	if len(payload) != 8 {
		return broken(FrameSizeError, "PING of %d bytes", len(payload))
	}
	if flags&flagAck == 0 {
		c.acknowledge(framePing, payload)
	}
	return c.checkOutput()
}

// checkOutput bounds what a member that sends without reading can make the client buffer.
func (c *Conn) checkOutput() error {
	if len(c.out) > maxOutput {
		return broken(EnhanceYourCalm, "it does not read what it asks for")
	}
	return nil
}

func (c *Conn) onGoAway(id uint32, payload []byte) error {
	if id != 0 {
		return broken(ProtocolError, "GOAWAY on a stream")
	}
	if len(payload) < 8 {
		return broken(FrameSizeError, "GOAWAY of %d bytes", len(payload))
	}
	c.goAway = true
	last := binary.BigEndian.Uint32(payload) & largestStreamID
	text := fmt.Sprintf("the member closes the connection: %v", ErrorCode(binary.BigEndian.Uint32(payload[4:])))
	for s := c.streams.take(func(s *Stream) bool { return s.id > last }); s != nil; {
		next := s.next
		c.release(s)
		s.Owner.Finished(s, &store.Failure{Code: store.Unavailable, Text: text})
		s = next
	}
	return nil
}

func (c *Conn) onWindowUpdate(id uint32, payload []byte) error {
	if len(payload) != 4 {
		return broken(FrameSizeError, "WINDOW_UPDATE of %d bytes", len(payload))
	}
	increment := int64(binary.BigEndian.Uint32(payload) & largestWindow)
	if id == 0 {
		if c.sendWindow += increment; increment == 0 || c.sendWindow > largestWindow {
			return broken(windowCode(increment), "WINDOW_UPDATE by %d", increment)
		}
		c.pump()
		return nil
	}
	if err := c.known(frameWindowUpdate, id); err != nil {
		return err
	}
	s := c.streams.find(id)
	if s == nil {
		return nil
	}
	if s.window += increment; increment == 0 || s.window > largestWindow {
		c.fail(s, windowCode(increment), internal("the member sends WINDOW_UPDATE by %d", increment))
		return nil
	}
	c.pump()
	return nil
}

func windowCode(increment int64) ErrorCode {
	if increment == 0 {
		return ProtocolError
	}
	return FlowControlError
}
