package etcdtest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
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

// Simulate starts a cluster of n members in a simulated world, led by the first. users is who may use it; nil: everyone.
func Simulate(w *worldtest.World, n int, users *Users) *Cluster {
	c := newCluster()
	for i := range n {
		m := &Member{cluster: c, id: uint64(i + 1)}
		m.world, m.users = w, users
		m.Start(w, m.serve)
		m.Endpoint = m.Listener.Endpoint
		c.Members = append(c.Members, m)
	}
	return c
}

// session is one connection of a simulated member.
type session struct {
	*Raw
	batch   *batch
	turn    chan struct{} // of who writes; a mutex would keep the world from coming to rest
	calls   map[uint32]*simulatedCall
	active  int
	last    uint32 // stream
	leaving bool
}

type simulatedCall struct {
	path, token string
	message     []byte
	request     any
	carryOut    func() (answer any, err error)
}

// Leave ends the connections of a simulated member in order: what is under way is still answered.
func (m *Member) Leave() {
	for _, s := range m.sessions() {
		_ = s.write(func() error { // the client may have gone
			s.leaving = true
			return s.Framer.WriteGoAway(s.last, http2.ErrCodeNo, nil)
		})
		m.endIfLeft(s)
	}
}

func (m *Member) sessions() []*session {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return slices.Clone(m.open)
}

func (m *Member) endIfLeft(s *session) {
	m.cluster.mu.Lock()
	over := s.leaving && s.active == 0
	m.cluster.mu.Unlock()
	if over {
		_ = s.Close()
	}
}

func (m *Member) serve(c *worldtest.Session) {
	to := &batch{Conn: c.Conn}
	raw, err := Greet(to, append([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 20}}, m.Settings...)...)
	if err != nil {
		return
	}
	s := &session{Raw: raw, batch: to, turn: make(chan struct{}, 1), calls: make(map[uint32]*simulatedCall)}
	m.cluster.mu.Lock()
	m.open = append(m.open, s)
	m.cluster.mu.Unlock()
	s.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for err = s.write(func() error { return s.Framer.WriteWindowUpdate(0, 1<<30) }); err == nil; {
		var f http2.Frame
		if f, err = s.Framer.ReadFrame(); err == nil {
			err = m.take(s, f)
		}
	}
	m.cluster.mu.Lock()
	m.open = slices.DeleteFunc(m.open, func(other *session) bool { return other == s })
	m.cluster.mu.Unlock()
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
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if s.leaving {
		return
	}
	s.last = max(s.last, stream)
	s.active++
	m.prepare(call)
	m.watch(worldtest.Arrived, call, nil)
	before, after := m.Thinks()
	m.world.After(before, func() {
		answer, err := any(nil), status.Error(codes.Unimplemented, "no request to "+call.path)
		if call.carryOut != nil {
			answer, err = call.carryOut()
		}
		m.watch(worldtest.CarriedOut, call, err)
		m.world.After(after, func() {
			m.watch(worldtest.Answered, call, err)
			_ = s.write(func() error { return s.answer(stream, answer, err) }) // the client may have gone
			m.cluster.mu.Lock()
			s.active--
			m.cluster.mu.Unlock()
			m.endIfLeft(s)
		})
	})
}

func (s *session) write(do func() error) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return errors.Join(do(), s.batch.flush())
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
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(encoded))), encoded...)
	err = s.Fields(stream, false, ":status", "200", "content-type", "application/grpc")
	for err == nil && len(message) > 0 {
		part := message[:min(len(message), 16<<10)]
		message = message[len(part):]
		err = s.Framer.WriteData(stream, false, part)
	}
	return errors.Join(err, s.Fields(stream, true, "grpc-status", "0"))
}

// batch collects what is written to a connection.
type batch struct {
	*worldtest.Conn
	out []byte
}

func (b *batch) Write(more []byte) (int, error) {
	b.out = append(b.out, more...)
	return len(more), nil
}

func (b *batch) flush() error {
	out := b.out
	b.out = nil
	_, err := b.Conn.Write(out)
	return err
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

func (m *Member) watch(stage worldtest.Stage, c *simulatedCall, err error) {
	if put, is := c.request.(*etcdserverpb.PutRequest); is {
		m.Note(stage, string(put.Key), put.Value, err)
	}
}

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
