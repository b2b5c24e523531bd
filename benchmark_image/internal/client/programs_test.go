//go:build plumbing

package client

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
)

func TestMain(m *testing.M) {
	// A copy of the test's program is the program that it is named as.
	switch filepath.Base(os.Args[0]) {
	case "benchmark-client":
		Process("test", nil)
	case "benchmark-client-tls":
		Process("test", secure.Files)
	}
	os.Exit(runTests(m))
}

// programFolder holds programs that tests share.
var programFolder string

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "client-test-")
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			panic(err)
		}
	}()
	programFolder = folder
	return m.Run()
}

// notDriven is a transport of a load that never begins.
type notDriven struct{ t *testing.T }

func (d notDriven) Drive(context.Context, int, *load.Run) { d.t.Error("requests were sent") }

// TestAWarmupOfPoissonStartsEndsWithItsContext while its requests are counted, which would take half an hour.
func TestAWarmupOfPoissonStartsEndsWithItsContext(t *testing.T) {
	for _, change := range []func(*spec.Spec){
		func(s *spec.Spec) { s.WarmupDuration = 20 * time.Hour },
		func(s *spec.Spec) { s.WarmupRequests = 72_000_000_000 },
	} {
		s := spec.Default(spec.Put)
		s.Rate, s.Arrival = spec.MaxRate, spec.Poisson
		change(&s)
		ctx, cancel := context.WithCancelCause(t.Context())
		b := &benchmark{spec: &s}
		over := make(chan struct{})
		go func() {
			defer close(over)
			b.run(ctx, notDriven{t})
		}()
		<-hang.Midway(50 * time.Millisecond)
		cancel(ErrCancelled)
		select {
		case <-over:
		case <-hang.Midway(hang.Limit):
			t.Fatal("it goes on counting")
		}
		if b.setting.Reason != ErrCancelled.Error() || b.setting.Run != nil {
			t.Errorf("reason %q, a run %+v", b.setting.Reason, b.setting.Run)
		}
	}
}
