package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestAMeasurementFollowsItsWarmupWithoutAGap: requests are numbered on, so that every write is an insert, before and
// after, and the measurement does not wait for the last answers of the warm-up. One of these, which is answered last of
// all, does not make the measurement longer.
func TestAMeasurementFollowsItsWarmupWithoutAGap(t *testing.T) {
	const warm, total, held = 50, 100, 45
	const rate = 1000
	starts := Constant(rate)
	for name, o := range map[string]Options{
		"closed": {Warmup: &Pacer{Total: warm}, Pacer: Pacer{Total: total}},
		"open": {
			Warmup: &Pacer{Schedule: starts, Total: warm},
			Pacer:  NewOpenLoop(From{starts, warm, starts.Start(warm)}, total, 0),
		},
	} {
		o.Sink, o.Spec = new(kept), &spec.Spec{Clients: 4}
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
					w.Await(time.Second)
				case r.Number == warm+total-1:
					once.Do(func() { close(measuring) })
				case r.Number%10 == 3:
					return 0, errors.New("no")
				}
				return 0, nil
			}))
		})
		w := result.Warmup
		assert.Equal(t, [4]int{w.OK, w.Unknown, w.Failed + w.Abandoned, run.WarmedUp()}, [4]int{45, 5, 0, warm},
			"%s: outcomes of the warm-up", name)
		done, failed := run.Progress()
		assert.Equal(t, []int{len(written), len(o.records()), result.First, result.Failed, result.Errors["no"], done, failed},
			[]int{warm + total, total, warm, 10, 10, total, 10}, "%s: keys, records, the first, failed, progress", name)
		assert.That(t, result.Measured && result.Reason == "" && result.Took < time.Second, "%s: %+v", name, result)
		for i, record := range o.records() {
			assert.That(t, record.Done() && (record.Outcome == OK) != (i%10 == 3) && record.Start >= 0 &&
				record.End() <= result.Took && (name != "open" || record.Start == starts.Start(i)),
				"%s: record %d is %+v, the run took %v", name, i, record, result.Took)
		}
		assert.That(t, name != "open" || (result.Due == total && w.Took == starts.Start(warm)),
			"%d were due, the warm-up took %v", result.Due, w.Took)
	}
}

// TestAWarmupOfADuration keeps both clients of a member busy from their first requests until after the end of the
// warm-up: what that member is to get in the warm-up otherwise is left out.
func TestAWarmupOfADuration(t *testing.T) {
	const ms = time.Millisecond
	const length = 60 * ms
	for name, schedule := range schedules(1000) {
		loop := NewOpenLoop(schedule, 0, length)
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			o := options(50, 6).in(w)
			o.Endpoints = make([]string, 3)
			o.Warmup = &loop
			o.Pacer = NewOpenLoop(From{schedule, loop.Total, length}, 50, 0)
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
			want := loop.Total - (loop.Total/3 - 2)
			assert.Equal(t, []int{warm, result.Warmup.OK, result.Due, result.First}, []int{want, want, 50, loop.Total},
				"%s: sent and right in the warm-up, due, the first", name)
			assert.Equal(t, result.Warmup.Took, length, "%s: length of the warm-up", name)
			for i, record := range o.records() {
				assert.That(t, record.Outcome == OK && record.Start == schedule.Start(loop.Total+i)-length, "%s: record %d is %+v",
					name, i, record)
			}
		})
	}
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		o := options(1_000_000, 3).in(w)
		o.Warmup = &Pacer{Total: 1_000_000, Duration: length}
		o.Pacer = Pacer{Total: 1_000_000, Duration: length}
		result := NewRun(o).Attack(t.Context(), fake(func(context.Context, int, *Request) (int64, error) {
			w.Await(ms)
			return 0, nil
		}))
		right := slices.DeleteFunc(o.records(), func(r Record) bool { return r.Outcome != OK })
		assert.Equal(t, []int{result.Warmup.OK, result.First, len(right)}, []int{180, 180, 180},
			"right in the warm-up, the first, right after it")
		assert.Equal(t, [2]time.Duration{result.Warmup.Took, result.Took}, [2]time.Duration{length, length}, "lengths")
	})
}

func TestARunThatIsEndedDuringItsWarmup(t *testing.T) {
	for name, o := range map[string]Options{
		"closed": {Warmup: &Pacer{Total: 100}, Pacer: Pacer{Total: 10}},
		"open": {
			Warmup: &Pacer{Schedule: Constant(1), Total: 100},
			Pacer:  NewOpenLoop(From{Constant(1), 100, 100 * time.Second}, 10, 0),
		},
	} {
		o.Sink, o.Spec, o.Targeter = new(kept), &spec.Spec{Clients: 1}, options(10, 1).Targeter
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
		o.Warmup = &Pacer{Total: 200}
		result := NewRun(o).Attack(t.Context(), manyPerGoroutine{w, func(r *Request) {
			if r.Number < 200 {
				w.Busy(15 * ms)
			} else if r.Number == 210 {
				w.StopProcess(100 * ms)
			}
			w.Await(5 * ms)
		}})
		assert.Equal(t, result.Took, 95*ms+20*5*ms, "how long it takes")
		assert.Equal(t, result.Idle, new(time.Duration), "idle time")
		p := result.Pauses
		assert.That(t, p.Count == 1 && p.Sum == p.Longest && p.Longest > 90*ms && p.Longest <= 100*ms, "%+v", p)
	})
	var p Pauses
	for _, late := range []time.Duration{0, 3 * ms, LateAfter, 30 * ms, 150 * ms, -time.Second} {
		p.add(late)
	}
	assert.Equal(t, p, Pauses{150 * ms, 2, 180 * ms}, "pauses")
}
