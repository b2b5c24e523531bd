package h2

import (
	"bytes"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/store"
)

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

// setToken changes the token, which takes the place of the last one in all blocks.
func (h *requestHeaders) setToken(token string) {
	h.token = token
	// An old token in the table could push out other fields, to which blocks that are kept refer.
	h.encoder.SetMaxDynamicTableSize(0)
	h.limit(h.member)
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
