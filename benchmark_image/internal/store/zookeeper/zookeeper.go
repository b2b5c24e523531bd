// Package zookeeper speaks with ZooKeeper for a load: its wire protocol, over connections of which each is a session.
// No other package knows it, but for tests.
package zookeeper

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/zookeeper/jute"
)

// DefaultEndpoint is where a member on this machine serves clients unless it is configured otherwise.
const DefaultEndpoint = "127.0.0.1:2181"

// MaxValue is the largest value that fits into a packet with the longest key, in bytes: a member ends the connection on
// which it is sent a larger packet (jute.maxbuffer).
const MaxValue = 1_000_000

// sessionTimeout is after which silence members are to end a session. They hold it to between 2 and 20 of their ticks:
// with the default tick of 2 s that is at most 40 s.
const sessionTimeout = 30 * time.Second

// Protocol implements store.Protocol.
type Protocol struct {
	// FirstXid is the number of the first request of each connection; 0: 1. It is for tests.
	FirstXid int32

	chroot    string
	existence existenceCache
}

// New makes a protocol for keys that are znodes below the one with the path chroot; "": below the root. What it learns
// of keys serves all its connections.
func New(chroot string) *Protocol {
	return &Protocol{chroot: chroot, existence: existenceCache{written: make([]atomic.Uint64, bits/64)}}
}

func (p *Protocol) Traits() store.Traits {
	return store.Traits{Name: "ZooKeeper's protocol", Status: p.Status}
}

func (p *Protocol) NewConn(member string) store.Conn {
	c := &conn{protocol: p, id: store.MemberID(member), xid: max(p.FirstXid, 1), queue: make([]waiter, 16)}
	c.out = jute.AppendConnect(nil, int32(sessionTimeout.Milliseconds()))
	c.queued = uint64(len(c.out))
	return c
}

func (p *Protocol) NewCall(owner store.Owner) store.Call { return &call{owner: owner} }

// maxStatus bounds what a member says of its status, in bytes.
const maxStatus = 64 << 10

// Status is that of store.Traits: a member says who it is in answer to the word 'srvr', in place of the opening of
// a session. That word is the only one that members answer unless they are configured otherwise
// (4lw.commands.whitelist).
func (*Protocol) Status(connection net.Conn, member string) (store.Answer, error) {
	if _, err := io.WriteString(connection, "srvr"); err != nil {
		return store.Answer{}, fmt.Errorf("ask for its status: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(connection, maxStatus))
	if err != nil && len(text) == 0 {
		return store.Answer{}, fmt.Errorf("ask for its status: %w", err)
	}
	return parseStatus(string(text), store.MemberID(member))
}

// parseStatus reads an answer to 'srvr' of the member with that id.
func parseStatus(text string, id uint64) (store.Answer, error) {
	a := store.Answer{Member: id}
	if strings.Contains(text, "not currently serving requests") {
		return a, nil // it looks for a leader
	}
	mode := ""
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "Mode":
			mode = value
		case "Zxid":
			zxid, err := strconv.ParseUint(value, 0, 64)
			if err != nil {
				return store.Answer{}, fmt.Errorf("ask for its status: its zxid is %.40q", value)
			}
			a.Revision, a.Term = int64(zxid), zxid>>32
		}
	}
	switch mode {
	case "leader", "standalone":
		a.Leader = id
	case "follower", "observer", "read-only":
	default:
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		return store.Answer{}, fmt.Errorf("ask for its status: it answered %.100q to 'srvr', and not in which mode it is",
			first)
	}
	return a, nil
}

// call is a store.Call.
type call struct {
	owner  store.Owner
	answer store.Answer

	at      uint64 // number of its last request on the connection
	key     []byte // as are the next two, of the request
	head    []byte
	value   []byte
	visitor store.Visitor // of a read

	hash      uint64 // of the key, of a write
	operation jute.Operation
	second    bool // the first operation was for a znode that is there, or is not
}

