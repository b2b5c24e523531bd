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

// stopGrace is how long the answer to a running benchmark may take once the server is to end; it includes the
// client's own grace.
const stopGrace = endGrace + time.Second

// Serve answers requests on the listener until ctx ends, then ends the running benchmark, answers its
// caller with what was measured, and returns.
func Serve(ctx context.Context, listener net.Listener, clientPath string, logger *log.Logger) error {
	children := &Children{}
	if os.Getpid() == 1 {
		defer reap(children, logger)()
	}
	runner := &Runner{Client: clientPath, Children: children}
	defer runner.Forget()
	server := &http.Server{
		Handler:           &Handler{Runner: runner, Log: logger},
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
	grace, cancel := context.WithTimeout(context.Background(), stopGrace)
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
