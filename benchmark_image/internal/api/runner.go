package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"containernet-env/benchmark_image/internal/allow"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
)

const (
	// endGrace is how long a client may take to end after SIGTERM, beside the work for its report.
	endGrace = 5 * time.Second
	// reportTime is how long that work may take for each request that is done, also where the client hardly gets CPU
	// time: 7 ns were measured on an idle core. The driver counts with it, too (runs/follow.py).
	reportTime = 10 * time.Microsecond
	// maxReport bounds what is kept of a client's standard output, in bytes; a report has a few KiB, and at most about
	// 300 bytes for each row of its timeline.
	maxReport = 8 << 20
	// maxComplaints bounds what is kept of a client's standard error, in bytes.
	maxComplaints = 4 << 10
)

// errBusy is returned for a benchmark that is requested while another one runs.
var errBusy = errors.New("a benchmark is running already; wait for its end or POST /benchmark/cancel")

// Outcome is how a benchmark ended; with a problem, it is the body of a 5xx answer.
type Outcome struct {
	Problem string         `json:"error"`  // one line; empty if all went well
	Job     *string        `json:"job"`    // its id; null: there was none
	Result  *report.Result `json:"result"` // null if the client printed none
}

// answer is what the caller of the benchmark gets.
func (o Outcome) answer() (status int, body any) {
	if o.Problem != "" {
		return http.StatusInternalServerError, o
	}
	return http.StatusOK, o.Result
}

// Runner runs benchmark-client, one at a time.
type Runner struct {
	Client string // path of the program; loads over TLS are run by the one that spec.WithTLS names
	Allow  string // members that loads may be sent to, as allow.Parse reads it
	// Start is as Children.Start; Serve sets it.
	Start   func(context.Context, Program) (wait func() error, err error)
	Results *Results // gets every answer

	mu      sync.Mutex
	current *job
	history string // the file with the last one that was kept
}

// job is a running benchmark.
type job struct {
	id        string
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
	Job       *string         `json:"job"` // its id, by which GET /benchmark/result gives its result
	Operation *spec.Operation `json:"operation"`
	report.Progress
	ElapsedS float64 `json:"elapsed_s"`
	// ClientSilentS is how long ago the client last reported its progress, which it does every 0.1 s; also 0 if none
	// runs.
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
		Job:       &r.current.id,
		Operation: &r.current.operation,
		Progress:  report.Progress{Total: r.current.total},
		ElapsedS:  time.Since(r.current.started).Seconds(),
		job:       r.current,
	}
	status.ClientSilentS = status.ElapsedS
	if p := r.current.heard.Load(); p != nil {
		status.Progress = p.Progress
		status.Total = max(p.Total, r.current.total)
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

// grace is how long the client may still take once it is to end: for a report of the requests that are done.
func (j *job) grace() time.Duration {
	done := 0
	if p := j.heard.Load(); p != nil {
		done = p.Done
	}
	return endGrace + time.Duration(min(done, report.MaxKept))*reportTime
}

// Grace is how long the running benchmark, if there is one, may still take once it is to end.
func (r *Runner) Grace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return 0
	}
	return r.current.grace()
}

// Run runs a benchmark to its end and keeps its answer; when ctx ends it is ended early. located is the request
// with the paths of the files that it names: the result has their names. It returns errBusy at once while another one
// runs. An error beside an outcome is why its answer was not kept.
func (r *Runner) Run(ctx context.Context, request *spec.Spec, located spec.Spec) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, limited := &located, *request
	if request.RunTimeout == 0 {
		s.RunTimeout, limited.RunTimeout = spec.MaxRunTimeout, spec.MaxRunTimeout
	}
	// The client keeps this limit itself; this is for one that fails to.
	ctx, cancel = context.WithTimeout(ctx, s.RunTimeout+endGrace)
	defer cancel()
	j := &job{id: newJob(), operation: s.Operation, total: s.Total, started: time.Now(), cancel: cancel}
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
	outcome := r.run(ctx, s, j)
	outcome.Job = &j.id
	if outcome.Result != nil {
		outcome.Result.Job, outcome.Result.Configured = &j.id, limited.Body()
	}
	status, body := outcome.answer()
	encoded, err := json.Marshal(body)
	if err == nil {
		err = r.Results.Put(j.id, status, encoded)
	}
	return outcome, err
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
	args := []string{"run", "--output=json", "--progress=json", "--allow=" + cmp.Or(r.Allow, allow.Local)}
	if s.History {
		path, err := r.newHistory()
		if err != nil {
			return Outcome{Problem: err.Error()}
		}
		args = append(args, "--history-file="+path)
	}
	program := r.Client
	if s.Secured() {
		program = spec.WithTLS(program)
	}
	stdout, stderr := &bounded{limit: maxReport}, &complaints{heard: &j.heard}
	// The client must not outlive the server.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wait, err := r.Start(ctx, Program{Args: append([]string{program}, args...), Stdin: bytes.NewReader(encoded),
		Stdout: stdout, Stderr: stderr, Grace: j.grace})
	if err != nil {
		return Outcome{Problem: fmt.Sprintf("start the benchmark: %v", err)}
	}
	return outcome(wait(), stdout, stderr)
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
		return failure(fmt.Sprintf("benchmark-client printed a report of schema %d, expected is %d", result.Schema,
			report.Schema))
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

// How the Go runtime begins to tell a crash (runtime/panic.go, signal_unix.go, proc.go, malloc.go), and lines with its
// details that come before that one. The driver has the same in base/programs.py.
var (
	crashHead   = regexp.MustCompile(`^(?:panic|fatal error|SIG[A-Z0-9]+): `)
	crashDetail = regexp.MustCompile(`^(?:runtime(?:/cgo)?: |unexpected fault address )`)
)

// crashLine finds the first line of a Go crash, the one that says what happened, among lines as they come: a dump of
// any length follows it.
type crashLine struct {
	detail []byte
	first  []byte // nil until a crash was seen
}

func (c *crashLine) take(line []byte) {
	switch {
	case c.first != nil:
	case crashHead.Match(line):
		if c.first = c.detail; c.first == nil {
			c.first = bytes.Clone(line)
		}
	case !crashDetail.Match(line):
		c.detail = nil
	case c.detail == nil:
		c.detail = bytes.Clone(line)
	}
}
