package api

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopGrace is how long the answer to a running benchmark may take once the server is to end, beside the client's own
// grace.
const stopGrace = time.Second

// Options is what the server is started with.
type Options struct {
	Client      string   // path of benchmark-client; the one with TLS is beside it
	Hosts       []string // names by which callers may call the server, beside its own
	Allow       string   // members that loads may be sent to, as allow.Parse reads it
	Results     *Results // where results are kept until they are fetched
	Credentials string   // the folder of the files that bodies may name; empty: they may name none
}

// Serve answers requests on the listener, and keeps results, until ctx ends, then ends the running benchmark, answers
// its caller with what was measured, and returns.
func Serve(ctx context.Context, listener net.Listener, options Options, logger *log.Logger) error {
	children := &Children{}
	runner := &Runner{Client: options.Client, Start: children.Start, Allow: options.Allow, Results: options.Results}
	if os.Getpid() == 1 {
		defer reap(children, logger)()
	}
	defer runner.Forget()
	server := &http.Server{
		Handler: &Handler{Runner: runner, Hosts: Hosts{Names: options.Hosts}, Log: logger,
			Credentials: options.Credentials},
		ReadHeaderTimeout: bodyTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    MaxBody,
		ErrorLog:          logger,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), max(runner.Grace(), endGrace)+stopGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("wait for the last answer: %w", err), server.Close())
	}
	return nil
}

// reap collects orphans until the returned function is called.
func reap(children *Children, logger *log.Logger) (stop func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			case <-ended:
				if _, err := children.ReapOrphans(); err != nil {
					logger.Print(err)
				}
			}
		}
	}()
	return func() {
		signal.Stop(ended)
		close(over)
	}
}
