// Package h2 is the client side of gRPC over HTTP/2 for load generation: many short calls on one connection, of
// which only a few fields of the answer matter. A Conn does no I/O of its own: it is fed with the bytes that were read
// and buffers the bytes to be written.
//
// RFC numbers in this package: 9113 is HTTP/2, 7541 its header compression. gRPC's own rules are in its
// repository under doc/PROTOCOL-HTTP2.md.
package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/store"
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

// userAgent names this program to the member.
const userAgent = "containernet-env-load"

// requestHeaders keeps the encoded header block of each method. Header fields go into the member's dynamic table once;
// from then on a block is the same few bytes for all requests of a method.
type requestHeaders struct {
	scheme    string
	authority string
	methods   []string // their paths
	token     string   // of a login; empty: there is none
	member    uint32   // how large a table the member allows
	encoder   *hpack.Encoder
	buffer    bytes.Buffer
	ready     [maxMethods][]byte
	sent      [maxMethods]bool // a block of this method has put its path into the table
}

// maxMethods is how many paths a connection may have.
const maxMethods = 8

// tableSize is the default size of the table (RFC 9113 section 6.5.2), in bytes.
const tableSize = 4096

func newRequestHeaders(authority string, methods []string, secure bool) *requestHeaders {
	h := &requestHeaders{scheme: "http", authority: authority, methods: methods}
	if secure {
		h.scheme = "https"
	}
	h.encoder = hpack.NewEncoder(&h.buffer)
	h.limit(tableSize)
	return h
}

// limit follows the member's SETTINGS_HEADER_TABLE_SIZE. A table too small for all fields would
// change with each request: then none is used.
func (h *requestHeaders) limit(size uint32) {
	h.member = size
	needed := uint32(0)
	for _, field := range h.fields(0) {
		needed += field.Size()
	}
	for _, path := range h.methods[1:] {
		needed += hpack.HeaderField{Name: ":path", Value: path}.Size()
	}
	use := min(size, tableSize)
	if use < needed {
		use = 0
	}
	h.encoder.SetMaxDynamicTableSizeLimit(use)
	h.encoder.SetMaxDynamicTableSize(use)
	clear(h.ready[:])
	clear(h.sent[:])
}

func (h *requestHeaders) fields(method int) []hpack.HeaderField {
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: h.scheme},
		{Name: ":path", Value: h.methods[method]},
		{Name: ":authority", Value: h.authority},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: userAgent},
		{Name: "te", Value: "trailers"},
	}
	if h.token != "" {
		// What etcd calls it (api/v3rpc/rpctypes, TokenFieldNameGRPC).
		fields = append(fields, hpack.HeaderField{Name: "token", Value: h.token})
	}
	return fields
}

// block gives the header block of the next request, which must be sent.
func (h *requestHeaders) block(method int) []byte {
	if block := h.ready[method]; block != nil {
		return block
	}
	h.buffer.Reset()
	for _, field := range h.fields(method) {
		// Writing to a bytes.Buffer does not fail.
		_ = h.encoder.WriteField(field)
	}
	block := h.buffer.Bytes()
	if h.sent[method] {
		h.ready[method] = bytes.Clone(block)
	} else {
		// This block changes the table, and with it the numbers of the fields in all blocks.
		clear(h.ready[:])
		h.sent[method] = true
	}
	return block
}

// answerHeaders are the fields of a member's header block that have a meaning in gRPC.
type answerHeaders struct {
	status      string // of HTTP
	grpcStatus  string
	grpcMessage string
	contentType string
	size        int // as RFC 9113 section 6.5.2 counts it
}

func (h *answerHeaders) add(f hpack.HeaderField) {
	h.size += int(f.Size())
	switch f.Name {
	case ":status":
		h.status = f.Value
	case "grpc-status":
		h.grpcStatus = f.Value
	case "grpc-message":
		h.grpcMessage = f.Value
	case "content-type":
		h.contentType = f.Value
	}
}

// isGRPC follows gRPC: application/grpc, possibly followed by an encoding or parameters.
func isGRPC(contentType string) bool {
	if contentType == "application/grpc" {
		return true
	}
	rest, found := strings.CutPrefix(strings.ToLower(contentType), "application/grpc")
	return found && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// codeOfHTTP translates the status of an answer that is not gRPC (gRPC's doc/http-grpc-status-mapping.md).
func codeOfHTTP(status string) store.Code {
	switch status {
	case "400":
		return store.Internal
	case "401":
		return store.Unauthenticated
	case "403":
		return store.PermissionDenied
	case "404":
		return store.Unimplemented
	case "429", "502", "503", "504":
		return store.Unavailable
	}
	return store.Unknown
}

// codeOfReset translates the error code of RST_STREAM (gRPC's doc/PROTOCOL-HTTP2.md, section Errors).
func codeOfReset(code ErrorCode) store.Code {
	switch code {
	case RefusedStream:
		return store.Unavailable
	case Cancel:
		return store.Canceled
	case EnhanceYourCalm:
		return store.ResourceExhausted
	case InadequateSecurity:
		return store.PermissionDenied
	}
	return store.Internal
}

// unescape undoes the percent encoding of grpc-message; invalid escapes stay as they are.
func unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}
