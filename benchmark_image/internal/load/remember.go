package load

import (
	"errors"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

// remember adds a request that has ended with err to the history.
func (r *Run) remember(request *Request, end time.Duration, err error) {
	to := r.options.History
	if to == nil {
		return
	}
	e := history.Entry{KeyNumber: request.keyNumber, Start: r.epoch}
	o := &e.Operation
	o.Client, o.Invoked, o.Completed = request.client, int64(request.actual), int64(end)
	o.Revision, o.Member = request.revision, request.member
	switch {
	case request.Kind != Range:
		o.Op, o.Value = history.Put, keys.ID{Run: request.run, Client: request.client, Number: request.Number}
		if request.Kind == Txn {
			o.Op = history.Txn
		}
	case request.Serializable:
		o.Op = history.SerializableGet
	default:
		o.Op = history.Get
	}
	if request.Kind == Range {
		o.Content, o.Value, o.ModRevision = request.found.content, request.found.writer, request.found.revision
	}
	switch outcome, _ := classify(err); {
	case err == nil:
		o.Outcome = history.OK
	case err == ErrCompareFailed:
		o.Outcome = history.Failed
	case errors.Is(err, ErrNotFound), errors.As(err, new(*WrongAnswerError)):
		o.Outcome = history.Wrong
	case outcome == Failed:
		o.Outcome = history.Failed
	default:
		o.Outcome = history.Unknown
	}
	to.Add(e)
}
