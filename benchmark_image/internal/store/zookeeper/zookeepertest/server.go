// Package zookeepertest has an in-process stand-in for the members of a ZooKeeper ensemble, for tests.
package zookeepertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"containernet-env/benchmark_image/internal/world/worldtest"
)

// The errors that a Cluster answers with.
const (
	NoNode         = -101
	NoAuth         = -102
	NodeExists     = -110
	SessionExpired = -112
	Throttled      = -127
)

// Cluster is an ensemble. Member i has the id i+1.
type Cluster struct {
	Members []*Member
	Timeout int32 // of sessions, in ms

	mu     sync.Mutex
	nodes  map[string]*node
	zxid   int64
	leader int
}

type node struct {
	data  []byte
	mzxid int64
}

// Member is one server of a cluster.
type Member struct {
	worldtest.Member
	Requests atomic.Int64 // without pings, syncs and what ends sessions
	Syncs    atomic.Int64
	Pings    atomic.Int64
	Sessions atomic.Int64 // that were opened
	Closed   atomic.Int64 // that were ended by their clients
	Words    atomic.Int64 // questions for the status

	cluster *Cluster
	id      int
}

// Simulate starts a cluster of n members in a simulated world, led by the first.
func Simulate(w *worldtest.World, n int) *Cluster {
	c := &Cluster{nodes: make(map[string]*node), Timeout: 6000}
	c.Elect(1)
	for i := range n {
		m := &Member{cluster: c, id: i + 1}
		m.Start(w, m.serve)
		c.Members = append(c.Members, m)
	}
	return c
}

// Endpoints lists the members' addresses in member order.
func (c *Cluster) Endpoints() (endpoints []string) {
	for _, m := range c.Members {
		endpoints = append(endpoints, m.Endpoint)
	}
	return endpoints
}

// Elect makes the member with the id the leader of a new epoch; 0: there is none.
func (c *Cluster) Elect(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader, c.zxid = id, (c.zxid>>32+1)<<32
}

// Paths returns those of all znodes, sorted.
func (c *Cluster) Paths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.nodes))
}

func (m *Member) serve(connection *worldtest.Session) {
	var first [4]byte
	if _, err := io.ReadFull(connection, first[:]); err != nil {
		return
	}
	if string(first[:]) == "srvr" {
		m.Words.Add(1)
		m.Pass()
		_, _ = io.WriteString(connection, m.status())
		return
	}
	if _, err := io.CopyN(io.Discard, connection, int64(binary.BigEndian.Uint32(first[:]))); err != nil {
		return
	}
	m.Pass()
	m.Sessions.Add(1)
	if _, err := connection.Write(Opened(m.cluster.Timeout)); err != nil {
		return
	}
	for {
		r, err := ReadRequest(connection)
		if err != nil {
			return
		}
		key, value := r.write()
		carryOut := func() ([]byte, error) {
			answer, code := m.answer(r)
			if code != 0 {
				return answer, fmt.Errorf("error %d", code)
			}
			return answer, nil
		}
		if connection.Exchange(worldtest.Request{Key: key, Value: value, CarryOut: carryOut}) != nil || r.Closes() {
			return
		}
	}
}

func (m *Member) status() string {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	mode := "follower"
	switch c.leader {
	case 0:
		return "This ZooKeeper instance is not currently serving requests\n"
	case m.id:
		mode = "leader"
	}
	return fmt.Sprintf("Zookeeper version: 3.8.0\nLatency min/avg/max: 0/0.5/12\nReceived: 9\nSent: 8\nConnections: 1\n"+
		"Outstanding: 0\nZxid: 0x%x\nMode: %s\nNode count: %d\n", c.zxid, mode, len(c.nodes))
}

func (m *Member) answer(r *Request) (answer []byte, code int32) {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.Type {
	case ping:
		m.Pings.Add(1)
		return Answer(r.Xid, c.zxid, 0, nil), 0
	case closeSession:
		m.Closed.Add(1)
		return Answer(r.Xid, c.zxid, 0, nil), 0
	case syncData:
		m.Syncs.Add(1)
		return r.Written(c.zxid), 0
	}
	m.Requests.Add(1)
	body, code := c.carryOut(r.Type, &reader{b: r.body})
	return Answer(r.Xid, c.zxid, code, body), code
}

