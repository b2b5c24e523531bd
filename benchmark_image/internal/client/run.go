package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/etcd"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
)

// run measures what s asks for and prints the report. It returns false when something failed; the error
// is only about printing the report.
func run(ctx context.Context, s *spec.Spec, d display, stdout, stderr io.Writer) (bool, error) {
	if d.output == "text" && s.Operation == spec.Range {
		name := map[string]string{spec.Linearizable: "linearizable", spec.Serializable: "serializable"}[s.Consistency]
		if _, err := fmt.Fprintf(stdout, "bench with %s range\n", name); err != nil {
			return false, printError{fmt.Errorf("print the report: %w", err)}
		}
	}
	if s.RunTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.RunTimeout, fmt.Errorf("the run timeout of %v was reached", s.RunTimeout))
		defer cancel()
	}
	result := measure(ctx, s, d, stderr)
	problem := result.Problem()
	if problem != "" {
		fmt.Fprintf(stderr, "benchmark-client: %s\n", problem)
	}
	if result.Empty > 0 {
		fmt.Fprintf(stderr, "benchmark-client: %d of %d answers held no key\n", result.Empty, result.Done)
	}
	if err := print(result, d, stdout); err != nil {
		return false, printError{fmt.Errorf("print the report: %w", err)}
	}
	return problem == "", nil
}

func measure(ctx context.Context, s *spec.Spec, d display, stderr io.Writer) *report.Result {
	setting := report.Setting{
		Operation: string(s.Operation),
		Requests:  s.Total,
		Clients:   s.Clients,
		Endpoints: s.Endpoints,
	}
	transport, err := etcd.Open(ctx, etcd.Options{
		Endpoints:      s.Endpoints,
		Conns:          s.Conns,
		TargetLeader:   s.TargetLeader,
		DialTimeout:    s.DialTimeout,
		RequestTimeout: s.RequestTimeout,
	})
	if err != nil {
		setting.Reason = oneLine(err.Error())
		if ctx.Err() != nil {
			setting.Reason = context.Cause(ctx).Error()
		}
		return report.New(setting, load.Result{})
	}
	defer transport.Close()
	setting.Connections, setting.Leader = transport.Connections(), transport.Leader()

	run := load.NewRun(load.Options{
		Total:        s.Total,
		Clients:      s.Clients,
		Targeter:     targeter(s),
		Pacer:        load.ClosedLoop{Total: s.Total},
		RequireFound: s.RequireFound,
		Stall:        s.RequestTimeout + min(s.RequestTimeout/10, time.Second), // later than the last deadline
	})
	stop := func() {}
	if d.progress == "json" {
		stop = showProgress(run, s.Total, stderr)
	}
	measured := run.Attack(ctx, transport)
	stop()

	setting.Reason = measured.Reason
	if missing := transport.Unreachable(); len(missing) > 0 && setting.Reason == "" {
		setting.Reason = "not every member could be reached when the run started: " + oneLine(errors.Join(missing...).Error())
	}
	return report.New(setting, measured)
}

func targeter(s *spec.Spec) load.Targeter {
	if s.Operation == spec.Put {
		return &load.Puts{
			Prefix:  s.Prefix,
			KeySize: s.KeySize,
			Order:   keys.NewOrder(s.DistinctKeys(), s.Sequential, s.Seed),
			Values:  keys.NewValues(s.ValSize, s.Seed),
		}
	}
	reads := &load.Reads{Span: load.Request{
		Key:          []byte(s.Key),
		End:          []byte(s.End),
		Limit:        s.Limit,
		Serializable: s.Consistency == spec.Serializable,
		CountOnly:    s.CountOnly,
		KeysOnly:     s.KeysOnly,
	}}
	switch {
	case s.KeySize > 0:
		reads.Prefix, reads.KeySize = s.Prefix, s.KeySize
		reads.Order = keys.NewOrder(s.DistinctKeys(), true, s.Seed)
	case s.KeyIsPrefix:
		reads.Span.Key, reads.Span.End = prefixSpan(s.Key)
	case s.FromKey:
		reads.Span.End = toTheLastKey
	}
	return reads
}

// toTheLastKey is the end of a span that etcd's API (rpc.proto, RangeRequest.range_end) reads as 'all keys
// from the first one on'.
var toTheLastKey = []byte{0}

// prefixSpan gives the span that holds the keys with a prefix: its end is the prefix with the last byte
// that can be raised raised by one.
func prefixSpan(prefix string) (key, end []byte) {
	end = []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return []byte(prefix), end[:i+1]
		}
	}
	if prefix == "" {
		return []byte{0}, toTheLastKey
	}
	return []byte(prefix), toTheLastKey
}

func print(result *report.Result, d display, stdout io.Writer) error {
	if d.output == "json" {
		return json.NewEncoder(stdout).Encode(result)
	}
	return result.Text(stdout, report.TextOptions{Precise: d.precise, Sample: d.sample})
}

const progressInterval = 100 * time.Millisecond

// showProgress writes a report.Progress line for each interval, and a last one when the returned function is
// called, which waits for it.
func showProgress(run *load.Run, total int, stderr io.Writer) (stop func()) {
	encoder := json.NewEncoder(stderr)
	show := func() {
		done, failed := run.Progress()
		// Nobody may be reading: progress is not worth failing a measurement for.
		_ = encoder.Encode(report.Progress{Done: done, Total: total, Errors: failed})
	}
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				show()
				return
			case <-ticker.C:
				show()
			}
		}
	}()
	return func() {
		close(over)
		<-stopped
	}
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
