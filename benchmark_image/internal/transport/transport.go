// Package transport carries a load to the members of a store: one goroutine, the event loop, owns all connections and
// serves all clients. What goes over a connection is the business of a store.Protocol.
package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

// Options says which connections to open.
type Options struct {
	*spec.Spec
	LostTimeout time.Duration   // a load ends when no connection was ready for so long; 0: never
	Permit      Permit          // where connections may be opened to; nil: everywhere
	Rehearsal   []store.Request // what a user that may not do this is refused for, before a load is sent
	World       world.World
}

// slowed is a time of the transport's own, as much longer as everything else runs slower.
func (o *Options) slowed(d time.Duration) time.Duration { return d * time.Duration(max(o.Dilation, 1)) }

// LeaderChange is a move of the load to another member, because that one leads now.
type LeaderChange struct {
	At     time.Time
	Leader string
}

// Transport holds open connections; it implements load.Transport. One load is driven at a time.
type Transport struct {
	protocol    store.Protocol
	options     Options
	loop        *loop
	connections []*conn                   // all that were opened
	current     atomic.Pointer[[][]*conn] // those that requests go to, by member

	Leader      string  // the member that led when the connections were opened; empty if that is not known
	Unreachable []error // one for each member that had a connection not ready when the load started
	// The moves of the load, in order, and why requests go to another member than the leader, although they should follow
	// it; nil if they do not. Neither is valid while Drive runs.
	LeaderChanges []LeaderChange
	LeaderLost    error
}

// Open opens the connections: number j leads to member j mod n, and there is at least one to each. Request k goes to
// member k mod n. It waits until all are ready, at most for the dial timeout; members that are not by then are listed
// by Unreachable. It is an error if none is, if the leader is wanted and not found, if a member refuses a connection
// over TLS or is refused, or if the protocol's user cannot log in or may not do what Rehearsal has.
func Open(ctx context.Context, protocol store.Protocol, options Options) (*Transport, error) {
	t := &Transport{protocol: protocol, options: options}
	var err error
	if t.loop, err = newLoop(protocol, &t.options, options.RequestTimeout); err != nil {
		return nil, err
	}
	ctx, cancel := options.World.WithTimeout(ctx, options.DialTimeout)
	defer cancel()
	if err := t.open(ctx); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Transport) open(ctx context.Context) error {
	members := t.options.Members()
	if t.loop.traits.NeedsLogin {
		if err := login(ctx, t.protocol, &t.options); err != nil {
			return err
		}
	}
	if t.options.TargetLeader {
		leader, err := leadingMember(ctx, t.protocol, &t.options)
		if err != nil {
			return err
		}
		t.Leader, members = leader, []string{leader}
	}
	current := make([][]*conn, len(members))
	for j := range max(t.options.Conns, len(members)) {
		c, member := t.loop.newConn(members[j%len(members)]), j%len(members)
		t.connections, current[member] = append(t.connections, c), append(current[member], c)
	}
	t.current.Store(&current)
	t.loop.connectAll(t.connections)
	t.Unreachable = waitAll(ctx, t.loop.refused.Done(), t.connections)
	if err := context.Cause(t.loop.refused); err != nil {
		return err
	}
	if len(t.Unreachable) == len(members) {
		return fmt.Errorf("no member could be reached within %v: %w", t.options.DialTimeout, errors.Join(t.Unreachable...))
	}
	if err := t.checkPermissions(ctx, t.options.Rehearsal); err != nil {
		return err
	}
	if t.Leader == "" && !t.loop.traits.Leaderless && !t.options.Leaderless {
		// Only for the report: a cluster without a leader still answers serializable reads.
		if leader, err := findLeader(ctx, t.connections[:len(members)], false); err == nil && leader.itself != nil {
			t.Leader = leader.itself.member
		}
	}
	return nil
}

func (l *loop) connectAll(connections []*conn) {
	l.poller.post(func() {
		for _, c := range connections {
			c.connect()
		}
	})
}

// waitAll waits for all connections, at most until ctx ends or refused is closed, and returns one error for each member
// that failed.
func waitAll(ctx context.Context, refused <-chan struct{}, connections []*conn) []error {
	var byMember []error
	seen := make(map[string]bool)
	for _, c := range connections {
		if err := c.wait(ctx, refused); err != nil && !seen[c.member] {
			seen[c.member] = true
			byMember = append(byMember, err)
		}
	}
	return byMember
}

// target is the connection for a request. Clients that share one connection share one to every member: what they send
// together leaves together.
func (t *Transport) target(client, request int) *conn {
	members := *t.current.Load()
	connections := members[request%len(members)]
	return connections[client/len(members)%len(connections)]
}

