// Package h2 is the client side of gRPC over HTTP/2 for load generation: many short calls on one connection, of
// which only a few fields of the answer matter. A Conn does no I/O of its own: it is fed with the bytes that were read
// and buffers the bytes to be written.
//
// RFC numbers in this package: 9113 is HTTP/2, 7541 its header compression. gRPC's own rules are in its
// repository under doc/PROTOCOL-HTTP2.md.
package h2

import (
	"encoding/binary"
	"fmt"
)

// preface opens every connection (RFC 9113 section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frameHeader is the length of a frame's header (RFC 9113 section 4.1).
const frameHeader = 9

// Types of frames (RFC 9113 section 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameRSTStream    = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9
)

// Flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// Settings (RFC 9113 section 6.5.2).
const (
	settingHeaderTableSize      = 0x1
	settingEnablePush           = 0x2
	settingMaxConcurrentStreams = 0x3
	settingInitialWindowSize    = 0x4
	settingMaxFrameSize         = 0x5
	settingMaxHeaderListSize    = 0x6
)

const (
	defaultWindow    = 65_535
	largestWindow    = 1<<31 - 1
	smallestMaxFrame = 16_384 // and the default
	largestMaxFrame  = 1<<24 - 1
	largestStreamID  = 1<<31 - 1
)

// ErrorCode is an HTTP/2 error code (RFC 9113 section 7).
type ErrorCode uint32

// The error codes that this package sends or understands.
const (
	NoError            ErrorCode = 0x0
	ProtocolError      ErrorCode = 0x1
	InternalError      ErrorCode = 0x2
	FlowControlError   ErrorCode = 0x3
	FrameSizeError     ErrorCode = 0x6
	RefusedStream      ErrorCode = 0x7
	Cancel             ErrorCode = 0x8
	CompressionError   ErrorCode = 0x9
	EnhanceYourCalm    ErrorCode = 0xb
	InadequateSecurity ErrorCode = 0xc
)

var errorNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
	"STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR",
	"ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String gives the name in the RFC.
func (c ErrorCode) String() string {
	if int(c) < len(errorNames) {
		return errorNames[c]
	}
	return fmt.Sprintf("error code %#x", uint32(c))
}

// ConnError is why a connection can no longer be used: the member violated the protocol.
type ConnError struct {
	Code ErrorCode
	Text string
}

// Error implements error.
func (e *ConnError) Error() string { return fmt.Sprintf("the member breaks HTTP/2: %s", e.Text) }

func broken(code ErrorCode, format string, args ...any) error {
	return &ConnError{code, fmt.Sprintf(format, args...)}
}

func appendFrameHeader(b []byte, length int, kind, flags byte, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), kind, flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}

func appendWindowUpdate(b []byte, stream uint32, increment uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(b, 4, frameWindowUpdate, 0, stream), increment)
}

func appendRSTStream(b []byte, stream uint32, code ErrorCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(b, 4, frameRSTStream, 0, stream), uint32(code))
}

// unpad removes the padding of a frame's payload (RFC 9113 section 6.1).
func unpad(flags byte, payload []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return payload, nil
	}
	if len(payload) == 0 {
		return nil, broken(FrameSizeError, "a padded frame is empty")
	}
	padding := int(payload[0])
	if padding >= len(payload) {
		return nil, broken(ProtocolError, "a frame has more padding than payload")
	}
	return payload[1 : len(payload)-padding], nil
}
