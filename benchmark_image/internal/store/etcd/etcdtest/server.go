// Package etcdtest has an in-process stand-in for the members of an etcd cluster, for tests.
package etcdtest

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// Cluster is a store that several members serve. Member i has the id i+1.
type Cluster struct {
	Members []*Member
	Secured bool // members advertise addresses with TLS
	Broken  Broken

	mu       sync.Mutex
	keys     map[string]*stored
	revision int64
	events   []history.Event
	writes   int
	reads    int
	leader   uint64
	term     uint64
}

// Member is one gRPC server of a cluster.
type Member struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedClusterServer
	etcdserverpb.UnimplementedAuthServer
	worldtest.Member

	Requests atomic.Int64 // puts and ranges that arrived
	Fail     atomic.Pointer[error]
	Spoil    atomic.Pointer[func(*etcdserverpb.RangeResponse)] // changes the answers to ranges
	Settings []http2.Setting                                   // of a member in a simulated world

	cluster *Cluster
	id      uint64
	server  *grpc.Server // nil: it is in a simulated world
	users   *Users       // of a member in a simulated world
	leader  uint64       // as it knew when it began to hang
	term    uint64
}

// Start starts a cluster of n members on loopback, led by the first, that ends with the test.
func Start(t testing.TB, n int, options ...grpc.ServerOption) *Cluster {
	t.Helper()
	c := newCluster()
	for i := range n {
		listener := assert.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
		m := &Member{cluster: c, id: uint64(i + 1), server: grpc.NewServer(options...)}
		m.Endpoint = listener.Addr().String()
		for _, service := range services {
			m.server.RegisterService(service, m)
		}
		go func() {
			if err := m.server.Serve(listener); err != nil {
				t.Errorf("member %d: %v", m.id, err)
			}
		}()
		t.Cleanup(m.Stop)
		c.Members = append(c.Members, m)
	}
	return c
}

func newCluster() *Cluster {
	c := &Cluster{keys: make(map[string]*stored), revision: 1}
	c.Elect(1)
	return c
}

// Endpoints lists the members' addresses in member order.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.Members {
		endpoints = append(endpoints, m.Endpoint)
	}
	return endpoints
}

// Elect makes the member with the id the leader of a new term; 0: there is none.
func (c *Cluster) Elect(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = id
	c.term++
}

// Keys returns all keys, sorted.
func (c *Cluster) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.keys))
}

// Set stores a key with a value.
func (c *Cluster) Set(key string, value []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apply(key, value)
}

// Value returns the value of a key.
func (c *Cluster) Value(key string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.keys[key]; found != nil {
		return found.value
	}
	return nil
}

// Stop ends the member: its connections are cut and new ones refused.
func (m *Member) Stop() {
	if m.server == nil {
		m.Member.Stop()
		return
	}
	m.Release()
	m.server.Stop()
}

// Hang makes the member keep requests without an answer until Release, questions for its status among them.
func (m *Member) Hang() {
	m.cluster.mu.Lock()
	m.leader, m.term = m.cluster.leader, m.cluster.term
	m.cluster.mu.Unlock()
	m.Member.Hang()
}

// admit lets a request pass, keeps it, or fails it.
func (m *Member) admit() error {
	m.Requests.Add(1)
	m.Pass()
	if err := m.Fail.Load(); err != nil {
		return *err
	}
	return nil
}

func (m *Member) MemberList(_ context.Context, _ *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse,
	error) {
	m.Pass()
	var list etcdserverpb.MemberListResponse
	scheme := "http://"
	if m.cluster.Secured {
		scheme = "https://"
	}
	for _, member := range m.cluster.Members {
		list.Members = append(list.Members, &etcdserverpb.Member{ID: member.id,
			ClientURLs: []string{scheme + member.Endpoint}})
	}
	return &list, nil
}

func (m *Member) Put(_ context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	if err := m.admit(); err != nil {
		return nil, err
	}
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.write(string(r.Key), r.Value); err != nil {
		return nil, err
	}
	return &etcdserverpb.PutResponse{Header: m.header(c.revision)}, nil
}

func (m *Member) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if err := m.admit(); err != nil {
		return nil, err
	}
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := &etcdserverpb.RangeResponse{Header: m.header(c.revision)}
	for _, key := range c.span(string(r.Key), string(r.RangeEnd)) {
		answer.Count++
		if r.CountOnly || r.Limit > 0 && int64(len(answer.Kvs)) >= r.Limit {
			continue
		}
		kv, stale := c.read(key, r.KeysOnly)
		if stale && !c.Broken.Revisions {
			answer.Header.Revision = kv.ModRevision
		}
		answer.Kvs = append(answer.Kvs, kv)
	}
	answer.More = !r.CountOnly && answer.Count > int64(len(answer.Kvs))
	if spoil := m.Spoil.Load(); spoil != nil {
		(*spoil)(answer)
	}
	return answer, nil
}

