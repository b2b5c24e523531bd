// Package consul speaks with Consul's agents for a load: HTTP/1.1, and the few endpoints of its API that a load
// consists of. No other package knows these.
package consul

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/store"
)

// DefaultEndpoint is where an agent on this machine serves clients unless it is configured otherwise.
const DefaultEndpoint = "127.0.0.1:8500"

// Protocol implements store.Protocol.
type Protocol struct {
	Secured store.Security // for http1.ALPN; nil: connections are plain
	Token   string         // of visible ASCII, which every request carries; empty: requests carry none
	// Default lets reads that are not linearizable be of Consul's default consistency, instead of stale.
	Default bool
}

func (p Protocol) Traits() store.Traits { return store.Traits{Name: "HTTP/1.1", Security: p.Secured} }

func (p Protocol) NewConn(member string) store.Conn {
	relaxed := "?raw&stale"
	if p.Default {
		relaxed = "?raw"
	}
	ending := http1.Ending(member)
	if p.Token != "" {
		ending += "X-Consul-Token: " + p.Token + "\r\n"
	}
	return &conn{
		Conn: http1.NewConn(index), ending: ending, strict: "?raw&consistent" + ending, relaxed: relaxed + ending,
	}
}

func (Protocol) NewCall(owner store.Owner) store.Call { return &call{owner: owner} }

// index is the header with the index of Consul's log at which the key was last written: KVS.Get in
// agent/consul/kvs_endpoint.go sets it for a single key that exists. Of one that does not, it is another one.
const index = "x-consul-index"

// conn implements store.Conn.
type conn struct {
	*http1.Conn
	ending, strict, relaxed string
	self                    uint64 // the member; 0: it is not known yet
}

func (c *conn) Start(room store.Call, r *store.Request, _ *[]byte) bool {
	if !c.CanStart() {
		return false
	}
	to := room.(*call)
	to.conn, to.operation, to.rehearses, to.answer = c, r.Operation, r.Rehearse, store.Answer{}
	switch {
	case r.Rehearse:
		to.operation = store.Locate
		c.ask(to, leaderPath)
	case r.Operation == store.Put:
		head := http1.AppendKey(append(c.Space(), "PUT /v1/kv/"...), r.Key)
		head = append(http1.AppendEnd(head, c.ending, len(r.Head)+len(r.Value)), r.Head...)
		c.Conn.Start(to, head, r.Value, true)
	case r.Operation == store.Get:
		to.key, to.visitor = r.Key, r.Visitor
		head := http1.AppendKey(append(c.Space(), "GET /v1/kv/"...), r.Key)
		if r.Serializable {
			head = append(head, c.relaxed...)
		} else {
			head = append(head, c.strict...)
		}
		c.Conn.Start(to, append(head, '\r', '\n'), nil, r.Visitor != nil)
	case r.Operation == store.Transaction:
		c.Conn.Start(to, appendRewrite(c.Space(), c.ending, r), nil, true)
	case r.Operation == store.Status && c.self == 0:
		c.ask(to, selfPath)
	case r.Operation == store.Status, r.Operation == store.Locate:
		c.ask(to, leaderPath)
	default: // ranges of several keys, and logins
		to.operation = store.Login
		c.ask(to, leaderPath)
	}
	return true
}

const (
	selfPath   = "GET /v1/agent/self"
	leaderPath = "GET /v1/status/leader"
)

func (c *conn) ask(to *call, what string) {
	c.Conn.Start(to, http1.AppendEnd(append(c.Space(), what...), c.ending, -1), nil, true)
}

// call is a store.Call, and implements http1.Owner.
type call struct {
	owner     store.Owner
	conn      *conn
	operation store.Operation
	rehearses bool // it tells nothing but whether connections are let in
	key       []byte
	visitor   store.Visitor
	answer    store.Answer
	leader    string
}

func (c *call) Answered(a *http1.Answer, failure *store.Failure) {
	if failure == nil {
		failure = c.take(a)
	}
	switch {
	case failure != nil:
		c.owner.Finished(nil, failure)
	case c.operation == store.Status && c.answer.Member == 0:
		// The member has said who it is; who leads is another request.
		if c.answer.Member = c.conn.self; !c.conn.CanStart() {
			c.owner.Finished(nil, &store.Failure{Code: store.Unavailable, Text: "the member closes the connection"})
			return
		}
		c.conn.ask(c, leaderPath)
	default:
		c.owner.Finished(&c.answer, nil)
	}
}

func (c *call) take(a *http1.Answer) *store.Failure {
	switch {
	case c.operation == store.Get && (a.Status == 200 || a.Status == 404):
		return c.takeValue(a)
	case c.operation == store.Transaction && a.Status == 409 && bytes.Contains(a.Body, []byte(notThere)):
		return nil // Succeeded is false
	case a.Status != 200:
		return problem(a)
	}
	switch c.operation {
	case store.Put:
		if string(bytes.TrimSpace(a.Body)) != "true" {
			return &store.Failure{Code: store.Internal, Text: "another answer to a put: " + a.Text(), Unknown: true}
		}
	case store.Transaction:
		c.answer.Succeeded, c.answer.Revision = true, lastIndex(a.Body)
	case store.Status:
		if c.conn.self == 0 {
			return c.takeSelf(a)
		}
		c.answer.Member = c.conn.self
		return c.takeLeader(a)
	case store.Locate:
		if failure := c.takeLeader(a); failure != nil || c.rehearses {
			return failure
		}
		return &store.Failure{Code: store.NotFound, Text: fmt.Sprintf("the leader %s is none of the endpoints, and Consul "+
			"does not tell where clients reach it", c.leader)}
	default:
		return &store.Failure{Code: store.Unimplemented, Text: "Consul has no such request"}
	}
	return nil
}