// carryOut does what a request asks for, and panics where that has not the form that it must have. The caller holds the
// lock.
func (c *Cluster) carryOut(kind int32, r *reader) (body []byte, code int32) {
	if kind == multi {
		r.header(check)
	}
	path := r.text()
	found := c.nodes[path]
	if kind == getData {
		if found == nil {
			return nil, NoNode
		}
		return append(text(string(found.data)), stat(found.mzxid, len(found.data))...), 0
	}
	c.zxid++
	switch {
	case kind == create && found == nil:
		c.nodes[path] = &node{r.buffer(), c.zxid}
		return text(path), 0
	case kind == create:
		return nil, NodeExists
	case kind == setData && found == nil:
		return nil, NoNode
	case kind == setData:
		found.data, found.mzxid = r.buffer(), c.zxid
		return stat(c.zxid, len(found.data)), 0
	case kind != multi:
		panic(fmt.Sprintf("a request of type %d", kind))
	}
	part := func(kind int32, done byte, content []byte) {
		body = binary.BigEndian.AppendUint32(body, uint32(kind))
		body = append(body, done, 0xff, 0xff, 0xff, 0xff)
		body = append(body, content...)
	}
	r.int32() // the version to check
	r.header(setData)
	r.text() // the path again
	if found != nil {
		found.data, found.mzxid = r.buffer(), c.zxid
		part(check, 0, nil)
		part(setData, 0, stat(c.zxid, len(found.data)))
	} else {
		for _, code := range []int32{NoNode, -2} {
			part(-1, 0, binary.BigEndian.AppendUint32(nil, uint32(code)))
		}
	}
	part(-1, 1, nil)
	return body, 0
}

// Request is what a member reads of a request.
type Request struct {
	Xid, Type int32
	body      []byte
}

const (
	create       = 1
	getData      = 4
	setData      = 5
	syncData     = 9
	ping         = 11
	check        = 13
	multi        = 14
	closeSession = -11
)

// Closes tells whether it ends the session.
func (r *Request) Closes() bool { return r.Type == closeSession }

// write is the key and the value of a create or a set; no value: it is neither.
func (r *Request) write() (key string, value []byte) {
	if r.Type != create && r.Type != setData {
		return "", nil
	}
	read := &reader{b: r.body}
	return strings.TrimPrefix(read.text(), "/"), read.buffer()
}

// ReadPacket reads a packet without its length.
func ReadPacket(c io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > 1<<20-1 { // jute.maxbuffer
		return nil, errors.New("a packet that is too large")
	}
	packet := make([]byte, n)
	_, err := io.ReadFull(c, packet)
	return packet, err
}

func ReadRequest(c io.Reader) (*Request, error) {
	packet, err := ReadPacket(c)
	if err != nil {
		return nil, err
	}
	r := &reader{b: packet}
	request := &Request{Xid: r.int32(), Type: r.int32()}
	request.body = r.b
	return request, nil
}

// Packet gives a packet with its length.
func Packet(content ...[]byte) []byte {
	b := make([]byte, 4)
	for _, part := range content {
		b = append(b, part...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Opened is the answer to the opening of a session with a timeout in ms.
func Opened(timeout int32) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(timeout))
	b = binary.BigEndian.AppendUint64(b, 0x1234)
	b = binary.BigEndian.AppendUint32(b, 16)
	return Packet(b, make([]byte, 16), []byte{0})
}

// Answer is an answer with a body.
func Answer(xid int32, zxid int64, code int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	return Packet(binary.BigEndian.AppendUint32(b, uint32(code)), body)
}

// Written is the good answer to a request to create, set or sync. Znodes keep nothing.
func (r *Request) Written(zxid int64) []byte {
	if r.Type == setData {
		return Answer(r.Xid, zxid, 0, stat(zxid, 0))
	}
	read := &reader{b: r.body}
	return Answer(r.Xid, zxid, 0, text(read.text()))
}

// Greet takes the opening of a session and answers it.
func Greet(c net.Conn) error {
	if _, err := ReadPacket(c); err != nil {
		return err
	}
	_, err := c.Write(Opened(6000))
	return err
}

// RawRequests serves each request of a session with a function, until it says that this was enough.
func RawRequests(serve func(c net.Conn, r *Request) bool) func(net.Conn) {
	return func(c net.Conn) {
		err := Greet(c)
		for err == nil {
			var r *Request
			if r, err = ReadRequest(c); err == nil && !serve(c, r) {
				return
			}
		}
	}
}

// reader reads the fields of a request.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int32() int32   { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) buffer() []byte { return slices.Clone(r.take(int(r.int32()))) }
func (r *reader) text() string   { return string(r.take(int(r.int32()))) }

// header reads that of a part of a transaction.
func (r *reader) header(kind int32) {
	if got, rest := r.int32(), r.take(5); got != kind || rest[0] != 0 {
		panic(fmt.Sprintf("a part of type %d", got))
	}
}

func text(s string) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...) }

// stat is that of a znode with so much data.
func stat(mzxid int64, length int) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 8), uint64(mzxid))
	b = append(b, make([]byte, 36)...)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return append(b, make([]byte, 12)...)
}

// Data is the good answer to a read.
func Data(xid int32, zxid int64, data []byte, mzxid int64) []byte {
	return Answer(xid, zxid, 0, append(text(string(data)), stat(mzxid, len(data))...))
}
