package api

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

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
