package client

import (
	"context"
	"math"
	"runtime"
	"time"

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
	seconds  bool // the text report has a row for every second
}

// run runs the warm-up, and then the measurement.
func (b *benchmark) run(ctx context.Context, transport load.Transport) {
	s := b.spec
	targets := targeter(s)
	measured, total := pacer(s, s.Total, s.Duration)
	b.setting.Requests = total
	b.progress.total.Store(int64(total))
	if s.WarmupRequests > 0 || s.WarmupDuration > 0 {
		pacer, _ := pacer(s, s.WarmupRequests, s.WarmupDuration)
		warmup := &report.Warmup{}
		run := load.NewRun(b.options(pacer, targets, warmup))
		b.progress.warm.Store(run)
		result := run.Attack(ctx, transport)
		warmup.TotalS = result.Took.Seconds()
		b.setting.Warmup = warmup
		if b.setting.Reason = result.Reason; result.Reason != "" {
			return
		}
		runtime.GC() // the warm-up's garbage is not collected during the measurement
	}
	b.setting.Recorder = report.NewRecorder(b.plan(measured))
	run := load.NewRun(b.options(measured, targets, b.setting.Recorder))
	b.progress.run.Store(run)
	result := run.Attack(ctx, transport)
	b.setting.Run, b.setting.Reason = &result, result.Reason
}

// plan is what is known of the measurement before it begins.
func (b *benchmark) plan(pacer load.Pacer) report.Plan {
	s := b.spec
	plan := report.Plan{
		Open: pacer.Planned(), Duration: s.Duration, Expected: s.Duration, Interval: s.TimelineInterval, Seconds: b.seconds,
	}
	if loop, open := pacer.(load.OpenLoop); open {
		plan.LastStart = loop.Last()
		plan.Expected = max(plan.Expected, plan.LastStart)
	}
	return plan
}

func (b *benchmark) options(pacer load.Pacer, targets load.Targeter, sink load.Sink) load.Options {
	s := b.spec
	return load.Options{
		Sink:         sink,
		Clients:      s.Clients,
		Targeter:     targets,
		Pacer:        pacer,
		RequireFound: requireFound(s),
		Stall:        s.StallTimeout,
	}
}

// countedAhead is up to how many requests a schedule is counted before it begins, which takes 20 ns for each.
const countedAhead = 10_000_000

// pacer gives a pacer and the number of its requests; 0 if only its duration is known.
func pacer(s *spec.Spec, total int, duration time.Duration) (load.Pacer, int) {
	if s.Rate == 0 {
		if duration > 0 {
			return load.ClosedLoop{Total: math.MaxInt, Duration: duration}, 0
		}
		return load.ClosedLoop{Total: total}, total
	}
	if s.Arrival == spec.Poisson {
		schedule := load.NewPoisson(s.Rate, keys.NewDraw(s.Seed, keys.StreamArrival).At)
		if duration > 0 && s.Rate*duration.Seconds() > countedAhead {
			return load.OpenLoop{Schedule: schedule, Total: math.MaxInt, Duration: duration}, 0
		}
		loop := load.NewOpenLoop(schedule, total, duration, math.MaxInt)
		return loop, loop.Total
	}
	loop := load.NewOpenLoop(load.Constant(s.Rate), total, duration, math.MaxInt)
	return loop, loop.Total
}
