package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

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
		return answer, errors.New(c.loop.reason())
	}
	var failure *store.Failure
	select {
	case failure = <-one.done:
	case <-c.loop.done:
		return answer, errors.New(c.loop.reason())
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
