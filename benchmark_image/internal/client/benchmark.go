package client

import (
	"context"
	"math"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/world"
)

// benchmark runs one Spec: its warm-up and the measurement, in one run.
type benchmark struct {
	world    world.World
	spec     *spec.Spec
	result   *report.Result
	progress progress
	seconds  bool            // the text report has a row for every second
	id       uint64          // of the run
	history  *history.Writer // nil: none is kept
}

// run runs the warm-up, and the measurement right after it, and completes the result.
func (b *benchmark) run(ctx context.Context, transport load.Transport) {
	options := b.options(ctx)
	if ctx.Err() != nil {
		b.result.Complete(load.Result{Reason: context.Cause(ctx).Error()}, nil)
		return
	}
	if total := options.Pacer.Total; total < math.MaxInt { // else only the duration is known
		b.result.Requests = total
		b.progress.total.Store(int64(total))
	}
	recorder := report.NewRecorder(b.plan(&options))
	options.Sink = recorder
	run := load.NewRun(options)
	b.progress.run.Store(run)
	b.result.Complete(run.Attack(ctx, transport), recorder)
}

// plan is what is known of the measurement before it begins.
func (b *benchmark) plan(options *load.Options) report.Plan {
	s := b.spec
	plan := report.Plan{
		Rate: s.Rate, Duration: s.Duration,
		Interval: s.TimelineInterval, Seconds: b.seconds,
	}
	if !options.Pacer.Planned() {
		return plan
	}
	plan.LastStart = b.lastStart(options.Pacer)
	if mixed, isMixed := options.Targeter.(*load.Mixed); isMixed {
		first := 0
		if options.Warmup != nil {
			first = options.Warmup.Total
		}
		plan.Kind = func(number int) load.Kind { return mixed.Kind(first + number) }
	}
	return plan
}

// lastStart is the last intended start of the measurement. Where to compute it would mean to compute millions before
// it, it is a time that the last start is before, but for one schedule in 10^6, and that is at most 0.2 % of the
// schedule later.
func (b *benchmark) lastStart(loop load.Pacer) time.Duration {
	s := b.spec
	if s.Arrival == spec.Poisson && s.Total > countedAhead {
		n := float64(s.Total)
		return spec.Seconds((n + 5*math.Sqrt(n)) / s.Rate) // the sum of n intervals has a standard deviation of sqrt(n)/rate
	}
	return loop.Last()
}

// options gives those of the load, which are not complete when ctx has ended.
func (b *benchmark) options(ctx context.Context) (options load.Options) {
	s := b.spec
	members := len(s.Members())
	if s.TargetLeader {
		members = 1
	}
	tracked := 0 // keys whose acknowledged writes reads are held against
	if s.Operation == spec.Mixed && s.Verify {
		tracked = s.DistinctKeys()
	}
	promises := load.NewPromises(tracked)
	options = load.Options{
		Clients:      s.Clients,
		Members:      members,
		Targeter:     targeter(s, promises),
		RequireFound: requireFound(s),
		Stall:        s.StallTimeout,
		Start:        time.Duration(s.StartNs),
		ID:           b.id,
		Promises:     promises,
		History:      b.history,
		World:        b.world,
	}
	warms := s.WarmupRequests > 0 || s.WarmupDuration > 0
	if s.Rate == 0 {
		if warms {
			options.Warmup = new(closedLoop(s.WarmupRequests, s.WarmupDuration))
		}
		options.Pacer = closedLoop(s.Total, s.Duration)
		return options
	}
	starts := schedule(s)
	if warms {
		if countAhead(ctx, s, starts); ctx.Err() != nil {
			return options
		}
		options.Warmup = new(load.NewOpenLoop(starts, s.WarmupRequests, s.WarmupDuration))
		starts = options.Warmup.Rest()
	}
	if s.Arrival == spec.Poisson && s.Rate*s.Duration.Seconds() > countedAhead {
		options.Pacer = load.Pacer{Schedule: starts, Total: math.MaxInt, Duration: s.Duration}
	} else {
		options.Pacer = load.NewOpenLoop(starts, s.Total, s.Duration)
	}
	return options
}

// countedAhead is up to how many requests of a Poisson schedule are computed before the measurement, which takes 20 ns
// for each. Those of a warm-up always are, for the measurement's first request has the number after them.
const countedAhead = 10_000_000

// countAhead computes the starts of a warm-up, in steps of 20 ms or less, so that ctx can end it: the schedule
// remembers how far it got.
func countAhead(ctx context.Context, s *spec.Spec, starts load.Schedule) {
	length := max(s.WarmupDuration, spec.Seconds(float64(s.WarmupRequests)/s.Rate))
	step := spec.Seconds(countedAhead / 10 / s.Rate)
	for at := step; at < length && ctx.Err() == nil; at += step {
		starts.Due(at)
	}
}

// closedLoop sends a total number of requests or, where there is a duration, as many as there is time for.
func closedLoop(total int, duration time.Duration) load.Pacer {
	if duration > 0 {
		total = math.MaxInt
	}
	return load.Pacer{Total: total, Duration: duration}
}

// schedule gives the schedule of an open loop, with its warm-up.
func schedule(s *spec.Spec) load.Schedule {
	if s.Arrival == spec.Poisson {
		return load.NewPoisson(s.Rate, keys.NewDraw(s.DrawSeed(), keys.StreamArrival).At)
	}
	return load.Constant(s.Rate)
}
