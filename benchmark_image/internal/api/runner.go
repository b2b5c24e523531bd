package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"containernet-env/benchmark_image/internal/allow"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
)

const (
	// endGrace is how long a client may take for its report after SIGTERM.
	endGrace = 5 * time.Second
	// maxReport bounds what is kept of a client's standard output, in bytes; a report has a few KiB, and at most about
	// 150 bytes for each row of its timeline.
	maxReport = 8 << 20
	// maxComplaints bounds what is kept of a client's standard error, in bytes.
	maxComplaints = 4 << 10
)

// errBusy is returned for a benchmark that is requested while another one runs.
var errBusy = errors.New("a benchmark is running already; wait for its end or POST /benchmark/cancel")

// Outcome is how a benchmark ended.
type Outcome struct {
	Result  *report.Result // nil if the client printed none
	Problem string         // one line; empty if all went well
}

// Runner runs benchmark-client, one at a time.
type Runner struct {
	Client   string // path of the program
	Allow    string // members that loads may be sent to, as allow.Parse reads it
	Children *Children

	mu      sync.Mutex
	current *job
}

// job is a running benchmark.
type job struct {
	operation spec.Operation
	total     int
	started   time.Time
	cancel    context.CancelFunc
	heard     atomic.Pointer[heard]
}

// heard is a line of a client's progress, and when it came.
type heard struct {
	report.Progress
	at time.Time
}

// Status is the answer of GET /progress.
type Status struct {
	Running   bool            `json:"running"`
	Operation *spec.Operation `json:"operation"`
	Done      int             `json:"done"`
	Total     int             `json:"total"`
	Errors    int             `json:"errors"`
	Warmup    int             `json:"warmup_done"` // requests of the warm-up that have an outcome
	ElapsedS  float64         `json:"elapsed_s"`
	// ClientSilentS is how long ago the client last told of its progress, which it does every 0.1 s; also 0 if none runs.
	ClientSilentS float64 `json:"client_silent_s"`

	job *job // that it describes
}

// Status is the progress of the running benchmark.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return Status{}
	}
	status := Status{
		Running:   true,
		Operation: &r.current.operation,
		Total:     r.current.total,
		ElapsedS:  time.Since(r.current.started).Seconds(),
		job:       r.current,
	}
	status.ClientSilentS = status.ElapsedS
	if p := r.current.heard.Load(); p != nil {
		status.Done, status.Errors, status.Total, status.Warmup = p.Done, p.Errors, max(p.Total, status.Total), p.Warmup
		status.ClientSilentS = time.Since(p.at).Seconds()
	}
	return status
}

// Cancel ends the running benchmark early; false if there is none.
func (r *Runner) Cancel() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return false
	}
	r.current.cancel()
	return true
}

// Run runs a benchmark to its end; when ctx ends it is ended early. It returns errBusy at once while
// another one runs.
func (r *Runner) Run(ctx context.Context, s *spec.Spec) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limited := *s
	if s = &limited; s.RunTimeout == 0 {
		s.RunTimeout = spec.MaxRunTimeout
	}
	// The client keeps this limit itself; this is for one that fails to.
	ctx, cancel = context.WithTimeout(ctx, s.RunTimeout+endGrace)
	defer cancel()
	j := &job{operation: s.Operation, total: s.Total, started: time.Now(), cancel: cancel}
	r.mu.Lock()
	if r.current != nil {
		r.mu.Unlock()
		return Outcome{}, errBusy
	}
	r.current = j
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.current = nil
	}()
	return r.run(ctx, s, j), nil
}

// refuse gives the problem of a load with a member that it must not be sent to, nil if there is none. The client checks
// each address that it connects to.
func (r *Runner) refuse(ctx context.Context, s *spec.Spec) (*spec.Problem, error) {
	list, err := allow.Parse(r.Allow)
	if err != nil {
		return nil, err
	}
	for _, endpoint := range s.Endpoints {
		if err := list.Check(ctx, endpoint); err != nil {
			return &spec.Problem{Message: err.Error(), Field: "endpoints", Got: endpoint, Allowed: spec.Clip(list.String())}, nil
		}
	}
	return nil, nil
}

