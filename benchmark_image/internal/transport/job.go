package transport

import (
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
	if well {
		l.answered()
	}
}
