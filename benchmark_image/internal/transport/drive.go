package transport

import (
	"context"
	"fmt"
	"time"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
)

// pauseAfterLoss is how long clients of a lost connection wait before their next request, which would fail
// at once: they would use up the requests that are left within moments, while others carry on.
const pauseAfterLoss = 100 * time.Millisecond

// drive is a load that the loop carries.
type drive struct {
	run       *load.Run
	transport *Transport
	clients   []client
	live      int // clients that are not finished
	over      bool
	done      chan struct{}

	downSince time.Duration // when no connection was ready any more; 0: one is, or has answered since
}

// client is one of the clients of a load.
type client struct {
	job     job
	drive   *drive
	number  int
	current *load.Request // under way; nil: there is none
	paused  bool          // its connection is lost
	wrong   error         // what is wrong with the keys and values of the answer
}

func newDrive(t *Transport, clients int, run *load.Run) *drive {
	d := &drive{run: run, transport: t, clients: make([]client, clients), live: clients, done: make(chan struct{})}
	for i := range d.clients {
		c := &d.clients[i]
		c.drive, c.number = d, i
		c.job.task, c.job.call = c, t.loop.protocol.NewCall(c)
	}
	return d
}

func (d *drive) begin(l *loop) {
	l.drive = d
	d.run.NoteIdle(0)
	if l.readyConns == 0 {
		l.noteDown()
	}
	for i := range d.clients {
		if !d.over {
			d.clients[i].next()
		}
	}
}

// abandon cuts off what is under way.
func (d *drive) abandon(l *loop) {
	if d.over {
		return
	}
	d.over = true
	for i := range d.clients {
		c := &d.clients[i]
		if c.current != nil {
			err := load.ErrNotSent
			if l.withdraw(&c.job) {
				err = load.ErrAbandoned
			}
			d.run.Done(c.current, 0, err)
		}
		c.paused = false
	}
	d.end(l)
}

func (d *drive) end(l *loop) {
	d.over = true
	l.drive = nil
	close(d.done)
}

func (c *client) request() *store.Request {
	c.wrong = nil
	if c.current.Checked() {
		c.current.Visitor = c
	}
	return &c.current.Request
}

func (c *client) Visit(key, value []byte, revision int64) {
	if c.wrong == nil {
		c.wrong = c.current.Check(key, value, revision)
	}
}

// judge tells what is wrong with the answer that has been read.
func (c *client) judge(answer *store.Answer) error {
	if c.wrong == nil {
		c.wrong = c.current.CheckCounts(answer.Keys, answer.Count, answer.More)
	}
	refused := c.current.Kind == load.Txn && !answer.Succeeded
	if refused {
		c.wrong = load.ErrCompareFailed
	}
	err := c.drive.run.CheckRevision(c.current, answer.Revision, answer.Member, !refused)
	if c.wrong == nil {
		c.wrong = err
	}
	return c.wrong
}

func (c *client) Finished(answer *store.Answer, failure *store.Failure) {
	if c.job.ended(failure == nil); failure != nil {
		if !c.job.renew(failure) {
			c.fail(failure)
		}
		return
	}
	if answer.SecondTry {
		c.drive.run.NoteSecondTry(c.current)
	}
	c.drive.run.Done(c.current, answer.Count, c.judge(answer))
	c.next()
}

func (c *client) fail(failure *store.Failure) {
	c.record(failure)
	if failure.Code != store.Unavailable || !c.pause() {
		c.next()
	}
}

func (c *client) record(failure *store.Failure) {
	c.drive.run.Done(c.current, 0, c.job.conn.describe(failure, c.drive.transport.options.RequestTimeout))
}

func (c *client) next() {
	d := c.drive
	for {
		c.paused, c.current = false, nil
		request, more := d.run.Ask(c.number)
		switch {
		case !more:
			if d.live--; d.live == 0 && !d.over {
				d.end(d.transport.loop)
			}
			return
		case request == nil: // its start is yet to come
			return
		}
		c.current = request
		target := d.transport.target(c.number, request.Number)
		if target.submit(&c.job, d.transport.options.RequestTimeout) {
			return
		}
		c.job.conn = target
		c.record(target.failure())
		if c.pause() {
			return
		}
	}
}

// pause holds the client back if its connection cannot be used. Where requests go to several members, it goes on as
// long as there is a connection to one of them.
func (c *client) pause() bool {
	d, conn := c.drive, c.job.conn
	if !conn.failing || d.transport.inTurn() && conn.loop.readyConns > 0 {
		return false
	}
	c.paused, c.current = true, nil
	conn.loop.after(conn.loop.options.slowed(pauseAfterLoss), func() {
		if c.paused {
			c.next()
		}
	})
	return true
}

// nextStart is when the first client that waits for the intended start of its request is to send it; 0: none waits.
func (l *loop) nextStart() time.Duration {
	if l.drive == nil {
		return 0
	}
	return l.drive.run.NextStart()
}

// startClients lets the clients go on whose requests are to start now.
func (l *loop) startClients() {
	for start := l.nextStart(); start != 0 && start <= l.now(); start = l.nextStart() {
		l.drive.clients[l.drive.run.Wake()].next()
	}
}

// resume wakes the clients that pause because of a connection that is ready again.
func (l *loop) resume(c *conn) {
	if l.drive == nil {
		return
	}
	inTurn := l.drive.transport.inTurn()
	for i := range l.drive.clients {
		if p := &l.drive.clients[i]; p.paused && (p.job.conn == c || inTurn) {
			p.next()
		}
		if l.drive == nil {
			return
		}
	}
}

// noteDown ends a run when no connection was ready for the time that is allowed. Connections that open and close again
// without an answer do not count as ready.
func (l *loop) noteDown() {
	d := l.drive
	if d == nil || d.transport.options.LostTimeout == 0 || d.downSince != 0 || l.readyConns > 0 {
		return
	}
	since := l.now()
	d.downSince = since
	limit := d.transport.options.LostTimeout
	l.after(limit, func() { d.checkDown(l, since, limit) })
}

func (d *drive) checkDown(l *loop, since, limit time.Duration) {
	switch {
	case d.over || d.downSince != since:
	case l.readyConns == 0:
		d.run.Stop(fmt.Sprintf("no member could be reached for %v", limit))
	default:
		// It may be opening and closing: look again.
		l.after(firstPause, func() { d.checkDown(l, since, limit) })
	}
}

func (t *Transport) Drive(ctx context.Context, clients int, run *load.Run) {
	if t.options.TargetLeader {
		defer t.follow(ctx)()
	}
	d := newDrive(t, clients, run)
	if !t.loop.poller.post(func() { d.begin(t.loop) }) {
		run.Stop(t.loop.reason().Error())
		return
	}
	forget := context.AfterFunc(ctx, func() {
		t.loop.poller.post(func() { d.abandon(t.loop) })
	})
	defer forget()
	select {
	case <-d.done:
	case <-t.loop.done.Done():
		run.Stop(t.loop.reason().Error())
	}
}
