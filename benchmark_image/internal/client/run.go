package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"containernet-env/benchmark_image/internal/transport"
	"containernet-env/benchmark_image/internal/world"
)

// run runs the benchmark that s describes and prints the report. It returns false when something failed; the
// error is only about printing the report.
func run(ctx context.Context, w world.World, s *spec.Spec, d display, secure Securer, stdout, stderr io.Writer) (bool,
	error) {
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

func measure(ctx context.Context, w world.World, s *spec.Spec, d display, secure Securer,
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
		stop := showProgress(w, &b.progress, stderr)
		defer stop()
	}
	protocol, err := protocol(s, secure)
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
		Endpoints:      s.Members(),
		Conns:          s.Conns,
		TargetLeader:   s.TargetLeader,
		Leaderless:     s.Leaderless,
		DialTimeout:    s.DialTimeout,
		RequestTimeout: s.RequestTimeout,
		LostTimeout:    s.LostTimeout(),
		Rehearsal:      rehearsal(s),
		Permit:         d.permit,
		World:          w,
	})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(err)
	}
	defer connections.Close()
	result.Connections = connections.Connections()
	if leader := connections.Leader(); leader != "" {
		result.Leader = &leader
	}
	b.run(ctx, connections)
	if missing := connections.Unreachable(); len(missing) > 0 {
		result.SetReason("not every member could be reached when the run started: " +
			oneLine(errors.Join(missing...).Error()))
	}
	if err := connections.LeaderLost(); err != nil {
		result.SetReason("at the end requests did not go to the leader: " + oneLine(err.Error()))
	}
	for _, change := range connections.LeaderChanges() {
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

// progress is that of the measurement.
type progress struct {
	total atomic.Int64             // requests; 0: not known
	run   atomic.Pointer[load.Run] // nil: it has not started
}

func (p *progress) now() report.Progress {
	now := report.Progress{Total: int(p.total.Load())}
	if run := p.run.Load(); run != nil {
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
func showProgress(w world.World, p *progress, stderr io.Writer) (stop func()) {
	over := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		encoder := json.NewEncoder(stderr)
		for ended := false; !ended; {
			timer := w.NewTimer(progressInterval)
			select {
			case <-over:
				ended = true
			case <-timer.C:
			}
			timer.Stop()
			_ = encoder.Encode(p.now()) // there may be no reader: a measurement must not fail for its progress
		}
	})
	return func() {
		close(over)
		showing.Wait()
	}
}
