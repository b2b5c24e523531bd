package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long the answer to a running benchmark may take once the server is to end, beside the client's own
// grace.
const stopGrace = time.Second

// Serve answers requests on the listener with a handler, and keeps results, until ctx ends, then ends the running
// benchmark, answers its caller with what was measured, and returns.
func Serve(ctx context.Context, listener net.Listener, handler *Handler) error {
	children, runner := &Children{}, handler.Runner
	runner.Start = children.Start
	if os.Getpid() == 1 {
		defer reap(children)()
	}
	defer runner.Forget()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: bodyTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    MaxBody,
		ErrorLog:          handler.Log,
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
func reap(children *Children) (stop func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			case <-ended:
				children.ReapOrphans()
			}
		}
	}()
	return func() {
		signal.Stop(ended)
		close(over)
	}
}

// Children starts and waits for child processes. As PID 1 of a container the server also inherits the
// orphans of processes that others start inside, such as a shell's background jobs, and has to collect
// them; Children knows which processes are its own, so that ReapOrphans leaves them alone.
type Children struct {
	mu  sync.Mutex
	own map[int]bool
}

// Program is a program that is to be run.
type Program struct {
	Args           []string // its path is the first
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Grace is how long it may take to end once it is to end.
	Grace func() time.Duration
}

// Start starts a program, and wait waits for its end. When ctx ends, it gets SIGTERM, and SIGKILL after its grace of
// that moment. It ends with the thread of the caller, who has to keep that one until it has ended.
func (c *Children) Start(ctx context.Context, p Program) (wait func() error, err error) {
	command := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = p.Stdin, p.Stdout, p.Stderr
	command.Cancel = func() error {
		command.WaitDelay = p.Grace() // which counts from now on
		return command.Process.Signal(syscall.SIGTERM)
	}
	// The kernel watches the thread, not the process (prctl(2), PR_SET_PDEATHSIG).
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := command.Start(); err != nil {
		return nil, err
	}
	if c.own == nil {
		c.own = make(map[int]bool)
	}
	c.own[command.Process.Pid] = true
	return func() error {
		err := command.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.own, command.Process.Pid)
		return err
	}, nil
}

// ReapOrphans collects the ended children that Start did not start and returns how many there were. It is
// to be called after each SIGCHLD.
func (c *Children) ReapOrphans() (reaped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed, and there are no other errors
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || c.own[pid] {
			continue
		}
		// Of a process that has not ended or is no child, nothing is collected (wait4(2)).
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err == nil && got == pid {
			reaped++
		}
	}
	return reaped
}
