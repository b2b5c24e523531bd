package etcdtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/assert"
)

// RawMember serves each connection with a function, until the test ends.
func RawMember(t testing.TB, serve func(net.Conn)) (endpoint string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, connection)
			mu.Unlock()
			serving.Go(func() {
				serve(connection)
				_ = connection.Close() // the client may have gone already
			})
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		for _, connection := range open {
			_ = connection.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return listener.Addr().String()
}

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
	return errors.Join(m.Begin(stream), m.Fields(stream, true, "grpc-status", "0"))
}

// Begin answers well as far as the trailers.
func (m *Raw) Begin(stream uint32) error {
	return errors.Join(
		m.Fields(stream, false, ":status", "200", "content-type", "application/grpc"),
		m.Framer.WriteData(stream, false, []byte{0, 0, 0, 0, 4, 0x0a, 2, 0x18, 7}),
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

// CannedMember answers every request with the same bytes, and never makes a client wait for a window.
// The answer to a range holds a key with the value, in which a put's answer has no field.
func CannedMember(t testing.TB, value []byte) (endpoint string) {
	return RawMember(t, func(c net.Conn) {
		m, err := Greet(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		if err != nil || m.Framer.WriteWindowUpdate(0, 1<<30) != nil || m.Framer.WriteWindowUpdate(0, 1<<29) != nil {
			return
		}
		canned(c, value)
	})
}

// canned answers every complete request with the same bytes, but for the stream.
func canned(c net.Conn, value []byte) {
	const data, ends = 0, 1
	in, out := make([]byte, 0, 1<<16), make([]byte, 0, 1<<16)
	answer := append([]byte{0x0a, 2, 0x18, 7, 0x12, byte(5 + len(value)), 0x0a, 1, '0', 0x2a,
		byte(len(value))}, value...)
	answer = append(answer, 0x20, 1)
	answer = append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...)
	first := true
	for {
		n, err := c.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in, out = in[:len(in)+n], out[:0]
		rest := in
		for len(rest) >= 9 {
			length := 9 + (int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2]))
			if len(rest) < length {
				break
			}
			if stream := binary.BigEndian.Uint32(rest[5:]); rest[3] == data && rest[4]&ends != 0 {
				out = AppendAnswer(out, stream, first, answer)
				first = false
			}
			rest = rest[length:]
		}
		in = in[:copy(in[:cap(in)], rest)]
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}