// inTurn tells whether requests go to several members.
func (t *Transport) inTurn() bool { return len(*t.current.Load()) > 1 }

// Connections is the number of TCP connections that requests go to.
func (t *Transport) Connections() (n int) {
	for _, connections := range *t.current.Load() {
		n += len(connections)
	}
	return n
}

func (t *Transport) Close() { t.loop.close() }

// reason is why the loop has ended, once it has.
func (l *loop) reason() error {
	<-l.done.Done()
	return context.Cause(l.done)
}

// task is what a job does.
type task interface {
	// request is what to send; it is valid until the next call of the task of another job.
	request() *store.Request
	// Of these, one is called once for each submit: Finished by the protocol, or fail.
	store.Owner
	fail(failure *store.Failure)
}

// job is one request, or one after the other, on a connection.
type job struct {
	call     store.Call
	task     task
	conn     *conn
	link     *link // of a request that was started
	queued   bool
	deadline time.Duration
	login    int  // the login that it was started with
	renewed  bool // it was started again after a new login

	links [lists]struct{ before, after *job }
}

// Lists that a job can be in.
const (
	byDeadline = iota
	inQueue
	lists
)

// list is a doubly linked list of jobs: it needs no memory of its own.
type list struct {
	which       int
	first, last *job
}

func (l *list) append(j *job) { l.insert(l.last, j) }

// insert puts j behind another job; nil: at the front.
func (l *list) insert(before, j *job) {
	after := l.first
	if before != nil {
		after = before.links[l.which].after
		before.links[l.which].after = j
	} else {
		l.first = j
	}
	if after != nil {
		after.links[l.which].before = j
	} else {
		l.last = j
	}
	j.links[l.which].before, j.links[l.which].after = before, after
}

func (l *list) remove(j *job) {
	at := &j.links[l.which]
	if at.before != nil {
		at.before.links[l.which].after = at.after
	} else {
		l.first = at.after
	}
	if at.after != nil {
		at.after.links[l.which].before = at.before
	} else {
		l.last = at.before
	}
	at.before, at.after = nil, nil
}

// ended is for Finished of a task.
func (j *job) ended(well bool) {
	l := j.conn.loop
	j.link = nil
	l.deadlines.remove(j)
	if well && l.drive != nil {
		l.drive.downSince = 0
	}
}

// single is a request beside a load.
type single struct {
	job    job
	what   store.Request
	answer store.Answer
	done   chan *store.Failure // capacity 1
}

func (s *single) request() *store.Request { return &s.what }

func (s *single) Finished(answer *store.Answer, failure *store.Failure) {
	if s.job.ended(failure == nil); failure == nil {
		s.answer = *answer
	} else if s.job.renew(failure) {
		return
	}
	s.fail(failure)
}

func (s *single) fail(failure *store.Failure) { s.done <- failure }

// ask sends one request, unless ctx has ended, and waits for its answer, at most for the timeout.
func (c *conn) ask(ctx context.Context, what store.Request, timeout time.Duration) (answer store.Answer, err error) {
	one := &single{what: what, done: make(chan *store.Failure, 1)}
	one.job.task, one.job.call = one, c.loop.protocol.NewCall(one)
	if ctx.Err() == nil && !c.loop.poller.post(func() {
		if !c.submit(&one.job, timeout) {
			one.done <- c.failure()
		}
	}) {
		return answer, c.loop.reason()
	}
	var failure *store.Failure
	select {
	case failure = <-one.done:
	case <-c.loop.done.Done():
		return answer, c.loop.reason()
	case <-ctx.Done():
		// The deadline of the request ends it in the loop.
		failure = &store.Failure{Code: store.Canceled, Text: context.Cause(ctx).Error(), Unknown: true}
	}
	if failure != nil {
		return answer, c.describe(failure, timeout)
	}
	return one.answer, nil
}

// maxErrorText bounds the length of one error text in a report, in bytes.
const maxErrorText = 300

// describe gives a failure whose text is one line that names the member.
func (c *conn) describe(f *store.Failure, timeout time.Duration) *store.Failure {
	described := *f
	if f.Code == store.DeadlineExceeded && f.Text == "" {
		described.Text = fmt.Sprintf("no answer within %v", timeout)
	}
	if len(described.Text) > maxErrorText {
		described.Text = strings.ToValidUTF8(described.Text[:maxErrorText], "")
	}
	described.Text = fmt.Sprintf("%s: %v: %s", c.member, f.Code, described.Text)
	return &described
}
