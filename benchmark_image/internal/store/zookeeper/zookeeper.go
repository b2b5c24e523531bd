// Package zookeeper speaks with ZooKeeper for a load: its wire protocol, over connections of which each is a session.
// No other package knows it, but for tests.
package zookeeper

import (
	"bufio"
	"fmt"
	"io"
	"math"
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

// sessionTimeout is after which silence members end a session. They hold it to between 2 and 20 of their ticks: with
// the default tick of 2 s that is at most 40 s.
const sessionTimeout = 30 * time.Second

// Protocol implements store.Protocol.
type Protocol struct {
	// Timeout is after which silence members are to end a session. They may choose another one.
	Timeout time.Duration
	// FirstXid is the number of the first request of each connection; 0: 1. It is for tests.
	FirstXid int32

	chroot    string
	existence existenceCache
}

// New makes a protocol for keys that are znodes below the one with the path chroot; "": below the root. What it learns
// of keys serves all its connections.
func New(chroot string) *Protocol {
	return &Protocol{Timeout: sessionTimeout, chroot: chroot,
		existence: existenceCache{written: make([]atomic.Uint64, bits/64)}}
}

func (p *Protocol) Traits() store.Traits {
	return store.Traits{Name: "ZooKeeper's protocol", Status: p.Status}
}

func (p *Protocol) NewConn(member string) store.Conn {
	c := &conn{protocol: p, id: store.MemberID(member), xid: max(p.FirstXid, 1), queue: make([]waiter, 16)}
	c.out = jute.AppendConnect(nil, int32(min(p.Timeout.Milliseconds(), math.MaxInt32)))
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