func (r *Runner) run(ctx context.Context, s *spec.Spec, j *job) Outcome {
	encoded, err := json.Marshal(s)
	if err != nil {
		return Outcome{Problem: fmt.Sprintf("describe the benchmark: %v", err)}
	}
	allowed := "--allow=" + cmp.Or(r.Allow, allow.Local)
	command := exec.CommandContext(ctx, r.Client, "run", "--output=json", "--progress=json", allowed)
	command.Stdin = bytes.NewReader(encoded)
	stdout, stderr := &bounded{limit: maxReport}, &complaints{heard: &j.heard}
	command.Stdout, command.Stderr = stdout, stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = endGrace
	// The client must not outlive the server. The kernel watches the thread that started it, not the
	// process (prctl(2), PR_SET_PDEATHSIG), so the goroutine keeps its thread.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.Children.Start(command); err != nil {
		return Outcome{Problem: fmt.Sprintf("start the benchmark: %v", err)}
	}
	return outcome(r.Children.Wait(command), stdout, stderr)
}

// outcome judges the output of a client that has ended.
func outcome(ended error, stdout *bounded, stderr *complaints) Outcome {
	failure := func(what string) Outcome {
		if said := stderr.text(); said != "" {
			what += ": " + said
		}
		return Outcome{Problem: what}
	}
	if stdout.overflow {
		return failure(fmt.Sprintf("benchmark-client printed more than %d bytes", maxReport))
	}
	var result report.Result
	if err := json.Unmarshal(stdout.kept.Bytes(), &result); err != nil {
		if ended != nil {
			return failure(fmt.Sprintf("benchmark-client ended without a report (%v)", ended))
		}
		return failure(fmt.Sprintf("benchmark-client printed a report that is not JSON (%v)", err))
	}
	if result.Schema != report.Schema {
		return failure(fmt.Sprintf("benchmark-client printed a report of schema %d, expected is %d", result.Schema, report.Schema))
	}
	problem := result.Problem()
	if problem == "" && ended != nil {
		problem = fmt.Sprintf("benchmark-client ended with %v", ended)
	}
	return Outcome{Result: &result, Problem: problem}
}

// bounded keeps what is written to it up to a limit. The buffer is no embedded field: its ReadFrom would go
// around the limit.
type bounded struct {
	kept     bytes.Buffer
	limit    int
	overflow bool
}

// Write never fails: a full buffer must not stop the writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - b.kept.Len()
	if len(p) > room {
		b.overflow = true
	}
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}

// complaints splits a client's standard error: progress goes to the job, and of the rest the first line of a crash is
// kept, and the end.
type complaints struct {
	heard *atomic.Pointer[heard]
	line  []byte
	rest  []byte
	crash crashLine
}

// Write never fails.
func (c *complaints) Write(p []byte) (int, error) {
	for piece := range bytes.Lines(p) {
		if len(c.line)+len(piece) <= maxComplaints {
			c.line = append(c.line, piece...)
		}
		if piece[len(piece)-1] == '\n' {
			c.take(c.line)
			c.line = c.line[:0]
		}
	}
	return len(p), nil
}

func (c *complaints) take(line []byte) {
	var p report.Progress
	if bytes.HasPrefix(line, []byte(`{"done"`)) && json.Unmarshal(line, &p) == nil {
		c.heard.Store(&heard{p, time.Now()})
		return
	}
	c.crash.take(line)
	c.rest = append(c.rest, line...)
	if excess := len(c.rest) - maxComplaints; excess > 0 {
		c.rest = append(c.rest[:0], c.rest[excess:]...)
	}
}

// text is what was kept, as one line: of a crash only what happened, not the dump.
func (c *complaints) text() string {
	said := append(c.rest, c.line...)
	if c.crash.first != nil {
		said = c.crash.first
	}
	kept := strings.ToValidUTF8(string(said), "?")
	words := strings.FieldsFunc(kept, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) })
	return strings.Join(words, " ")
}
