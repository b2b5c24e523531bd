package etcdtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"containernet-env/benchmark_image/internal/world/worldtest"
)

// Simulate starts a cluster of n members in a simulated world, led by the first. users may use it; nil: all may.
func Simulate(w *worldtest.World, n int, users *Users) *Cluster {
	c := newCluster()
	for i := range n {
		m := &Member{cluster: c, id: uint64(i + 1), users: users}
		m.Start(w, m.serve)
		c.Members = append(c.Members, m)
	}
	return c
}

// session is one connection of a simulated member.
type session struct {
	*Raw
	link  *worldtest.Session
	out   bytes.Buffer  // what is written next
	turn  chan struct{} // of who writes; a mutex would keep the world from coming to rest
	calls map[uint32]*simulatedCall
	last  uint32 // stream
}

type simulatedCall struct {
	path, token string
	message     []byte
	request     any
	carryOut    func() (answer any, err error)
}

func (m *Member) serve(c *worldtest.Session) {
	raw, err := Greet(c, append([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 20}}, m.Settings...)...)
	if err != nil {
		return
	}
	s := &session{Raw: raw, link: c, turn: make(chan struct{}, 1), calls: make(map[uint32]*simulatedCall)}
	s.Framer = http2.NewFramer(&s.out, c)
	c.Bye = func() {
		_ = s.write(func() error { return s.Framer.WriteGoAway(s.last, http2.ErrCodeNo, nil) }) // the client may have gone
	}
	s.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for err = s.write(func() error { return s.Framer.WriteWindowUpdate(0, 1<<30) }); err == nil; {
		var f http2.Frame
		if f, err = s.Framer.ReadFrame(); err == nil {
			err = m.take(s, f)
		}
	}
}

func (m *Member) take(s *session, frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return s.write(s.Framer.WriteSettingsAck)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return s.write(func() error { return s.Framer.WritePing(true, f.Data) })
		}
	case *http2.GoAwayFrame:
		return errors.New("the client leaves")
	case *http2.RSTStreamFrame:
		delete(s.calls, f.StreamID)
	case *http2.MetaHeadersFrame:
		call := &simulatedCall{path: f.PseudoValue("path")}
		for _, field := range f.RegularFields() {
			if field.Name == "token" {
				call.token = field.Value
			}
		}
		s.calls[f.StreamID] = call
	case *http2.DataFrame:
		call := s.calls[f.StreamID]
		if call == nil {
			return nil
		}
		call.message = append(call.message, f.Data()...)
		if f.StreamEnded() {
			delete(s.calls, f.StreamID)
			m.start(s, f.StreamID, call)
		}
	}
	return nil
}

// start carries out a call, unless the client was notified before that it would not be.
func (m *Member) start(s *session, stream uint32, call *simulatedCall) {
	if s.link.Leaving {
		return
	}
	s.last = max(s.last, stream)
	m.prepare(call)
	answer, failure := any(nil), status.Error(codes.Unimplemented, "no request to "+call.path)
	r := worldtest.Request{
		CarryOut: func() ([]byte, error) {
			if call.carryOut != nil {
				answer, failure = call.carryOut()
			}
			return nil, failure
		},
		Answer: func() error { return s.write(func() error { return s.answer(stream, answer, failure) }) },
	}
	if put, is := call.request.(*etcdserverpb.PutRequest); is {
		r.Key, r.Value = string(put.Key), put.Value
	}
	go s.link.Take(r)()
}

func (s *session) write(do func() error) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	err := do()
	_, failed := s.Write(s.out.Bytes())
	s.out.Reset()
	return errors.Join(err, failed)
}

func (s *session) answer(stream uint32, answer any, failure error) error {
	if failure != nil {
		as := status.Convert(failure)
		return s.Refuse(stream, strconv.Itoa(int(as.Code())), as.Message())
	}
	encoded, err := proto.Marshal(answer.(proto.Message))
	if err != nil {
		return err
	}
	return s.AnswerWith(stream, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(encoded))), encoded...))
}

// services are what members serve, and methods those of them by their paths.
var (
	services = []*grpc.ServiceDesc{&etcdserverpb.KV_ServiceDesc, &etcdserverpb.Maintenance_ServiceDesc,
		&etcdserverpb.Cluster_ServiceDesc, &etcdserverpb.Auth_ServiceDesc}
	methods = func() map[string]grpc.MethodDesc {
		all := make(map[string]grpc.MethodDesc)
		for _, service := range services {
			for _, method := range service.Methods {
				all["/"+service.ServiceName+"/"+method.MethodName] = method
			}
		}
		return all
	}()
)

// prepare reads the request; carryOut stays nil where it is none.
func (m *Member) prepare(c *simulatedCall) {
	method, known := methods[c.path]
	if !known || len(c.message) < 5 {
		return
	}
	ctx := context.Background()
	if c.token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("token", c.token))
	}
	decode := func(into any) error { return proto.Unmarshal(c.message[5:], into.(proto.Message)) }
	hold := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c.request = request
		c.carryOut = func() (any, error) {
			if m.users != nil {
				return m.users.admit(ctx, request, info, handler)
			}
			return handler(ctx, request)
		}
		return nil, nil
	}
	_, _ = method.Handler(m, ctx, decode, hold) // what is no request stays without carryOut
}

// Raw is a connection of a raw member.
type Raw struct {
	net.Conn
	Framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
}

// NewRaw makes a raw member without a connection.
func NewRaw(to io.Writer, from io.Reader) *Raw {
	m := &Raw{Framer: http2.NewFramer(to, from)}
	m.encoder = hpack.NewEncoder(&m.block)
	return m
}

// Greet takes the preface and answers it.
func Greet(c net.Conn, settings ...http2.Setting) (*Raw, error) {
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return nil, err
	}
	m := NewRaw(c, c)
	m.Conn = c
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
	return m.AnswerWith(stream, []byte{0, 0, 0, 0, 4, 0x0a, 2, 0x18, 7})
}

// AnswerWith answers well, with a message behind gRPC's prefix.
func (m *Raw) AnswerWith(stream uint32, message []byte) error {
	err := m.Fields(stream, false, ":status", "200", "content-type", "application/grpc")
	for err == nil && len(message) > 0 {
		part := message[:min(len(message), 16<<10)]
		message = message[len(part):]
		err = m.Framer.WriteData(stream, false, part)
	}
	return errors.Join(err, m.Fields(stream, true, "grpc-status", "0"))
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
