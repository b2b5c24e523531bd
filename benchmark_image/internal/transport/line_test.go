package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// line is a protocol that has nothing of etcd's: one line for each request and each answer, in the same order, no
// opening.
type line struct{}

func (line) Name() string                         { return "lines" }
func (line) Security() store.Security             { return nil }
func (line) NeedsLogin() bool                     { return false }
func (line) NewConn(string) store.Conn            { return &lineConn{} }
func (line) NewCall(owner store.Owner) store.Call { return &lineCall{owner: owner} }
func (c *lineCall) Endpoint() (string, error)     { return c.endpoint, nil }
func (c *lineConn) Ready() bool                   { return true }
func (c *lineConn) Active() int                   { return len(c.pending) - c.cancelled }
func (c *lineConn) Answered() bool                { return c.answered }
func (c *lineConn) Closing() bool                 { return false }
func (c *lineConn) Output() []byte                { return c.out }
func (c *lineConn) Wrote(n int)                   { c.out = c.out[n:] }
func (c *lineConn) Waits() bool                   { return false }
func (c *lineConn) Leave(error)                   {}
func (c *lineConn) EOF() error                    { return errors.New("the member hung up") }
func (c *lineConn) Lost(reason string)            { c.lost = true; c.fail(reason) }
func (c *lineConn) Cancel(room store.Call) bool   { return c.forget(room.(*lineCall)) }
func (c *lineConn) say(format string, arguments ...any) {
	c.out = fmt.Appendf(c.out, format+"\n", arguments...)
}

type lineCall struct {
	owner    store.Owner
	request  store.Request
	answer   store.Answer
	endpoint string
}

type lineConn struct {
	in, out   []byte
	pending   []*lineCall // nil: cancelled
	cancelled int
	answered  bool
	lost      bool
}

func (c *lineConn) Start(room store.Call, r *store.Request, _ *[]byte) bool {
	if c.lost {
		return false
	}
	call := room.(*lineCall)
	call.request, call.answer = *r, store.Answer{}
	c.pending = append(c.pending, call)
	switch r.Operation {
	case store.Put:
		c.say("put %s %x", r.Key, r.Value)
	case store.Transaction:
		c.say("swap %s %x", r.Key, r.Value)
	case store.Get:
		c.say("get %s", r.Key)
	case store.Status:
		c.say("status")
	case store.Locate:
		c.say("locate %d", r.Leader)
	}
	return true
}

func (c *lineConn) forget(call *lineCall) bool {
	for i := range c.pending {
		if c.pending[i] == call {
			c.pending[i] = nil
			c.cancelled++
		}
	}
	return true
}

func (c *lineConn) fail(reason string) {
	lost := c.pending
	c.pending, c.cancelled = nil, 0
	for _, call := range lost {
		if call != nil {
			call.owner.Finished(nil, &store.Failure{Code: store.Unavailable, Text: reason, Unknown: true})
		}
	}
}

func (c *lineConn) Feed(b []byte) error {
	c.in = append(c.in, b...)
	for {
		text, rest, found := bytes.Cut(c.in, []byte("\n"))
		if !found {
			return nil
		}
		c.in = rest
		if len(c.pending) == 0 {
			return errors.New("an answer to nothing")
		}
		call := c.pending[0]
		c.pending, c.answered = c.pending[1:], true
		if call == nil {
			c.cancelled--
			continue
		}
		call.owner.Finished(&call.answer, call.read(string(text)))
	}
}

func (c *lineCall) read(text string) *store.Failure {
	switch c.request.Operation {
	case store.Transaction:
		c.answer.Succeeded = text == "done"
	case store.Status:
		_, _ = fmt.Sscan(text, &c.answer.Member, &c.answer.Leader)
	case store.Locate:
		c.endpoint = text
	case store.Get:
		var value []byte
		if _, err := fmt.Sscanf(text, "%x", &value); err != nil {
			return nil // there is no such key
		}
		c.answer.Keys, c.answer.Count = 1, 1
		if c.request.Visitor != nil {
			c.request.Visitor.Visit(c.request.Key, value, 0)
		}
	}
	if text == "full" {
		return &store.Failure{Code: store.ResourceExhausted, Text: "no space"}
	}
	return nil
}

