package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
)

// benchmark runs one Spec: its warm-up and the measurement, over the same connections.
type benchmark struct {
	spec     *spec.Spec
	setting  report.Setting
	progress progress
	id       uint64 // of the run; the warm-up has the next one
	promises *load.Promises
	history  *history.Writer // nil: none is kept
}

// newID draws the number of a run: an even one, from 2 on.
func newID() uint64 { return 2 + 2*rand.Uint64N(keys.MaxRun/2-1) }

// run runs the warm-up, and then the measurement.
func (b *benchmark) run(ctx context.Context, transport load.Transport) {
	s := b.spec
	b.promises = promises(s)
	targets := targeter(s, b.promises)
	measured, total := pacer(s, s.Total, s.Duration, s.MaxRequests())
	b.setting.Requests = total
	b.progress.total.Store(int64(total))
	if s.WarmupRequests > 0 || s.WarmupDuration > 0 {
		limit := s.WarmupRequests
		if limit == 0 {
			limit = spec.MaxTotal
		}
		pacer, _ := pacer(s, s.WarmupRequests, s.WarmupDuration, limit)
		options := b.options(pacer, targets, limit)
		options.ID++
		run := load.NewRun(options)
		b.progress.warm.Store(run)
		warmup := checkRoom(run.Attack(ctx, transport), options)
		b.setting.Warmup = &warmup
		if b.setting.Reason = warmup.Reason; warmup.Reason != "" {
			return
		}
		runtime.GC() // the warm-up's garbage is not collected during the measurement
	}
	options := b.options(measured, targets, s.MaxRequests())
	run := load.NewRun(options)
	b.progress.run.Store(run)
	result := checkRoom(run.Attack(ctx, transport), options)
	b.setting.Run, b.setting.Reason = &result, result.Reason
}

// checkRoom adds the reason for the early end of a closed loop with a duration that reached the largest number of
// requests.
func checkRoom(result load.Result, options load.Options) load.Result {
	loop, closed := options.Pacer.(load.ClosedLoop)
	if closed && result.Reason == "" && result.Took < loop.Duration {
		result.Reason = fmt.Sprintf("%d requests, the most that there may be, were sent before %v had passed", loop.Total, loop.Duration)
	}
	return result
}

func (b *benchmark) options(pacer load.Pacer, targets load.Targeter, room int) load.Options {
	s := b.spec
	return load.Options{
		Total:        room,
		Clients:      s.Clients,
		Targeter:     targets,
		Pacer:        pacer,
		RequireFound: requireFound(s),
		Stall:        s.StallTimeout,
		ID:           b.id,
		Promises:     b.promises,
		History:      b.history,
	}
}

// pacer gives a pacer and the number of its requests; 0 if only its duration is known.
func pacer(s *spec.Spec, total int, duration time.Duration, limit int) (load.Pacer, int) {
	if s.Rate == 0 {
		if duration > 0 {
			return load.ClosedLoop{Total: limit, Duration: duration}, 0
		}
		return load.ClosedLoop{Total: total}, total
	}
	var schedule load.Schedule = load.Constant(s.Rate)
	if s.Arrival == spec.Poisson {
		schedule = load.NewPoisson(s.Rate, keys.NewDraw(s.Seed, keys.StreamArrival).At, limit, duration)
	}
	loop := load.NewOpenLoop(schedule, total, duration, limit)
	return loop, loop.Total
}
