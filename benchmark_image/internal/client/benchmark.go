package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
)

// benchmark runs one Spec: its warm-up and the measurement, in one run.
type benchmark struct {
	spec     *spec.Spec
	setting  report.Setting
	progress progress
}

// run runs the warm-up, and the measurement right after it.
func (b *benchmark) run(ctx context.Context, transport load.Transport) {
	options, total := b.options()
	b.setting.Requests, b.setting.Kind = total, kinds(options.Targeter)
	b.progress.total.Store(int64(total))
	run := load.NewRun(options)
	b.progress.run.Store(run)
	result := checkRoom(run.Attack(ctx, transport), options)
	b.setting.Warmup, b.setting.Reason = result.Warmup, result.Reason
	if result.Measured {
		b.setting.Run = &result
	}
}

// checkRoom adds the reason for the early end of a closed loop with a duration that reached the largest number of
// requests.
func checkRoom(result load.Result, options load.Options) load.Result {
	loop, closed := options.Pacer.(load.ClosedLoop)
	if closed && result.Measured && result.Reason == "" && result.Took < loop.Duration {
		result.Reason = fmt.Sprintf("%d requests, the most that there may be, were sent before %v had passed", loop.Total, loop.Duration)
	}
	return result
}

// options gives those of the load, and the number of requests of the measurement; 0 if only its duration is known.
func (b *benchmark) options() (options load.Options, total int) {
	s := b.spec
	members := len(s.Members())
	if s.TargetLeader {
		members = 1
	}
	options = load.Options{
		Total:        s.MaxRequests(),
		Clients:      s.Clients,
		Members:      members,
		Targeter:     targeter(s),
		RequireFound: requireFound(s),
		Stall:        s.StallTimeout,
	}
	warms := s.WarmupRequests > 0 || s.WarmupDuration > 0
	if s.Rate == 0 {
		if warms {
			options.Warmup = &load.Warmup{Pacer: closedLoop(s.WarmupRequests, s.WarmupDuration, math.MaxInt)}
		}
		options.Pacer = closedLoop(s.Total, s.Duration, s.MaxRequests())
		return options, s.Total
	}
	first, begin := 0, time.Duration(0)
	if warms {
		options.Warmup = warmup(s)
		first, begin = options.Warmup.Requests, options.Warmup.Length
	}
	end := time.Duration(0)
	if s.Duration > 0 {
		end = begin + s.Duration
	}
	rest := load.From{Schedule: schedule(s, first+s.MaxRequests(), end), First: first, Begin: begin}
	loop := load.NewOpenLoop(rest, s.Total, s.Duration, s.MaxRequests())
	options.Pacer = loop
	return options, loop.Total
}

// closedLoop sends a total number of requests or, where there is a duration, at most limit.
func closedLoop(total int, duration time.Duration, limit int) load.ClosedLoop {
	if duration > 0 {
		total = limit
	}
	return load.ClosedLoop{Total: total, Duration: duration}
}

// warmup is the first part of an open loop's schedule.
func warmup(s *spec.Spec) *load.Warmup {
	if s.WarmupDuration > 0 {
		loop := load.NewOpenLoop(schedule(s, spec.MaxTotal, s.WarmupDuration), 0, s.WarmupDuration, spec.MaxTotal)
		return &load.Warmup{Pacer: loop, Requests: loop.Total, Length: s.WarmupDuration}
	}
	starts := schedule(s, s.WarmupRequests+1, 0)
	return &load.Warmup{
		Pacer: load.OpenLoop{Schedule: starts, Total: s.WarmupRequests}, Requests: s.WarmupRequests, Length: starts.Start(s.WarmupRequests),
	}
}

// schedule gives the schedule of an open loop up to a number of requests or, if it is not zero, an end.
func schedule(s *spec.Spec, requests int, end time.Duration) load.Schedule {
	if s.Arrival == spec.Poisson {
		return load.NewPoisson(s.Rate, keys.NewDraw(s.DrawSeed(), keys.StreamArrival).At, requests, end)
	}
	return load.Constant(s.Rate)
}
