// Package zookeepertest has an in-process stand-in for the members of a ZooKeeper ensemble, for tests.
package zookeepertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

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
	errors []error
}

type node struct {
	data  []byte
	mzxid int64
}

// Member is one server of a cluster.
type Member struct {
	worldtest.Member
	Endpoint string
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
		m.Endpoint = m.Listener.Endpoint
		c.Members = append(c.Members, m)
	}
	w.AtEnd(func() { c.check(w.T) })
	return c
}

// check fails a test in which a request did not have the form that it must have.
func (c *Cluster) check(t testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.errors {
		t.Error(err)
	}
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
	const opening = 45
	if _, err := io.CopyN(io.Discard, connection, opening); err != nil || binary.BigEndian.Uint32(first[:]) != opening {
		m.cluster.wrong(fmt.Errorf("the opening of a session has %d bytes (%v)", binary.BigEndian.Uint32(first[:]), err))
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
			answer, code, err := m.answer(r)
			if err != nil {
				m.cluster.wrong(fmt.Errorf("request of type %d: %w", r.Type, err))
			} else if code != 0 {
				err = fmt.Errorf("error %d", code)
			}
			return answer, err
		}
		if connection.Exchange(worldtest.Request{Key: key, Value: value, CarryOut: carryOut}) != nil || r.Closes() {
			return
		}
	}
}

func (c *Cluster) wrong(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errors = append(c.errors, err)
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

func (m *Member) answer(r *Request) (answer []byte, code int32, err error) {
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.Type {
	case ping:
		m.Pings.Add(1)
		return Answer(r.Xid, c.zxid, 0, nil), 0, nil
	case closeSession:
		m.Closed.Add(1)
		return Answer(r.Xid, c.zxid, 0, nil), 0, nil
	case syncData:
		m.Syncs.Add(1)
		read := &reader{b: r.body}
		path := read.text()
		return Answer(r.Xid, c.zxid, 0, text(path)), 0, read.end()
	}
	m.Requests.Add(1)
	body, code, err := c.carryOut(r.Type, &reader{b: r.body})
	if code != 0 {
		body = nil
	}
	return Answer(r.Xid, c.zxid, code, body), code, err
}

// carryOut does what a request asks for. The caller holds the lock.
func (c *Cluster) carryOut(kind int32, r *reader) (body []byte, code int32, err error) {
	if kind == multi {
		return c.multi(r)
	}
	path := r.text()
	if path == "" || path[0] != '/' {
		return nil, 0, errRequest
	}
	found := c.nodes[path]
	switch kind {
	case getData:
		_ = r.bool()
		if found == nil {
			return nil, NoNode, r.end()
		}
		return append(text(string(found.data)), stat(found.mzxid, len(found.data))...), 0, r.end()
	case create:
		data, acls := r.buffer(), r.int32()
		perms, scheme, id, flags := r.int32(), r.text(), r.text(), r.int32()
		if acls != 1 || perms != 31 || scheme != "world" || id != "anyone" || flags != 0 {
			return nil, 0, errRequest
		}
		c.zxid++
		if found != nil {
			return nil, NodeExists, r.end()
		}
		c.nodes[path] = &node{data, c.zxid}
		return text(path), 0, r.end()
	case setData:
		data, version := r.buffer(), r.int32()
		if version != -1 {
			return nil, 0, errRequest
		}
		c.zxid++
		if found == nil {
			return nil, NoNode, r.end()
		}
		found.data, found.mzxid = data, c.zxid
		return stat(c.zxid, len(data)), 0, r.end()
	}
	return nil, 0, errRequest
}

// multi takes a check and a write.
func (c *Cluster) multi(r *reader) (body []byte, code int32, err error) {
	header := func(kind int32, done bool) bool {
		k, d, e := r.int32(), r.bool(), r.int32()
		return k == kind && d == done && e == -1
	}
	if !header(check, false) {
		return nil, 0, errRequest
	}
	path, version := r.text(), r.int32()
	if version != -1 || !header(setData, false) || r.text() != path {
		return nil, 0, errRequest
	}
	data, version := r.buffer(), r.int32()
	if version != -1 || !header(-1, true) {
		return nil, 0, errRequest
	}
	part := func(kind int32, done byte, content []byte) {
		body = binary.BigEndian.AppendUint32(body, uint32(kind))
		body = append(body, done, 0xff, 0xff, 0xff, 0xff)
		body = append(body, content...)
	}
	c.zxid++
	if found := c.nodes[path]; found != nil {
		found.data, found.mzxid = data, c.zxid
		part(check, 0, nil)
		part(setData, 0, stat(c.zxid, len(data)))
	} else {
		for _, code := range []int32{NoNode, -2} {
			part(-1, 0, binary.BigEndian.AppendUint32(nil, uint32(code)))
		}
	}
	part(-1, 1, nil)
	return body, 0, r.end()
}
