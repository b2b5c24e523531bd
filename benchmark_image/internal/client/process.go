package client

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// The program shares the cores with the cluster that it measures: with half of them it needs about a
// fifth less time per request than with two, and gets more requests answered, because idle threads do not
// look for work. GOMAXPROCS and GOGC in the environment take precedence.
const shareOfCores = 2

// garbage is how much the heap may grow between two collections, in percent: the heap is small.
const garbage = 400

// Process is the whole program: it runs Main with the arguments of the process, and never returns. secure is as Main's.
func Process(version string, secure Securer) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/shareOfCores))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(ErrCancelled)
	}()
	os.Exit(Main(ctx, version, secure, os.Args[1:], os.Stdout, os.Stderr))
}
