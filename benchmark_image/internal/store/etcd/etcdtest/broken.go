package etcdtest

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Broken makes a cluster break its promises. Each function gets the number of a write or a read, from 1, and tells
// whether that one is treated badly; nil: none is. It must be set before the load.
type Broken struct {
	Lose      func(write int) bool // it is acknowledged, at a revision of its own, and never carried out
	Stale     func(read int) bool  // it is answered from before the last write of the key
	Twice     func(write int) bool // it is refused, but carried out, and once more after the next write of the key
	Revisions bool                 // answers to stale reads tell the revision of the present
	Frozen    bool                 // a lost write has no revision of its own
}

// Event is a write that the store carried out.
type Event struct {
	Revision int64
	Key      string
	Value    []byte
}

// stored is a key with its value, and what it was before.
type stored struct {
	value  []byte
	mod    int64
	before *stored
	again  []byte // written once more after the next write
}

// Events are all writes that were carried out, in order.
func (c *Cluster) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Event(nil), c.events...)
}

// write carries out a write, or what is made of it. The caller holds the lock.
func (c *Cluster) write(key string, value []byte) error {
	c.writes++
	lose, twice := c.Broken.Lose, c.Broken.Twice
	if lose != nil && lose(c.writes) {
		if !c.Broken.Frozen {
			c.revision++
		}
		return nil
	}
	retried := c.apply(key, value)
	if retried != nil {
		c.apply(key, retried)
	}
	if twice != nil && twice(c.writes) {
		c.keys[key].again = value
		return status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
	}
	return nil
}

func (c *Cluster) apply(key string, value []byte) (again []byte) {
	c.revision++
	before := c.keys[key]
	c.keys[key] = &stored{value: value, mod: c.revision, before: before}
	c.events = append(c.events, Event{c.revision, key, value})
	if before == nil {
		return nil
	}
	again, before.before, before.again = before.again, nil, nil
	return again
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

// header is that of an answer at a revision.
func (m *Member) header(revision int64) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{MemberId: m.id, Revision: revision}
}
