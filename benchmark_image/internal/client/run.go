package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/transport"
	"containernet-env/benchmark_image/internal/world"
)

// run runs the benchmark that s describes and prints the report. It returns false when something failed; the
// error is only about printing the report.
func run(
	ctx context.Context, w world.World, s *spec.Spec, d display, secure spec.Securer, stdout, stderr io.Writer,
) (bool, error) {
	if d.output == "text" && s.Operation == spec.Range {
		name := map[string]string{spec.Linearizable: "linearizable", spec.Serializable: "serializable",
			spec.Relaxed: "default"}[s.Consistency]
		if _, err := fmt.Fprintf(stdout, "bench with %s range\n", name); err != nil {
			return false, runError{fmt.Errorf("print the report: %w", err)}
		}
	}
	if s.RunTimeout > 0 {
		// Not a deadline of the context: requests would see it a moment before the context is done, and would count as
		// failed.
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer w.AfterFunc(s.RunTimeout, func() {
			cancel(fmt.Errorf("the run timeout of %v was reached", s.RunTimeout))
		})()
	}
	result := measure(ctx, w, s, d, secure, stderr)
	problem := result.Problem()
	if problem != "" {
		fmt.Fprintf(stderr, "benchmark-client: %s\n", problem)
	}
	if note := result.Note(); note != "" {
		fmt.Fprintf(stderr, "benchmark-client: %s\n", note)
	}
	if result.Empty > 0 {
		fmt.Fprintf(stderr, "benchmark-client: %d of %d answers held no key\n", result.Empty, result.Done)
	}
	if kept := result.History; kept != nil && kept.Lost > 0 {
		fmt.Fprintf(stderr, "benchmark-client: the history lacks %d of %d operations: it could not be written fast enough\n",
			kept.Lost, kept.Lost+kept.Operations)
	}
	var err error
	if d.output == "json" {
		err = json.NewEncoder(stdout).Encode(result)
	} else {
		err = result.Text(stdout, report.TextOptions{Precise: d.precise, Sample: d.sample})
	}
	if err != nil {
		return false, runError{fmt.Errorf("print the report: %w", err)}
	}
	return problem == "", nil
}

func measure(ctx context.Context, w world.World, s *spec.Spec, d display, secure spec.Securer,
	stderr io.Writer) (result *report.Result) {
	result = &report.Result{Operation: string(s.Operation), Endpoints: s.Endpoints, Clients: s.Clients,
		Configured: s.Body()}
	result.Requests = s.Total
	fail := func(err error) *report.Result {
		result.Complete(load.Result{Reason: oneLine(err.Error())}, nil)
		return result
	}
	b := &benchmark{world: w, spec: s, id: 1 + w.Uint64()%keys.MaxRun, seconds: d.sample, result: result}
	if d.progress == "json" {
		defer b.showProgress(stderr)()
	}
	protocol, err := s.Protocol(secure)
	if err != nil {
		return fail(err)
	}
	if s.History {
		end, err := b.keepHistory(d.history)
		if err != nil {
			return fail(err)
		}
		defer func() { result.AddHistory(end()) }()
	}
	connections, err := transport.Open(ctx, protocol, transport.Options{
		Spec:        s,
		LostTimeout: s.LostTimeout(),
		Rehearsal:   rehearsal(s),
		Permit:      d.permit,
		World:       w,
	})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(err)
	}
	defer connections.Close()
	result.Connections = connections.Connections()
	if leader := connections.Leader; leader != "" {
		result.Leader = &leader
	}
	b.run(ctx, connections)
	if missing := connections.Unreachable; len(missing) > 0 {
		result.SetReason("not every member could be reached when the run started: " +
			oneLine(errors.Join(missing...).Error()))
	}
	if err := connections.LeaderLost; err != nil {
		result.SetReason("at the end requests did not go to the leader: " + oneLine(err.Error()))
	}
	for _, change := range connections.LeaderChanges {
		result.AddLeaderChange(change.At, change.Leader)
	}
	return result
}

// keepHistory has a history written to a new file; end completes it, and tells what it holds.
func (b *benchmark) keepHistory(path string) (end func() (history.Footer, error), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("keep a history: %w", err)
	}
	b.history = history.NewWriter(file, b.world.Now(), b.spec.Prefix, b.spec.KeySize)
	return func() (history.Footer, error) {
		footer, err := b.history.Close()
		return footer, errors.Join(err, file.Close())
	}, nil
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// now is the progress of the measurement.
func (b *benchmark) now() report.Progress {
	now := report.Progress{Total: int(b.total.Load())}
	if run := b.started.Load(); run != nil {
		now.Done, now.Errors = run.Progress()
		now.Warmup = run.WarmedUp()
		if began := run.BeganNs(); began > 0 {
			now.BeganNs = &began
		}
	}
	return now
}

const progressInterval = 100 * time.Millisecond

// showProgress writes a report.Progress line for each interval, and a last one when the returned function is
// called, which waits for it.
func (b *benchmark) showProgress(stderr io.Writer) (stop func()) {
	over := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		encoder := json.NewEncoder(stderr)
		for ended := false; !ended; {
			timer := b.world.NewTimer(progressInterval)
			select {
			case <-over:
				ended = true
			case <-timer.C:
			}
			timer.Stop()
			_ = encoder.Encode(b.now()) // there may be no reader: a measurement must not fail for its progress
		}
	})
	return func() {
		close(over)
		showing.Wait()
	}
}

