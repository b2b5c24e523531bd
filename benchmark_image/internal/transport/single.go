package transport

import (
	"context"
	"errors"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

// single is a request beside a load.
type single struct {
	job    job
	what   store.Request
	answer store.Answer
	done   chan *store.Failure // capacity 1
}

// request implements task.
func (s *single) request() *store.Request { return &s.what }

// Finished implements task.
func (s *single) Finished(answer *store.Answer, failure *store.Failure) {
	if s.job.ended(failure == nil); failure == nil {
		s.answer = *answer
	} else if s.job.renew(failure) {
		return
	}
	s.fail(failure)
}

// fail implements task.
func (s *single) fail(failure *store.Failure) { s.done <- failure }

// ask sends one request and waits for its answer, at most for the timeout.
func (c *conn) ask(ctx context.Context, what store.Request, timeout time.Duration) (*single, error) {
	one := &single{what: what, done: make(chan *store.Failure, 1)}
	one.job.task, one.job.call = one, c.loop.protocol.NewCall(one)
	begun := c.loop.poller.post(func() {
		if !c.submit(&one.job, timeout) {
			one.done <- c.failure()
		}
	})
	if !begun {
		return nil, errors.New(c.loop.reason())
	}
	var failure *store.Failure
	select {
	case failure = <-one.done:
	case <-c.loop.done:
		return nil, errors.New(c.loop.reason())
	case <-ctx.Done():
		// The deadline of the request ends it in the loop.
		failure = &store.Failure{Code: store.Canceled, Text: context.Cause(ctx).Error(), Unknown: true}
	}
	if failure != nil {
		return nil, &askedError{failure.Code, describe(c.member, failure, timeout)}
	}
	return one, nil
}

// askedError is the outcome of a single request that failed.
type askedError struct {
	code store.Code
	text string
}

func (e *askedError) Error() string { return e.text }
