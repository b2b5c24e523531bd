// Package etcd speaks with etcd for a load: gRPC over HTTP/2, and the few calls of etcd's API that a load consists of.
// No other package knows these, but for tests.
package etcd

import (
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"containernet-env/benchmark_image/internal/h2"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd/wire"
)

// DefaultEndpoint is where a member on this machine serves clients unless it is configured otherwise.
const DefaultEndpoint = "127.0.0.1:2379"

// ALPN is what members must agree to speak over TLS: gRPC is spoken over HTTP/2 alone.
const ALPN = "h2"

// Protocol implements store.Protocol.
type Protocol struct {
	Secured store.Security // for ALPN; nil: connections are plain
	User    *User          // nil: there is none
}

func (p Protocol) Traits() store.Traits {
	return store.Traits{Name: "HTTP/2", Security: p.Secured, NeedsLogin: p.User != nil}
}

func (p Protocol) NewConn(member string) store.Conn {
	return &conn{Conn: h2.NewConn(member, wire.Methods[:], h2.Options{Secure: p.Secured != nil}), user: p.User}
}

func (p Protocol) NewCall(owner store.Owner) store.Call {
	c := &call{owner: owner, user: p.User, secure: p.Secured != nil}
	c.stream.Owner = c
	return c
}

// conn implements store.Conn.
type conn struct {
	*h2.Conn
	user  *User
	token *string // that requests carry
}

// Start implements store.Conn. A large value is sent from where it is.
func (c *conn) Start(room store.Call, r *store.Request, scratch *[]byte) bool {
	if !c.CanStart() {
		return false
	}
	if c.user != nil {
		c.bring(c.user.token.Load())
	}
	to := room.(*call)
	method, head, tail := wire.Range, h2.AppendPrefix((*scratch)[:0]), []byte(nil)
	switch r.Operation {
	case store.Put:
		method, head, tail = wire.Put, wire.AppendPutHead(head, r.Key, r.Head, len(r.Value)), r.Value
	case store.Get, store.Scan:
		head, to.reader.Visitor = wire.AppendRange(head, r), r.Visitor
	case store.Transaction:
		method, head, tail = wire.Txn, wire.AppendRewriteHead(head, r.Key, r.Head, len(r.Value)), r.Value
	case store.Status:
		method = wire.Status
	case store.Locate:
		method, to.wanted = wire.MemberList, r.Leader
	case store.Login:
		method, head = wire.Authenticate, wire.AppendAuthenticate(head, to.user.Name, to.user.Password)
	}
	if r.Rehearse {
		method, head, tail = wire.Txn, wire.AppendRehearsal(h2.AppendPrefix((*scratch)[:0]), r), nil
	}
	to.operation = r.Operation
	to.reader.Reset(method)
	c.Conn.Start(&to.stream, int(method), head, tail)
	*scratch = head
	return true
}

// bring lets requests from now on carry the user's token, which changes with each login.
func (c *conn) bring(token *string) {
	if token != c.token { // before the first login there is none
		c.token = token
		c.SetToken(*token)
	}
}

func (c *conn) Cancel(room store.Call) (unknown bool) { return c.Conn.Cancel(&room.(*call).stream) }

// call is a store.Call, and implements h2.Owner.
type call struct {
	owner     store.Owner
	stream    h2.Stream
	reader    wire.Reader
	user      *User
	secure    bool
	operation store.Operation
	wanted    uint64 // the member that Locate is for
}

func (c *call) Feed(b []byte, last bool) error {
	if err := c.reader.Feed(b); err != nil || !last {
		return err
	}
	return c.reader.End()
}

func (c *call) Finished(_ *h2.Stream, f *store.Failure) {
	if f == nil {
		c.succeeded()
		return
	}
	f.Unknown = f.Unknown && !(f.Answered && refused(f.Code, f.Text))
	f.LoggedOut = c.user != nil && f.Answered && expired(f.Code, f.Text)
	c.owner.Finished(nil, f)
}

func (c *call) succeeded() {
	switch c.operation {
	case store.Login:
		token := c.reader.Token
		if token == "" {
			c.owner.Finished(nil, &store.Failure{Code: store.Internal, Text: "the answer to a login holds no token"})
			return
		}
		c.user.token.Store(&token)
	case store.Locate:
		endpoint, err := advertised(c.reader.Members, c.wanted, c.secure)
		if err != nil {
			c.owner.Finished(nil, &store.Failure{Code: store.NotFound, Text: err.Error()})
			return
		}
		c.reader.Answer.Endpoint = endpoint
	}
	c.owner.Finished(&c.reader.Answer, nil)
}

// didNotHappen are the codes with which etcd refuses a request before it has any effect.
const didNotHappen = 1<<store.InvalidArgument | 1<<store.NotFound | 1<<store.AlreadyExists | 1<<store.PermissionDenied |
	1<<store.FailedPrecondition | 1<<store.OutOfRange | 1<<store.Unimplemented | 1<<store.Unauthenticated

// refused tells whether a member that answers a request with this code and text says that it did not carry it out. It
// must not be used for what a client made of the loss of an answer. ResourceExhausted is both: 'too many requests'
// comes before a request is proposed, and 'database space exceeded' also after it was applied (etcd's
// server/etcdserver/v3_server.go, and quotaApplierV3 in apply/apply.go).
func refused(code store.Code, text string) bool {
	if code == store.ResourceExhausted {
		return strings.Contains(text, "too many requests")
	}
	return didNotHappen>>code&1 == 1
}

// advertised is the host:port at which the member with that id says that clients reach it, with TLS (secure) or
// without.
func advertised(list []wire.Member, id uint64, secure bool) (string, error) {
	scheme, with := "http", "without"
	if secure {
		scheme, with = "https", "with"
	}
	for _, member := range list {
		if member.ID != id {
			continue
		}
		for _, address := range member.ClientURLs {
			if parsed, err := url.Parse(address); err == nil && parsed.Scheme == scheme && parsed.Host != "" {
				return parsed.Host, nil
			}
		}
		return "", fmt.Errorf("the leader %s advertises no address for clients %s TLS: %v", member.Name, with,
			member.ClientURLs)
	}
	return "", fmt.Errorf("the leader (member id %x) is not in the member list", id)
}

// User is who all connections of a protocol log in as.
type User struct {
	Name, Password string

	token atomic.Pointer[string] // of the latest login; nil: there was none
}

// expired tells whether a member that answers a request with this code and text wants another token: the one it was
// sent has ended (etcd: --auth-token-ttl; also when the member was started again), or users and roles have changed
// since.
func expired(code store.Code, text string) bool {
	return code == store.Unauthenticated && strings.Contains(text, "invalid auth token") ||
		code == store.InvalidArgument && strings.Contains(text, "revision of auth store is old")
}
