package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/simulated"
	"containernet-env/benchmark_image/internal/spec"
)

const (
	seedRead = `{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "key": "foo", ` +
		`"endRange": "foo3", "consistency": "l"}`
	seedWrite = `{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "keySize": 4, ` +
		`"valSize": 64, "targetLeader": true, "sequentialKeys": true}`
)

// server is a handler, and how it is called.
type server struct {
	*Handler
	t      testing.TB
	client *http.Client
	url    string
}

// inMemory calls a handler without a network.
type inMemory struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := &patientRecorder{httptest.NewRecorder()}
	m.handler.ServeHTTP(recorder, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// patientRecorder waits for ever, as far as a handler can see.
type patientRecorder struct{ *httptest.ResponseRecorder }

func (*patientRecorder) SetReadDeadline(time.Time) error  { return nil }
func (*patientRecorder) SetWriteDeadline(time.Time) error { return nil }

// program is a benchmark-client in the same process.
type program func(ctx context.Context, p Program) error

func (run program) start(ctx context.Context, p Program) (wait func() error, err error) {
	return func() error { return run(ctx, p) }, nil
}

// newHandler has the program as its client; members may be any.
func newHandler(t testing.TB, run program) *Handler {
	return &Handler{
		Runner: &Runner{Client: "client", Start: run.start, Allow: "0.0.0.0/0,::/0", Results: openResults(t)},
		Log:    log.New(io.Discard, "", 0),
	}
}

// simulate serves without a network and without processes.
func simulate(t testing.TB, run program) *server {
	h := newHandler(t, run)
	return &server{h, t, &http.Client{Transport: inMemory{h}}, "http://localhost"}
}

func openResults(t testing.TB) *Results {
	t.Helper()
	results, err := OpenResults(t.TempDir())
	assert.OK(t, err)
	t.Cleanup(func() { _ = results.lock.Close() })
	return results
}

// requestTime is how long a simulated request takes.
const requestTime = 10 * time.Millisecond

// measure is a client whose requests all succeed. It tells of each of them, and reports those that are done when ctx
// ends, after reportTime for each.
func measure(ctx context.Context, p Program) error {
	s, err := decode(p.Stdin)
	if err != nil {
		return err
	}
	reason := ""
	done := 0
	for done < s.Total && reason == "" {
		select {
		case <-ctx.Done():
			reason = "cancelled"
		case <-simulated.After(requestTime):
			done++
			fmt.Fprintf(p.Stderr, "{\"done\":%d,\"total\":%d}\n", done, s.Total)
		}
	}
	simulated.Sleep(time.Duration(done) * reportTime)
	result := &report.Result{Operation: string(s.Operation)}
	result.Complete(load.Result{Reason: reason}, nil)
	result.OK = done
	return json.NewEncoder(p.Stdout).Encode(result)
}

// decode reads the benchmark that a client is given, as benchmark-client does.
func decode(stdin io.Reader) (*spec.Spec, error) {
	encoded, err := io.ReadAll(stdin)
	if err != nil {
		return nil, err
	}
	s, problem := spec.Decode(encoded)
	if problem != nil {
		return nil, errors.New(problem.Message)
	}
	return s, nil
}

// decodeOnly is a client that reports a benchmark that it has not run.
func decodeOnly(_ context.Context, p Program) error {
	if _, err := decode(p.Stdin); err != nil {
		return err
	}
	var result report.Result
	result.Complete(load.Result{}, nil)
	return json.NewEncoder(p.Stdout).Encode(result)
}

// absent is a client that is not there.
func absent(context.Context, Program) (wait func() error, err error) {
	return nil, errors.New("no such file")
}

// send calls as curl does. Every answer is JSON.
func (s *server) send(method, path, body string) (int, http.Header, []byte) {
	s.t.Helper()
	return s.call(s.t.Context(), method, path, body, map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", // as curl -d says
	})
}

// call sends a request with the header fields of a browser or a program; Host is one of them. It returns a status of 0
// if there is no answer.
func (s *server) call(ctx context.Context, method, path, body string, fields map[string]string) (int, http.Header,
	[]byte) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	assert.OK(s.t, err)
	for name, value := range fields {
		request.Header.Set(name, value)
	}
	if host, given := fields["Host"]; given {
		request.Host = host
	}
	response, err := s.client.Do(request)
	if err != nil {
		assert.That(s.t, ctx.Err() != nil, "%s %s: %v", method, path, err)
		return 0, nil, nil
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	kind := response.Header.Get("Content-Type")
	assert.That(s.t, err == nil && (path == "/progress/stream" || (kind == "application/json" && json.Valid(answer))),
		"%s %s answers %q of type %q, %v", method, path, answer, kind, err)
	return response.StatusCode, response.Header, answer
}

// reply is an answer that comes later.
type reply struct {
	status int
	answer []byte
}

// begin asks for a benchmark. leave ends the connection; the reply is empty then.
func (s *server) begin(path, body string) (leave context.CancelFunc, answered <-chan reply) {
	ctx, leave := context.WithCancel(s.t.Context())
	later := make(chan reply, 1)
	go func() {
		status, _, answer := s.call(ctx, "POST", path, body, nil)
		later <- reply{status, answer}
	}()
	return leave, later
}

// failed reads an answer to a benchmark that failed.
func failed(t testing.TB, answer []byte) (f Outcome) {
	t.Helper()
	err := json.Unmarshal(answer, &f)
	assert.That(t, err == nil, "%v in %s", err, answer)
	return f
}