// lineCluster is a store whose members speak lines. Member i has the number i+1.
type lineCluster struct {
	leader    atomic.Int64
	full      atomic.Bool
	silent    atomic.Bool
	requests  [3]atomic.Int64
	endpoints []string

	mu     sync.Mutex
	values map[string]string
}

func startLines(w *worldtest.World, members int) *lineCluster {
	s := &lineCluster{values: make(map[string]string)}
	s.leader.Store(1)
	for i := range members {
		s.endpoints = append(s.endpoints, w.Serve(func(c net.Conn) {
			for in := bufio.NewScanner(c); in.Scan(); {
				w.Until(func() bool { return !s.silent.Load() })
				if _, err := fmt.Fprintln(c, s.answer(i, strings.Fields(in.Text()))); err != nil {
					return
				}
			}
		}))
	}
	return s
}

func (s *lineCluster) answer(member int, words []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch words[0] {
	case "status":
		return fmt.Sprint(member+1, s.leader.Load())
	case "locate":
		return s.endpoints[s.leader.Load()-1]
	}
	s.requests[member].Add(1)
	switch {
	case words[0] == "get":
		return s.values[words[1]]
	case s.full.Load():
		return "full"
	case words[0] == "swap" && s.values[words[1]] != words[2]:
		return "other"
	}
	s.values[words[1]] = words[2]
	return "done"
}

// TestAnotherProtocol carries loads over a protocol that shares nothing with etcd's but the loop.
func TestAnotherProtocol(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		const total = 500
		cluster := startLines(w, 3)
		o := Options{Endpoints: cluster.endpoints[:1], Conns: 2, TargetLeader: true, DialTimeout: 5 * time.Second,
			RequestTimeout: time.Second}
		transport, err := openWith(t, w, line{}, o)
		if err != nil {
			t.Fatal(err)
		}
		attack := func(targeter load.Targeter) load.Result {
			o := puts(w, total, 20)
			o.Targeter, o.RequireFound = targeter, true
			return load.NewRun(o).Attack(t.Context(), transport)
		}
		order, values := keys.NewOrder(total, true, 0), keys.NewValues(8, 0)
		write := &load.Puts{KeySize: 4, Order: order, Values: values}
		rewrite := &load.Puts{KeySize: 4, Order: order, Values: values, Txn: true}
		read := &load.Reads{KeySize: 4, Order: order, Verify: values}
		if result := attack(rewrite); result.Failed != total || result.Errors[load.ErrCompareFailed.Error()] != total {
			t.Errorf("transactions on nothing: %d failed: %v", result.Failed, result.Errors)
		}
		for i, targeter := range []load.Targeter{write, rewrite, read} {
			if result := attack(targeter); result.Failed != 0 || result.Reason != "" {
				t.Errorf("load %d: %d failed: %v, reason %q", i, result.Failed, result.Errors, result.Reason)
			}
		}
		if result := attack(&load.Reads{KeySize: 4, Order: order, Verify: keys.NewValues(8, 1)}); result.Failed != total {
			t.Errorf("reads of other values: %d failed", result.Failed)
		}
		cluster.full.Store(true)
		if result := attack(write); result.Errors[cluster.endpoints[0]+": ResourceExhausted: no space"] != total {
			t.Errorf("a full store: %v", result.Errors)
		}
		cluster.full.Store(false)

		run, end := begin(t, puts(w, 1_000_000, 4), transport)
		cluster.leader.Store(3) // which only the cluster knows
		w.Until(func() bool { return cluster.requests[2].Load() > 100 })
		cluster.silent.Store(true)
		w.Until(func() bool { _, failed := run.Progress(); return failed > 0 })
		cluster.silent.Store(false)
		answered := cluster.requests[2].Load()
		w.Until(func() bool { return cluster.requests[2].Load() > answered+100 })
		result := end()
		for text := range result.Errors {
			if !strings.HasSuffix(text, ": DeadlineExceeded: no answer within 1s") {
				t.Errorf("an error that was not to be: %s", text)
			}
		}
		if transport.LeaderLost() != nil || len(transport.LeaderChanges()) != 1 || cluster.requests[1].Load() != 0 {
			t.Errorf("leader changes %v, leader lost: %v", transport.LeaderChanges(), transport.LeaderLost())
		}
	})
}
