package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
func (c *Children) ReapOrphans() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("list the processes: %w", err)
	}
	reaped := 0
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended since it was listed
		}
		pid, ended := endedChild(string(stat))
		if !ended || c.own[pid] {
			continue
		}
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err == nil && got == pid {
			reaped++
		}
	}
	return reaped, nil
}

// endedChild reads /proc/PID/stat (proc_pid_stat(5)): pid, the command in parentheses, which may hold
// anything, the state, the parent.
func endedChild(stat string) (pid int, ended bool) {
	open, closing := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 1 || closing < open {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	fields := strings.Fields(stat[closing+1:])
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	return pid, fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid())
}