// takeValue reads the answer to a Get: with 'raw', its body is the value.
func (c *call) takeValue(a *http1.Answer) *store.Failure {
	revision, err := strconv.ParseInt(string(a.Headers[0]), 10, 64)
	if err != nil {
		return &store.Failure{Code: store.Internal, Text: "an answer without an index: is this Consul? " + a.Text()}
	}
	if a.Status == 404 {
		return nil
	}
	c.answer.Keys, c.answer.Count = 1, 1
	if c.visitor != nil {
		c.visitor.Visit(c.key, a.Body, revision)
	}
	return nil
}

// takeSelf reads who the member is: servers know each other by the addresses of their RPC.
func (c *call) takeSelf(a *http1.Answer) *store.Failure {
	var self struct {
		Member struct {
			Addr string
			Tags map[string]string
		}
	}
	if err := json.Unmarshal(a.Body, &self); err != nil || self.Member.Addr == "" || self.Member.Tags["port"] == "" {
		return &store.Failure{Code: store.Internal, Text: "the member does not tell its address: is it a server of Consul? " +
			a.Text()}
	}
	c.conn.self = store.MemberID(net.JoinHostPort(self.Member.Addr, self.Member.Tags["port"]))
	return nil
}

func (c *call) takeLeader(a *http1.Answer) *store.Failure {
	if err := json.Unmarshal(a.Body, &c.leader); err != nil {
		return &store.Failure{Code: store.Internal, Text: "the member does not tell who leads: " + a.Text()}
	}
	if c.leader != "" {
		c.answer.Leader = store.MemberID(c.leader)
	}
	return nil
}

// refusals are the errors after which nothing was changed: there was no leader to ask ('always safe to retry', says
// canRetry in agent/consul/rpc.go), it could not be reached, or the contacted one does not lead (hashicorp/raft's
// ErrNotLeader and ErrLeadershipTransferInProgress, not ErrLeadershipLost).
var refusals = []string{"No cluster leader", "Raft leader not found in server lookup mapping",
	"rpc error getting client", "node is not the leader", "leadership transfer in progress"}

// problem is what an answer means that tells of no success.
func problem(a *http1.Answer) *store.Failure {
	failure := a.Failure()
	if a.Status != 500 {
		return failure
	}
	// Whatever goes wrong behind an agent is this status: a leader that is lost, and requests to it that time out.
	failure.Code = store.Unavailable
	for _, text := range refusals {
		if strings.Contains(failure.Text, text) {
			failure.Unknown = false
		}
	}
	return failure
}

// The parts of a transaction that writes a key if it exists: 'get' of a key that is not there rolls it back. Its answer
// has the old value.
const (
	whichKey = `[{"KV":{"Verb":"get","Key":"`
	setKey   = `"}},{"KV":{"Verb":"set","Key":"`
	setValue = `","Value":"`
	setEnd   = `"}}]`
)

// notThere is in the answer to a transaction that found no key.
const notThere = "doesn't exist"

func appendRewrite(to []byte, ending string, r *store.Request) []byte {
	key, value := len(appendJSON(to, r.Key))-len(to), base64.StdEncoding.EncodedLen(len(r.Head)+len(r.Value))
	size := len(whichKey) + len(setKey) + len(setValue) + len(setEnd) + 2*key + value
	to = http1.AppendEnd(append(to, "PUT /v1/txn"...), ending, size)
	to = appendJSON(append(to, whichKey...), r.Key)
	to = appendJSON(append(to, setKey...), r.Key)
	to = appendBase64(append(to, setValue...), r.Head, r.Value)
	return append(to, setEnd...)
}

// appendBase64 appends head and tail as one value.
func appendBase64(to, head, tail []byte) []byte {
	whole := len(head) / 3 * 3
	to = base64.StdEncoding.AppendEncode(to, head[:whole])
	var seam [3]byte
	n := copy(seam[:], head[whole:])
	if n > 0 {
		taken := copy(seam[n:], tail)
		to, tail = base64.StdEncoding.AppendEncode(to, seam[:n+taken]), tail[taken:]
	}
	return base64.StdEncoding.AppendEncode(to, tail)
}

// appendJSON appends a key, which is Unicode text, as the inside of a JSON string.
func appendJSON(to, key []byte) []byte {
	for _, c := range key {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ':
			const hex = "0123456789abcdef"
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			to = append(to, c)
		}
	}
	return to
}

// lastIndex is at what index of the log a transaction was carried out: that of the last of its results; 0: it tells
// none. No text in the answer can look like the field's name, because quotes within texts are escaped.
func lastIndex(body []byte) int64 {
	const field = `"ModifyIndex":`
	at := bytes.LastIndex(body, []byte(field))
	if at < 0 {
		return 0
	}
	digits := bytes.TrimLeft(body[at+len(field):], " ")
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		end++
	}
	revision, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
