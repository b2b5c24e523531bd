package direct

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"containernet-env/benchmark_image/internal/h2"
	"containernet-env/benchmark_image/internal/wire"
)

// call is a single call beside a load.
type call struct {
	job     job
	kind    wire.Call
	message []byte
	done    chan *h2.Failure // capacity 1
}

// encode implements task.
func (c *call) encode(array []byte) (kind wire.Call, head, tail []byte) {
	return c.kind, append(h2.AppendPrefix(array), c.message...), nil
}

// finished implements task.
func (c *call) finished(failure *h2.Failure) { c.done <- failure }

// call makes one call and waits for its answer, at most for the timeout.
func (c *conn) call(ctx context.Context, kind wire.Call, message []byte, timeout time.Duration) (wire.Answer, error) {
	reader, err := c.exchange(ctx, kind, message, timeout)
	if err != nil {
		return wire.Answer{}, err
	}
	return reader.Answer, nil
}

// exchange is call for an answer of which more is kept than its figures.
func (c *conn) exchange(ctx context.Context, kind wire.Call, message []byte, timeout time.Duration) (*wire.Reader, error) {
	one := &call{kind: kind, message: message, done: make(chan *h2.Failure, 1)}
	one.job.task, one.job.stream.Owner = one, &one.job
	begun := c.loop.poller.post(func() {
		if !c.submit(&one.job, timeout) {
			one.done <- c.failure()
		}
	})
	if !begun {
		return nil, errors.New(c.loop.reason())
	}
	var failure *h2.Failure
	select {
	case failure = <-one.done:
	case <-c.loop.done:
		return nil, errors.New(c.loop.reason())
	case <-ctx.Done():
		// The deadline of the call ends it in the loop.
		failure = &h2.Failure{Code: codes.Canceled, Text: context.Cause(ctx).Error(), Unknown: true}
	}
	if failure != nil {
		return nil, errors.New(describe(c.member, failure, timeout))
	}
	return &one.job.stream.Reader, nil
}
