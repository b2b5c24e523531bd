// Package keyvalue speaks with any service that keeps values by key over HTTP/1.1, as templates of its URLs describe.
package keyvalue

import (
	"slices"
	"strings"

	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/store"
)

// DefaultEndpoint is where a service on this machine is looked for that no endpoint was given of.
const DefaultEndpoint = "127.0.0.1:8080"

// Placeholder stands for the key in a template.
const Placeholder = "{key}"

// Protocol implements store.Protocol. Templates are the targets of requests with one Placeholder.
type Protocol struct {
	Secured  store.Security // for http1.ALPN; nil: connections are plain
	Put, Get string         // templates
	Written  []int          // the status codes of a put that succeeded
	Found    []int          // of a get that found the key
	Absent   []int          // of one that found none
}

func (p *Protocol) Traits() store.Traits {
	return store.Traits{Name: "HTTP/1.1", Security: p.Secured, Leaderless: true}
}

func (p *Protocol) NewConn(member string) store.Conn {
	c := &conn{Conn: http1.NewConn(), protocol: p}
	c.put, c.afterPut, _ = strings.Cut("PUT "+p.Put, Placeholder)
	c.get, c.afterGet, _ = strings.Cut("GET "+p.Get, Placeholder)
	c.afterPut += http1.Ending(member)
	c.afterGet += http1.Ending(member)
	return c
}

func (*Protocol) NewCall(owner store.Owner) store.Call { return &call{owner: owner} }

// conn implements store.Conn.
type conn struct {
	*http1.Conn
	protocol      *Protocol
	put, afterPut string
	get, afterGet string
}

// Start implements store.Conn: of requests there are Put and Get, and spec refuses loads of others.
func (c *conn) Start(room store.Call, r *store.Request, _ *[]byte) bool {
	if !c.CanStart() {
		return false
	}
	to := room.(*call)
	to.protocol, to.answer, to.visitor = c.protocol, store.Answer{}, nil
	if to.writes = r.Operation == store.Put && !r.Rehearse; to.writes {
		head := http1.AppendKey(append(c.Space(), c.put...), r.Key)
		head = append(http1.AppendEnd(head, c.afterPut, len(r.Head)+len(r.Value)), r.Head...)
		c.Conn.Start(to, head, r.Value, false)
		return true
	}
	if !r.Rehearse {
		to.key, to.visitor = r.Key, r.Visitor
	}
	head := http1.AppendKey(append(c.Space(), c.get...), r.Key)
	c.Conn.Start(to, http1.AppendEnd(head, c.afterGet, -1), nil, to.visitor != nil)
	return true
}

// call implements store.Call and http1.Owner.
type call struct {
	owner    store.Owner
	protocol *Protocol
	writes   bool
	key      []byte
	visitor  store.Visitor
	answer   store.Answer
}

func (c *call) Answered(a *http1.Answer, failure *store.Failure) {
	switch {
	case failure != nil:
	case c.writes && slices.Contains(c.protocol.Written, a.Status):
	case !c.writes && slices.Contains(c.protocol.Found, a.Status):
		c.answer.Keys, c.answer.Count = 1, 1
		if c.visitor != nil {
			c.visitor.Visit(c.key, a.Body, 0)
		}
	case !c.writes && slices.Contains(c.protocol.Absent, a.Status):
	default:
		failure = a.Failure()
	}
	if failure != nil {
		c.owner.Finished(nil, failure)
		return
	}
	c.owner.Finished(&c.answer, nil)
}