// span lists the keys of a range, sorted. The caller holds the lock.
func (c *Cluster) span(from, end string) (keys []string) {
	if end == "" {
		if c.keys[from] != nil {
			return []string{from}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.keys)), func(key string) bool { return !within(key, from, end) })
}

// Txn implements etcdserverpb.KVServer as far as a load needs it: whether a key was ever written, and a put.
func (m *Member) Txn(_ context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if len(r.Compare) == 0 && len(r.Success) == 0 { // a rehearsal
		m.Pass()
		return &etcdserverpb.TxnResponse{Header: m.header(0), Succeeded: true}, nil
	}
	if err := m.admit(); err != nil {
		return nil, err
	}
	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	compare, put := r.Compare[0], r.Success[0].GetRequestPut()
	if compare.Target != etcdserverpb.Compare_MOD || compare.Result != etcdserverpb.Compare_GREATER {
		return nil, status.Error(codes.Unimplemented, "another comparison")
	}
	found := c.keys[string(compare.Key)]
	succeeded := found != nil && found.mod > compare.GetModRevision()
	if succeeded {
		if err := c.write(string(put.Key), put.Value); err != nil {
			return nil, err
		}
	}
	return &etcdserverpb.TxnResponse{Header: m.header(c.revision), Succeeded: succeeded}, nil
}

func within(key, from, end string) bool { return key >= from && (end == "\x00" || key < end) }

// Status implements etcdserverpb.MaintenanceServer. A question to a member that hangs is answered with what that knew
// before.
func (m *Member) Status(_ context.Context, _ *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	m.cluster.mu.Lock()
	leader, term := m.cluster.leader, m.cluster.term
	m.cluster.mu.Unlock()
	if m.Hangs() {
		leader, term = m.leader, m.term
	}
	m.Pass()
	return &etcdserverpb.StatusResponse{
		Header: &etcdserverpb.ResponseHeader{MemberId: m.id, RaftTerm: term},
		Leader: leader,
	}, nil
}

// Broken makes a cluster break its promises. Each function gets the number of a write or a read, from 1, and tells
// whether that one is treated badly; nil: none is. It must be set before the load.
type Broken struct {
	Lose      func(write int) bool // it is acknowledged, at a revision of its own, and never carried out
	Stale     func(read int) bool  // it is answered from before the last write of the key
	Refuse    func(write int) bool // it is refused, but carried out
	Revisions bool                 // answers to stale reads tell the revision of the present
}

// stored is a key with its value, and what it was before.
type stored struct {
	value  []byte
	mod    int64
	before *stored
}

// Events are all writes that were carried out, in order.
func (c *Cluster) Events() []history.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// write carries out a write, or what is made of it. The caller holds the lock.
func (c *Cluster) write(key string, value []byte) error {
	c.writes++
	lose, refuse := c.Broken.Lose, c.Broken.Refuse
	if lose != nil && lose(c.writes) {
		c.revision++
		return nil
	}
	c.apply(key, value)
	if refuse != nil && refuse(c.writes) {
		return status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
	}
	return nil
}

func (c *Cluster) apply(key string, value []byte) {
	c.revision++
	before := c.keys[key]
	c.keys[key] = &stored{value: value, mod: c.revision, before: before}
	c.events = append(c.events, history.Event{Revision: c.revision, Key: key, Value: string(value)})
	if before != nil {
		before.before = nil
	}
}

// read gives a key as a read finds it, and the revision that the answer tells; nil if there is none. The caller holds
// the lock.
func (c *Cluster) read(key string, keysOnly bool) (kv *mvccpb.KeyValue, stale bool) {
	found := c.keys[key]
	c.reads++
	if s := c.Broken.Stale; found != nil && found.before != nil && s != nil && s(c.reads) {
		found, stale = found.before, true
	}
	if found == nil {
		return nil, false
	}
	kv = &mvccpb.KeyValue{Key: []byte(key), ModRevision: found.mod}
	if !keysOnly {
		kv.Value = found.value
	}
	return kv, stale
}

func (m *Member) header(revision int64) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{MemberId: m.id, Revision: revision}
}
