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