// read reads the body of a good answer. A transaction has its error there.
func read(w *waiter, body []byte, hole int) (jute.Code, error) {
	switch w.step {
	case stepPut:
		operation := jute.Sync // of a cancelled one it is not known
		if w.call != nil {
			operation = w.call.operation
		} else if len(body) == jute.StatSize {
			operation = jute.SetData
		}
		return jute.OK, jute.CheckWritten(body, operation)
	case stepTransaction:
		return jute.ReadMulti(body)
	case stepSync, stepRefuse:
		return jute.OK, jute.CheckWritten(body, jute.Sync)
	case stepGet:
		data, mzxid, err := jute.ReadData(body, hole)
		if err == nil && w.call != nil && w.call.visitor != nil {
			w.call.visitor.Visit(w.call.key, data, mzxid)
		}
		return jute.OK, err
	}
	return jute.OK, nil
}

// answer takes the answer to a request of a call.
func (c *conn) answer(w *waiter, h *jute.Header, code jute.Code) {
	to := w.call
	a := &to.answer
	switch {
	case w.step == stepSync && (code == jute.OK || code == jute.NoNode):
		// The read follows. ZooKeeper does not look at the path of a sync. A proxy that carries it out as a read of its own
		// may have no node for the root: then it has synced, and that was the answer.
		return
	case w.step == stepSync:
		c.waiter(to.at).call = nil
	case w.step == stepRefuse:
		c.over(to)
		to.owner.Finished(nil, &store.Failure{Code: store.Unimplemented, Text: "ZooKeeper has no such request"})
		return
	case w.step == stepGet && (code == jute.OK || code == jute.NoNode):
		if code == jute.OK {
			a.Keys, a.Count = 1, 1
		}
		c.succeed(to)
		return
	case w.step == stepTransaction && (code == jute.OK || code == jute.NoNode):
		a.Succeeded, a.Revision, a.Term = code == jute.OK, h.Zxid, termOf(h.Zxid)
		if a.Succeeded {
			c.protocol.existence.wrote(to.hash, true)
		}
		c.succeed(to)
		return
	case w.step == stepPut && code == jute.OK:
		a.Revision, a.Term, a.SecondTry = h.Zxid, termOf(h.Zxid), to.second
		c.protocol.existence.wrote(to.hash, to.operation == jute.SetData)
		c.succeed(to)
		return
	case w.step == stepPut && !to.second && (code == jute.NodeExists || code == jute.NoNode):
		to.second, to.operation = true, jute.Create
		if code == jute.NodeExists {
			to.operation = jute.SetData
		}
		c.write(to, stepPut)
		return
	}
	c.over(to)
	to.owner.Finished(nil, code.Failure())
}

func (c *conn) succeed(to *call) {
	c.over(to)
	to.owner.Finished(&to.answer, nil)
}

// termOf is the number of the leader's election, which the upper half of each zxid has.
func termOf(zxid int64) uint64 { return uint64(zxid) >> 32 }

// existenceCache guesses whether the znode of a key exists, before a put asks for it: ZooKeeper has no write that takes
// both. Keys that were written through this protocol do. Of all others, the last one that was written tells. Any number
// of goroutines may use it.
type existenceCache struct {
	// written has a bit for each key that was written, by its hash. Several keys share a bit once there are many, so
	// that the last of its kind tells here, too.
	written []atomic.Uint64
	known   atomic.Bool // the last key with its bit set did not exist
	other   atomic.Bool // the last key without its bit did exist
}

// bits is how many there are: 1 MiB, of which only what is used takes memory. One key in a hundred shares its bit with
// another one when there are 80,000.
const bits = 1 << 23

// hash is FNV-1a.
func hash(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func (e *existenceCache) bit(hash uint64) (word *atomic.Uint64, mask uint64, written bool) {
	word, mask = &e.written[hash%bits/64], 1<<(hash%64)
	return word, mask, word.Load()&mask != 0
}

// exists is a guess.
func (e *existenceCache) exists(hash uint64) bool {
	if _, _, written := e.bit(hash); written {
		return !e.known.Load()
	}
	return e.other.Load()
}

// wrote takes that a put of a key succeeded, and whether it existed before.
func (e *existenceCache) wrote(hash uint64, existed bool) {
	word, mask, written := e.bit(hash)
	if written {
		learn(&e.known, !existed)
		return
	}
	word.Or(mask)
	learn(&e.other, existed)
}

// learn stores only what changes: a store takes the cache line from all others.
func learn(b *atomic.Bool, value bool) {
	if b.Load() != value {
		b.Store(value)
	}
}
