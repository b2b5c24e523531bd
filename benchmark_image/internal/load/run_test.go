package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

func (o Options) in(w *worldtest.World) Options {
	o.World = w
	return o
}

// fake is a transport whose answers a function gives.
type fake func(ctx context.Context, client int, r *Request) (int64, error)

func (f fake) Drive(ctx context.Context, clients int, run *Run) {
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for {
				r, more := next(ctx, run, client)
				if !more {
					return
				}
				found, err := f(ctx, client, r)
				run.Done(r, found, err)
			}
		})
	}
	running.Wait()
}

// next waits until a client may send its next request; false when there is no more.
func next(ctx context.Context, run *Run, client int) (*Request, bool) {
	for {
		request, more := run.Ask(client)
		if request != nil || !more {
			return request, more
		}
		timer := run.world.NewTimer(run.slots[client].request.start - run.elapsed())
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func options(total, clients int) Options {
	return Options{
		Spec: &spec.Spec{Clients: clients}, Pacer: Pacer{Total: total}, Sink: new(kept), World: world.Real(),
		Targeter: &Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: keys.NewValues(8, 0)},
	}
}

// kept is a Sink that keeps every record, by the number of its request.
type kept []Record

func (*kept) Begin(time.Time) {}

func (k *kept) Add(number int, outcome Record) {
	*k = append(*k, make([]Record, max(number+1-len(*k), 0))...)
	(*k)[number] = outcome
}

// records are what a run with these options left.
func (o Options) records() []Record { return *o.Sink.(*kept) }

func TestARunMayBeStoppedBeforeItBegins(t *testing.T) {
	o := options(10, 1)
	run := NewRun(o)
	run.Stop("not at all")
	result := run.Attack(t.Context(), fake(func(context.Context, int, *Request) (int64, error) { return 0, nil }))
	assert.That(t, result.Reason == "not at all" && len(o.records()) == 0, "reason %q, %+v", result.Reason, o.records())
}

// TestLoadsWithOneStartBeginTogether: what becomes ready at different times starts at the same moment of the clock, by
// its schedule to the nanosecond; what is ready only after that moment does not begin.
func TestLoadsWithOneStartBeginTogether(t *testing.T) {
	const ms = time.Millisecond
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		start := w.Now() + 100*ms
		answer := fake(func(context.Context, int, *Request) (int64, error) {
			w.Await(ms)
			return 1, nil
		})
		var loads sync.WaitGroup
		for _, ready := range []time.Duration{0, 60 * ms, 100*ms + 1} {
			loads.Go(func() {
				w.Await(ready)
				o := options(20, 1).in(w)
				o.Pacer, o.StartNs = NewOpenLoop(Constant(100), 20, 0), int64(start)
				result := NewRun(o).Attack(t.Context(), answer)
				if ready > 100*ms {
					late := strings.HasPrefix(result.Reason, "it was ready ")
					assert.That(t, late && !result.Measured && len(o.records()) == 0, "measured %v, %q",
						result.Measured, result.Reason)
					return
				}
				assert.That(t, result.BeganNs == int64(start), "began %d ns after the start",
					result.BeganNs-int64(start))
				for number, record := range o.records() {
					assert.That(t, record.Start == time.Duration(number)*10*ms, "%d starts at %v", number, record.Start)
				}
			})
		}
		loads.Wait()
	})
}

func TestALoadThatWaitsForItsStartMayBeEnded(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := options(10, 1).in(w)
		o.StartNs = int64(w.Now() + time.Hour)
		w.After(time.Second, func() { cancel(errors.New("enough")) })
		result := NewRun(o).Attack(ctx, fake(func(context.Context, int, *Request) (int64, error) { return 1, nil }))
		assert.That(t, result.Reason == "enough" && !result.Measured && len(o.records()) == 0, "%+v", result)
	})
}

// TestStalls: a run ends exactly when no request, or none of a kind, has succeeded for as long as it may take; answers
// to the other kind do not keep it going. A single failure of a rare kind is none, and a stop of the process does not
// count.
func TestStalls(t *testing.T) {
	const ms = time.Millisecond
	mixed := func(draw func(uint64) float64) func(*Options) {
		return func(o *Options) {
			o.Targeter = &Mixed{Puts: o.Targeter.(*Puts), Ratio: 0.5, Draw: draw,
				Reads: &Reads{KeySize: 4, Order: keys.NewOrder(100, true, 0)}}
		}
	}
	half := mixed(keys.NewDraw(1, keys.StreamKinds).At)
	for name, c := range map[string]struct {
		change func(*Options)
		takes  time.Duration
		fails  func(*Request) bool
		stop   time.Duration // of the process, 5 ms after the start
		reason string
		ends   time.Duration // or when what is under way then is answered
	}{
		"all fail": {nil, 5 * ms, func(r *Request) bool { return r.Number >= 10 }, 0, "no request succeeded for 50ms",
			75 * ms},
		"puts fail": {half, ms, func(r *Request) bool { return r.Kind == Put && r.Number >= 20 }, 0,
			"no put succeeded for 50ms", 60 * ms},
		"reads fail": {half, ms, func(r *Request) bool { return r.Kind == Range && r.Number >= 20 }, 0,
			"no range succeeded for 50ms", 60 * ms},
		"a rare kind": {mixed(func(n uint64) float64 { return min(float64(n), 0.9) }), ms,
			func(r *Request) bool { return r.Kind == Put }, 0, "", 100 * ms},
		"a stop": {nil, 10 * ms, func(*Request) bool { return false }, 200 * ms, "", 1195 * ms},
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			o := options(200, 2).in(w)
			if o.StallTimeout = 50 * ms; c.change != nil {
				c.change(&o)
			}
			if c.stop > 0 {
				w.After(5*ms, func() { w.StopProcess(c.stop) })
			}
			result := NewRun(o).Attack(t.Context(), fake(func(ctx context.Context, _ int, r *Request) (int64, error) {
				if w.Await(c.takes); c.fails(r) {
					return 0, errors.New("no")
				}
				return 1, nil
			}))
			assert.That(t, result.Reason == c.reason && result.Took >= c.ends && result.Took <= c.ends+2*c.takes,
				"%s: after %v the reason is %q, %d failed", name, result.Took, result.Reason, result.Failed)
		})
	}
}

func TestErrorTextsAreBounded(t *testing.T) {
	result := NewRun(options(100, 1)).Attack(t.Context(), fake(func(_ context.Context, _ int, r *Request) (int64, error) {
		return 0, fmt.Errorf("error %d", r.Number)
	}))
	assert.That(t, len(result.Errors) == maxErrors+1 && result.Errors[otherErrors] == 100-maxErrors,
		"%d texts, %d others", len(result.Errors), result.Errors[otherErrors])
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome Outcome
		code    store.Code
	}{
		{nil, OK, 0},
		{errors.New("says nothing"), Unknown, store.Unknown},
		{&store.Failure{Code: 4, Unknown: true}, Unknown, 4},
		{&store.Failure{Code: 4}, Failed, 4},
		{&store.Failure{Code: 200, Unknown: true}, Unknown, 200},
		{fmt.Errorf("wrapped: %w", &store.Failure{Code: 3}), Failed, 3},
		{ErrNotFound, Failed, store.Check},
	} {
		outcome, code := classify(c.err)
		assert.That(t, outcome == c.outcome && code == c.code, "%+v: outcome %d, code %v", c.err, outcome, code)
	}
}
