package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestAMeasurementFollowsItsWarmupWithoutAGap: requests are numbered on, so that every write is an insert, before and
// after, and the measurement does not wait for the last answers of the warm-up.
func TestAMeasurementFollowsItsWarmupWithoutAGap(t *testing.T) {
	const warm, total, held = 50, 100, 45
	const rate = 1000
	starts := Constant(rate)
	for name, o := range map[string]Options{
		"closed": {Warmup: &Warmup{Pacer: Pacer{Total: warm}}, Pacer: Pacer{Total: total}},
		"open": {
			Warmup: &Warmup{Pacer: Pacer{Schedule: starts, Total: warm}, Requests: warm, Length: starts.Start(warm)},
			Pacer:  NewOpenLoop(From{starts, warm, starts.Start(warm)}, total, 0, total),
		},
	} {
		o.Sink, o.Clients = new(kept), 4
		o.Targeter = &Puts{KeySize: 4, Order: keys.NewOrder(warm+total, false, 1), Values: keys.NewValues(8, 0)}
		var mu sync.Mutex
		written := make(map[string]int)
		var once sync.Once
		var run *Run
		var result Result
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			run = NewRun(o.in(w))
			measuring := make(chan struct{})
			result = run.Attack(t.Context(), fake(func(ctx context.Context, _ int, r *Request) (int64, error) {
				w.Await(time.Millisecond)
				mu.Lock()
				written[string(r.Key)]++
				mu.Unlock()
				switch {
				case r.Number == held:
					<-measuring // where the measurement waits for the warm-up, nothing happens any more
				case r.Number == warm+total-1:
					once.Do(func() { close(measuring) })
				case r.Number%10 == 3:
					return 0, errors.New("no")
				}
				return 0, nil
			}))
		})
		if w := result.Warmup; !result.Measured || w.OK != 45 || w.Unknown != 5 || w.Failed+w.Abandoned != 0 ||
			run.WarmedUp() != warm {
			t.Errorf("%s: warm-up %+v", name, *w)
		}
		assert.That(t, len(written) == warm+total, "%s: %d keys were written", name, len(written))
		assert.That(t, result.First == warm && len(o.records()) == total && result.Failed == 10 &&
			result.Errors["no"] == 10 && result.Reason == "", "%s: %d records from %d on, %d failed: %v, reason %q", name,
			len(o.records()), result.First, result.Failed, result.Errors, result.Reason)
		for i, record := range o.records() {
			assert.That(t, record.Done() && record.OK() != (i%10 == 3) && record.Start >= 0 && record.End() <= result.Took,
				"%s: record %d is %+v, the run took %v", name, i, record, result.Took)
			assert.That(t, name != "open" || record.Start == starts.Start(i), "request %d of the measurement is due at %v",
				i, record.Start)
		}
		assert.That(t, name != "open" || (result.Due == total && result.Warmup.Took == starts.Start(warm)),
			"%d were due, the warm-up took %v", result.Due, result.Warmup.Took)
		done, failed := run.Progress()
		assert.That(t, done == total && failed == 10, "%s: the progress is %d, %d", name, done, failed)
	}
}

// TestTheRestOfAWarmupIsInNoTime: a request of the warm-up that is answered last of all does not make the measurement
// longer.
func TestTheRestOfAWarmupIsInNoTime(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		o := options(20, 2).in(w)
		o.Warmup = &Warmup{Pacer: Pacer{Total: 5}}
		result := NewRun(o).Attack(t.Context(), fake(func(_ context.Context, _ int, r *Request) (int64, error) {
			w.Await(time.Millisecond)
			if r.Number == 4 {
				w.Await(time.Second)
			}
			return 0, nil
		}))
		assert.That(t, result.Took == 20*time.Millisecond && result.Warmup.OK == 5 && o.records()[19].OK(),
			"the measurement took %v, warm-up %+v", result.Took, *result.Warmup)
	})
}

