package client

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/transport"
)

// benchmark is one Spec under way: its warm-up and its steps, each of them a run of its own over the same
// connections.
type benchmark struct {
	spec     *spec.Spec
	setting  report.Setting
	parts    []report.Part
	asked    int // requests in all steps, as far as that is known
	progress progress
}

// run runs all steps; the first that ends early is the last.
func (b *benchmark) run(ctx context.Context, transport load.Transport) {
	s := b.spec
	steps := s.StepList()
	targets := targeter(s)
	var pacers []load.Pacer
	var totals []int
	for _, step := range steps {
		pacer, total := pacer(s, step, s.Total, s.Duration, s.MaxRequests())
		pacers, totals = append(pacers, pacer), append(totals, total)
		b.asked += total
	}
	b.progress.expect(b.asked)
	if s.WarmupRequests > 0 || s.WarmupDuration > 0 {
		pacer, _ := pacer(s, steps[0], s.WarmupRequests, s.WarmupDuration, spec.MaxTotal)
		limit := s.WarmupRequests
		if limit == 0 {
			limit = spec.MaxTotal
		}
		options := b.options(steps[0], pacer, targets, limit)
		warmup := checkRoom(load.NewRun(options).Attack(ctx, transport), options)
		b.setting.Warmup = &warmup
		if b.setting.Reason = warmup.Reason; warmup.Reason != "" {
			return
		}
		runtime.GC() // what the warm-up left is not collected during the measurement
	}
	for i, step := range steps {
		options := b.options(step, pacers[i], targets, s.MaxRequests())
		run := load.NewRun(options)
		b.progress.start(run)
		measured := checkRoom(run.Attack(ctx, transport), options)
		b.parts = append(b.parts, report.Part{Requests: totals[i], Clients: step.Clients, Rate: step.Rate, Run: measured})
		if b.setting.Reason = measured.Reason; measured.Reason != "" {
			return
		}
	}
}

// checkRoom adds the reason for the early end of a closed loop with a duration that had more requests than there is
// room for.
func checkRoom(result load.Result, options load.Options) load.Result {
	loop, closed := options.Pacer.(load.ClosedLoop)
	if closed && result.Reason == "" && result.Took < loop.Duration {
		result.Reason = fmt.Sprintf("%d requests, the most that one step may have, were sent before %v had passed", loop.Total, loop.Duration)
	}
	return result
}

func (b *benchmark) options(step spec.Step, pacer load.Pacer, targets load.Targeter, room int) load.Options {
	s := b.spec
	timeout := s.RequestTimeout
	// Later than the last deadline, also on a busy machine.
	stall := timeout + min(max(timeout/10, 100*time.Millisecond), time.Second)
	if step.Rate > 0 {
		// Where requests are rare, so are answers: of exponential distances, one in 10^8 is longer than 20 means.
		stall += time.Duration(20 / step.Rate * float64(time.Second))
	}
	return load.Options{
		Total:        room,
		Clients:      step.Clients,
		Targeter:     targets,
		Pacer:        pacer,
		RequireFound: requireFound(s),
		Stall:        stall,
	}
}

// pacer gives the pacer of one step and the number of its requests; 0 if only its duration is known.
func pacer(s *spec.Spec, step spec.Step, total int, duration time.Duration, limit int) (load.Pacer, int) {
	if step.Rate == 0 {
		if duration > 0 {
			return load.ClosedLoop{Total: limit, Duration: duration}, 0
		}
		return load.ClosedLoop{Total: total}, total
	}
	var schedule load.Schedule = load.Constant(step.Rate)
	if s.Arrival == spec.Poisson {
		most := total
		if duration > 0 {
			most = limit
		}
		schedule = load.NewPoisson(step.Rate, keys.NewDraw(s.Seed, keys.StreamArrival).At, most, duration)
	}
	loop := load.NewOpenLoop(schedule, total, duration, limit)
	return loop, loop.Total
}

// report computes the figures of what was measured.
func (b *benchmark) report(changes []transport.LeaderChange) *report.Result {
	asked := b.asked
	if asked == 0 && b.spec.Total > 0 {
		asked = int(math.Min(float64(b.spec.Total)*float64(len(b.spec.StepList())), spec.MaxTotal))
	}
	result := report.New(b.setting, asked, b.parts)
	if len(b.parts) == 0 {
		for _, step := range b.spec.StepList() {
			result.Clients = max(result.Clients, step.Clients)
		}
	}
	for _, change := range changes {
		result.AddLeaderChange(change.At, change.Leader, b.parts)
	}
	return result
}

// asked copies what a report records of a Spec.
func asked(s *spec.Spec) *report.Asked {
	a := &report.Asked{Target: "cluster", Seed: s.Seed, Verify: s.Verify}
	switch {
	case s.TargetLeader:
		a.Target = "leader"
	case s.TargetMember != "":
		a.Target = s.TargetMember
	}
	if s.Duration > 0 {
		seconds := s.Duration.Seconds()
		a.DurationS = &seconds
	} else {
		a.Total = &s.Total
	}
	if s.Rate > 0 {
		a.RatePerS = &s.Rate
	}
	if s.Rate > 0 || s.Steps.Kind == spec.StepRate {
		a.Arrival = &s.Arrival
	}
	if s.KeySize > 0 {
		space := s.DistinctKeys()
		a.KeySpace = &space
	}
	if s.Operation == spec.Range && s.Named() {
		end := s.End
		if s.FromKey {
			end = "\x00"
		}
		a.Key, a.EndRange, a.Prefix = &s.Key, &end, s.KeyIsPrefix
	} else {
		order := s.Order()
		a.KeyOrder = &order
	}
	if s.SpanKeys > 0 {
		a.SpanKeys = &s.SpanKeys
	}
	if s.Limit > 0 {
		a.Limit = &s.Limit
	}
	a.KeysOnly, a.CountOnly = s.KeysOnly, s.CountOnly
	if s.Operation == spec.Mixed {
		a.PutRatio = &s.PutRatio
	}
	return a
}
