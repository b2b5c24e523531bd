package etcdtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Raw is a connection of a raw member.
type Raw struct {
	net.Conn
	Framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
}

// Greet takes the preface and answers it.
func Greet(c net.Conn, settings ...http2.Setting) (*Raw, error) {
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return nil, err
	}
	m := &Raw{Conn: c, Framer: http2.NewFramer(c, c)}
	m.encoder = hpack.NewEncoder(&m.block)
	return m, m.Framer.WriteSettings(settings...)
}

// Request gives the stream of the next request that is complete.
func (m *Raw) Request() (stream uint32, err error) {
	for {
		f, err := m.Framer.ReadFrame()
		if err != nil {
			return 0, err
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			return d.StreamID, nil
		}
	}
}

// Fields sends a header block of names and values.
func (m *Raw) Fields(stream uint32, ends bool, fields ...string) error {
	m.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := m.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return m.Framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: m.block.Bytes(),
		EndHeaders: true, EndStream: ends})
}

// Answer answers well, with revision 7.
func (m *Raw) Answer(stream uint32) error {
	return errors.Join(
		m.Fields(stream, false, ":status", "200", "content-type", "application/grpc"),
		m.Framer.WriteData(stream, false, []byte{0, 0, 0, 0, 4, 0x0a, 2, 0x18, 7}),
		m.Fields(stream, true, "grpc-status", "0"),
	)
}

// Refuse answers with trailers only.
func (m *Raw) Refuse(stream uint32, status, text string) error {
	return m.Fields(stream, true, ":status", "200", "content-type", "application/grpc", "grpc-status", status,
		"grpc-message", text)
}

// RawRequests serves each request of a connection with a function, until it says that this was enough.
func RawRequests(serve func(m *Raw, stream uint32) bool, settings ...http2.Setting) func(net.Conn) {
	return func(c net.Conn) {
		m, err := Greet(c, settings...)
		for err == nil {
			var stream uint32
			if stream, err = m.Request(); err == nil && !serve(m, stream) {
				return
			}
		}
	}
}

// AppendAnswer appends the frames with which a member answers a call well; message has gRPC's prefix. The first
// answer of a connection puts the fields into the table.
func AppendAnswer(b []byte, stream uint32, first bool, message []byte) []byte {
	const headers, data, endStream, endHeaders = 1, 0, 1, 4
	frame := func(kind, flags byte, length int) {
		b = append(b, byte(length>>16), byte(length>>8), byte(length), kind, flags)
		b = binary.BigEndian.AppendUint32(b, stream)
	}
	const grpc, status = "application/grpc", "grpc-status"
	if first {
		frame(headers, endHeaders, 3+len(grpc))
		b = append(append(b, 0x88, 0x40|31, byte(len(grpc))), grpc...)
	} else {
		frame(headers, endHeaders, 2)
		b = append(b, 0x88, 0x80|63)
	}
	frame(data, 0, len(message))
	b = append(b, message...)
	if first {
		frame(headers, endHeaders|endStream, 4+len(status))
		b = append(append(append(b, 0x40, byte(len(status))), status...), 1, '0')
	} else {
		frame(headers, endHeaders|endStream, 1)
		b = append(b, 0x80|62)
	}
	return b
}