// targeter gives what the requests do. promises is what the store acknowledges of their writes.
func targeter(s *spec.Spec, promises *load.Promises) load.Targeter {
	reads := &load.Reads{
		Span: store.Request{
			Limit:        s.Limit,
			Serializable: s.Consistency != spec.Linearizable,
			CountOnly:    s.CountOnly,
			KeysOnly:     s.KeysOnly,
		},
		Prefix:   s.Prefix,
		KeySize:  s.KeySize,
		Complete: s.KeysRequired(),
	}
	named := s.Operation == spec.Range && s.Named()
	var values *keys.Values // of the data set
	if s.Verify || !named {
		values = keys.NewValues(s.ValSize, s.Seed)
	}
	if s.Verify {
		reads.Verify = values
	}
	if named {
		reads.Span.Key, reads.Span.End = s.Span()
		reads.First, reads.Last = s.Known()
		return reads
	}
	reads.Order, reads.SpanKeys, reads.Space = order(s), s.SpanKeys, s.DistinctKeys()
	puts := &load.Puts{
		Prefix:   s.Prefix,
		KeySize:  s.KeySize,
		Order:    reads.Order,
		Values:   values,
		Txn:      s.Operation == spec.Txn,
		Unique:   s.Unique(),
		Promises: promises,
	}
	switch s.Operation {
	case spec.Range:
		return reads
	case spec.Mixed:
		reads.Promises = promises
		return &load.Mixed{Puts: puts, Reads: reads, Ratio: s.PutRatio,
			Draw: keys.NewDraw(s.DrawSeed(), keys.StreamKinds).At}
	}
	return puts
}

func order(s *spec.Spec) keys.Order {
	switch s.Order() {
	case spec.Uniform:
		return keys.NewUniform(s.DistinctKeys(), s.DrawSeed())
	case spec.Zipfian:
		return keys.NewZipfian(s.DistinctKeys(), s.ZipfExponent, s.DrawSeed())
	}
	return keys.NewOrder(s.DistinctKeys(), s.Order() == spec.Sequential, s.DrawSeed())
}

// rehearsal gives samples of what the load does: its first and its last key, each way. Permissions are for spans of
// keys.
func rehearsal(s *spec.Spec) (samples []store.Request) {
	serializable := s.Consistency != spec.Linearizable
	if s.Operation == spec.Range && s.Named() {
		key, end := s.Span()
		return []store.Request{{Operation: store.Scan, Key: key, End: end, Serializable: serializable}}
	}
	first := keys.Append([]byte(s.Prefix), 0, s.KeySize)
	last := keys.Append([]byte(s.Prefix), uint64(s.DistinctKeys()-1), s.KeySize)
	write, read := store.Put, store.Get
	if s.Operation == spec.Txn {
		write = store.Transaction
	}
	for _, key := range [][]byte{first, last} {
		if !s.Operation.Reads() || s.Operation == spec.Mixed && s.PutRatio > 0 {
			samples = append(samples, store.Request{Operation: write, Key: key})
		}
		if s.Operation.Reads() && s.SpanKeys <= 1 && (s.Operation != spec.Mixed || s.PutRatio < 1) {
			samples = append(samples, store.Request{Operation: read, Key: key, Serializable: serializable})
		}
	}
	if s.Operation.Reads() && s.SpanKeys > 1 {
		samples = append(samples, store.Request{Operation: store.Scan, Key: first, End: last, Serializable: serializable})
	}
	return samples
}

// benchmark runs one Spec: its warm-up and the measurement, in one run.
type benchmark struct {
	world   world.World
	spec    *spec.Spec
	result  *report.Result
	seconds bool            // the text report has a row for every second
	id      uint64          // of the run
	history *history.Writer // nil: none is kept

	total   atomic.Int64             // requests of the measurement; 0: not known
	started atomic.Pointer[load.Run] // nil: it has not
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
		b.total.Store(int64(total))
	}
	recorder := report.NewRecorder(b.plan(&options))
	options.Sink = recorder
	run := load.NewRun(options)
	b.started.Store(run)
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
	if s.Arrival == spec.Poisson {
		plan.Starts = options.Pacer.Schedule
	}
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
	tracked := 0 // keys whose acknowledged writes reads are held against
	if s.Operation == spec.Mixed && s.Verify {
		tracked = s.DistinctKeys()
	}
	promises := load.NewPromises(tracked)
	options = load.Options{
		Spec:     s,
		Targeter: targeter(s, promises),
		ID:       b.id,
		Promises: promises,
		History:  b.history,
		World:    b.world,
	}
	warms := s.WarmupRequests > 0 || s.WarmupDuration > 0
	if s.Rate == 0 {
		if warms {
			options.Warmup = new(closedLoop(s.WarmupRequests, s.WarmupDuration))
		}
		options.Pacer = closedLoop(s.Total, s.Duration)
		return options
	}
	var starts load.Schedule = load.Constant(s.Rate)
	if s.Arrival == spec.Poisson {
		starts = load.NewPoisson(s.Rate, keys.NewDraw(s.DrawSeed(), keys.StreamArrival).At)
	}
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