// TestAWarmupOfADuration keeps both clients of a member busy from their first requests until after the end of the
// warm-up: what that member is to get in the warm-up otherwise is left out.
func TestAWarmupOfADuration(t *testing.T) {
	const ms = time.Millisecond
	const length = 60 * ms
	for name, schedule := range schedules(1000) {
		loop := NewOpenLoop(schedule, 0, length, 1000)
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			o := options(50, 6).in(w)
			o.Members = 3
			o.Warmup = &Warmup{Pacer: loop, Requests: loop.Total, Length: length}
			o.Pacer = NewOpenLoop(From{schedule, loop.Total, length}, 50, 0, 50)
			warm := 0
			result := NewRun(o).Attack(t.Context(), fake(func(_ context.Context, client int, r *Request) (int64, error) {
				if r.Number < loop.Total {
					warm++
				}
				if r.Number == 2 || r.Number == 5 {
					w.Await(length + 20*ms)
				}
				return 0, nil
			}))
			if want := loop.Total - (loop.Total/3 - 2); warm != want || result.Warmup.OK != want {
				t.Errorf("%s: of %d requests of the warm-up %d were sent", name, loop.Total, warm)
			}
			assert.That(t, result.Due == 50 && result.First == loop.Total && result.Warmup.Took == length,
				"%s: %d were due from number %d on, the warm-up took %v", name, result.Due, result.First, result.Warmup.Took)
			for i, record := range o.records() {
				assert.That(t, record.OK() && record.Start == schedule.Start(loop.Total+i)-length, "%s: record %d is %+v",
					name, i, record)
			}
		})
	}
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		o := options(1_000_000, 3).in(w)
		o.Warmup = &Warmup{Pacer: Pacer{Total: 1_000_000, Duration: length}}
		o.Pacer = Pacer{Total: 1_000_000, Duration: length}
		result := NewRun(o).Attack(t.Context(), fake(func(context.Context, int, *Request) (int64, error) {
			w.Await(ms)
			return 0, nil
		}))
		ok := 0
		for _, record := range o.records() {
			if record.OK() {
				ok++
			}
		}
		assert.That(t, result.Warmup.OK == 180 && result.First == 180 && ok == 180 && result.Warmup.Took == length &&
			result.Took == length, "%d requests in the warm-up of %v, %d after it from number %d on in %v", result.Warmup.OK,
			result.Warmup.Took, ok, result.First, result.Took)
	})
}

// TestARunThatIsEndedDuringItsWarmup measures nothing.
func TestARunThatIsEndedDuringItsWarmup(t *testing.T) {
	for name, o := range map[string]Options{
		"closed": {Warmup: &Warmup{Pacer: Pacer{Total: 100}}, Pacer: Pacer{Total: 10}},
		"open": {
			Warmup: &Warmup{Pacer: Pacer{Schedule: Constant(1), Total: 100}, Requests: 100, Length: 100 * time.Second},
			Pacer:  NewOpenLoop(From{Constant(1), 100, 100 * time.Second}, 10, 0, 10),
		},
	} {
		o.Sink, o.Clients, o.Targeter = new(kept), 1, options(10, 1).Targeter
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			run := NewRun(o.in(w))
			result := run.Attack(t.Context(), fake(func(context.Context, int, *Request) (int64, error) {
				w.Await(time.Second)
				run.Stop("enough")
				return 0, ErrAbandoned
			}))
			want := (WarmupResult{Abandoned: 1, Took: time.Second})
			assert.That(t, !result.Measured && len(o.records()) == 0 && result.Reason == "enough" && *result.Warmup == want,
				"%s: %+v, warm-up %+v", name, result, *result.Warmup)
		})
	}
}

// TestWhatTheGeneratorHadToDo: pauses and idle times are those of the measurement alone.
func TestWhatTheGeneratorHadToDo(t *testing.T) {
	const ms = time.Millisecond
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		o := options(20, 2).in(w)
		o.Warmup = &Warmup{Pacer: Pacer{Total: 200}}
		result := NewRun(o).Attack(t.Context(), manyPerGoroutine{w, func(r *Request) {
			if r.Number < 200 {
				w.Busy(15 * ms)
			} else if r.Number == 210 {
				w.StopProcess(100 * ms)
			}
			w.Await(5 * ms)
		}})
		if want := 95*ms + 20*5*ms; result.Took != want || result.Idle == nil || *result.Idle != 0 {
			t.Errorf("idle for %v of %v", result.Idle, result.Took)
		}
		p := result.Pauses
		assert.That(t, p.Count == 1 && p.Sum == p.Longest && p.Longest > 90*ms && p.Longest <= 100*ms, "%+v", p)
	})
	var p Pauses
	for _, late := range []time.Duration{0, 3 * ms, LateAfter, 30 * ms, 150 * ms, -time.Second} {
		p.add(late)
	}
	wanted := (Pauses{150 * ms, 2, 180 * ms})
	assert.That(t, p == wanted, "%+v, want %+v", p, wanted)
}
