package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
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
	results := assert.Got(OpenResults(t.TempDir()))(t)
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
	request := assert.Got(http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body)))(s.t)
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

func TestRequestsThatAreRefused(t *testing.T) {
	s := simulate(t, decodeOnly)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 404, "/benchmark/read"},
		{"POST", "/benchmark", "{}", 404, "/benchmark/read"},
		{"POST", "/benchmark/read/", "{}", 404, "/benchmark/read"},
		{"GET", "/benchmark/read", "", 405, `"allowed":"POST"`},
		{"PUT", "/benchmark/write", "{}", 405, `"allowed":"POST"`},
		{"GET", "/benchmark/cancel", "", 405, `"allowed":"POST"`},
		{"POST", "/progress", "", 405, `"allowed":"GET"`},
		{"POST", "/progress/stream", "", 405, `"allowed":"GET"`},
		{"DELETE", "/healthz", "", 405, `"allowed":"GET"`},
		{"DELETE", "/benchmark/result/0123456789abcdef0123456789abcdef", "", 405, `"allowed":"GET"`},
		{"GET", "/benchmark/result/0123456789abcdef0123456789abcdef", "", 404,
			"there is no result of a job 0123456789abcdef0123456789abcdef"},
		{"GET", "/benchmark/result/", "", 404, "there is no result"},
		{"GET", "/benchmark/result/../../etc/passwd", "", 404, "there is no"},
		{"GET", "/benchmark/history", "", 404, "no benchmark"},
		{"POST", "/benchmark/read?clients=5", seedRead, 400, `"field":"query"`},
		{"POST", "/benchmark/read", seedWrite, 400, "/benchmark/write"},
		{"POST", "/benchmark/write", seedRead, 400, "/benchmark/read"},
		{"POST", "/benchmark/write", `{"endpoints":"a:1","valSize":-1}`, 400,
			`"field":"valSize","got":-1,"allowed":"an integer in 0..1048576 bytes"`},
		{"POST", "/benchmark/write", `{"endpoints":"a:1","keyPrefix":"a\u0000b"}`, 400, `"field":"keyPrefix"`},
		{"POST", "/benchmark/read", `{"endpoints":"a:1","key":"a","endRange":"b\u0000"}`, 400, `"field":"endRange"`},
		{"POST", "/benchmark/write", `{"endpoints":"a:1","caFile":"/etc/passwd"}`, 400,
			`"field":"caFile","got":"/etc/passwd","allowed":"no files`},
		{"POST", "/benchmark/write", strings.Repeat(" ", MaxBody+1), 413, "65536 bytes"},
	} {
		status, header, answer := s.send(c.method, c.path, c.body)
		assert.That(t, status == c.status && strings.Contains(string(answer), c.want),
			"%s %s %.80s: %d %s, want %d with %s", c.method, c.path, c.body, status, answer, c.status, c.want)
		assert.That(t, (header.Get("Allow") != "") == (status == 405), "%s %s: Allow is %q", c.method, c.path,
			header.Get("Allow"))
	}
}

const thousand = `{"endpoints":"127.0.0.1:1","total":1000}`

// jobOf is the id of the job in an answer.
func jobOf(t *testing.T, answer []byte) string {
	t.Helper()
	var in struct{ Job string }
	err := json.Unmarshal(answer, &in)
	assert.Must(t, err == nil, "%v in %s", err, answer)
	return in.Job
}

// TestABenchmarkUnderWay looks after three seconds, 300 requests, and cancels it after five. Its result is there to be
// fetched once.
func TestABenchmarkUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simulate(t, measure)
		_, answered := s.begin("/benchmark/write", thousand)
		simulated.Sleep(3*time.Second + requestTime/2)
		_, _, answer := s.send("GET", "/progress", "")
		job := jobOf(t, answer)
		assert.Equal(t, string(answer), fmt.Sprintf(`{"running":true,"job":%q,"operation":"put","done":300,"total":1000,`+
			`"errors":0,"warmup_done":0,"began_ns":null,"elapsed_s":3.005,"client_silent_s":0.005}`+"\n", job), "progress")
		for path, method := range map[string]string{
			"/benchmark/write": "POST", "/benchmark/history": "GET", spec.ResultPath + job: "GET",
		} {
			status, _, answer := s.send(method, path, thousand)
			assert.That(t, status == 409, "%s %s meanwhile: %d %s", method, path, status, answer)
		}
		simulated.Sleep(2 * time.Second)
		_, _, reply := s.send("POST", "/benchmark/cancel", "")
		assert.Equal(t, string(reply), "{\"cancelled\":true}\n", "cancel")
		r := <-answered
		f := failed(t, r.answer)
		assert.That(t, r.status == 500 && f.Problem == "cancelled" && f.Result != nil && f.Result.OK == 500 &&
			*f.Job == job && *f.Result.Job == job, "%d %s", r.status, r.answer)
		_, _, reply = s.send("POST", "/benchmark/cancel", "")
		assert.Equal(t, string(reply), "{\"cancelled\":false}\n", "cancel of nothing")
		_, _, answer = s.send("GET", "/progress", "")
		assert.Equal(t, string(answer), `{"running":false,"job":null,"operation":null,"done":0,"total":0,"errors":0,`+
			`"warmup_done":0,"began_ns":null,"elapsed_s":0,"client_silent_s":0}`+"\n", "progress of nothing")
		for i, want := range []int{500, 404} {
			status, _, kept := s.send("GET", spec.ResultPath+job, "")
			assert.That(t, status == want && (i != 0 || bytes.Equal(kept, r.answer)), "fetched %d times: %d %s", i+1, status,
				kept)
		}
	})
}

// TestTheProgressIsStreamed five times a second, until another benchmark runs: the last line says that none does.
func TestTheProgressIsStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simulate(t, measure)
		_, first := s.begin("/benchmark/write", `{"endpoints":"127.0.0.1:1","total":90}`)
		var second <-chan reply
		go func() {
			<-first
			_, second = s.begin("/benchmark/write", thousand)
		}()
		simulated.Sleep(requestTime / 2)
		status, header, answer := s.send("GET", "/progress/stream", "")
		var done []int
		for line := range bytes.Lines(answer) {
			var status Status
			err := json.Unmarshal(line, &status)
			assert.That(t, err == nil && status.Running == (status.Total == 90), "%v in %s", err, line)
			done = append(done, status.Done)
		}
		assert.Equal(t, done, []int{0, 20, 40, 60, 80, 0}, "requests that are done")
		assert.That(t, status == 200 && header.Get("Content-Type") == "application/x-ndjson", "%d %v", status, header)
		s.Runner.Cancel()
		<-second
	})
}

func TestStreamsAreBounded(t *testing.T) {
	s := simulate(t, decodeOnly)
	s.streams.Store(maxStreams)
	status, _, answer := s.send("GET", "/progress/stream", "")
	assert.That(t, status == 429 && strings.Contains(string(answer), "16") && s.streams.Load() == maxStreams,
		"%d %s; %d are counted", status, answer, s.streams.Load())
}

func TestClientsThatMisbehave(t *testing.T) {
	killed, failed := errors.New("signal: killed"), errors.New("exit status 2")
	noise := strings.Repeat(strings.Repeat("x", 80)+"\n", 40000)
	for name, c := range map[string]struct {
		ended          error
		stdout, stderr string
		want           string
	}{
		"crash": {killed, "", "oops\n", "benchmark-client ended without a report (signal: killed): oops"},
		"panic": {failed, "", "warming up\npanic: index out of range [4]\n\ngoroutine 1 [running]:\nmain.main()\n",
			"ended without a report (exit status 2): panic: index out of range [4]\""},
		"fatal": {failed, "", "runtime: out of memory: cannot allocate\nfatal error: out of memory\n\n" + noise,
			"ended without a report (exit status 2): runtime: out of memory: cannot allocate\""},
		"no crash": {failed, "", "runtime: mlock failed\nno answer\n",
			"(exit status 2): runtime: mlock failed no answer"},
		"noise":         {nil, "hello\n", "", "not JSON"},
		"other schema":  {nil, `{"schema":7}`, "", "schema 7, expected is 9"},
		"endless":       {nil, strings.Repeat("\x00", 9_000_000), "", "printed more than 8388608 bytes"},
		"lies":          {failed, `{"schema":9,"ok":1}`, "", "benchmark-client ended with exit status 2"},
		"endless error": {failed, "", strings.Repeat("\x00", 3_000_000), "ended without a report (exit status 2)"},
		"endless lines": {failed, "", noise, "ended without a report (exit status 2): x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(t, func(_ context.Context, p Program) error {
				for piece := []byte(c.stdout); len(piece) > 0; piece = piece[min(len(piece), 32<<10):] {
					_, _ = p.Stdout.Write(piece[:min(len(piece), 32<<10)]) // as os/exec copies
				}
				for piece := []byte(c.stderr); len(piece) > 0; piece = piece[min(len(piece), 999):] {
					_, _ = p.Stderr.Write(piece[:min(len(piece), 999)])
				}
				return c.ended
			})
			status, _, answer := s.send("POST", "/benchmark/read", seedRead)
			assert.That(t, status == 500 && strings.Contains(string(answer), c.want) && len(answer) <= 3*maxComplaints,
				"%d %.300s, want %q", status, answer, c.want)
		})
	}
	s := simulate(t, nil)
	s.Runner.Start = absent
	_, _, reply := s.send("POST", "/benchmark/read", seedRead)
	assert.That(t, strings.Contains(string(reply), "start the benchmark: no such file"), "%s", reply)
}

// TestABenchmarkIsBounded by the default, or by what is configured; the client is ended where it does not keep to it.
func TestABenchmarkIsBounded(t *testing.T) {
	for body, want := range map[string]struct {
		field string
		limit time.Duration
	}{
		`{"endpoints":"[::1]:1"}`:                  {`"runTimeout":86400`, 24 * time.Hour},
		`{"endpoints":"[::1]:1","runTimeout":0.5}`: {`"runTimeout":0.5`, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := simulated.Now()
			s := simulate(t, func(ctx context.Context, p Program) error {
				_, err := bufio.NewReader(p.Stdin).WriteTo(p.Stderr)
				fmt.Fprintln(p.Stderr, p.Args)
				<-ctx.Done()
				return errors.Join(err, ctx.Err())
			})
			_, _, answer := s.send("POST", "/benchmark/write", body)
			assert.Equal(t, simulated.Now().Sub(began), want.limit+endGrace, "%s: how long it takes", body)
			message := failed(t, answer).Problem
			for _, part := range []string{`: {"operation":"put","endpoints":"[::1]:1",`, want.field,
				"[client run --output=json --progress=json --allow=0.0.0.0/0,::/0]"} {
				assert.That(t, strings.Contains(message, part), "%s: the client is given %s, want %q", body, message, part)
			}
		})
	}
}

func TestTheGraceFollowsTheWork(t *testing.T) {
	assert.Equal(t, (&Runner{}).Grace(), 0, "without a benchmark")
	for done, want := range map[int]time.Duration{
		0: endGrace, 1000: endGrace + 10*time.Millisecond, report.MaxKept: endGrace + report.MaxKept*reportTime,
		10 * report.MaxKept: endGrace + report.MaxKept*reportTime,
	} {
		r := &Runner{current: &job{}}
		r.current.heard.Store(&heard{Progress: report.Progress{Done: done}})
		assert.Equal(t, r.Grace(), want, "%d requests", done)
	}
}

// FuzzRequest sends requests of any form to the server. Whatever is accepted is a benchmark that the client reads;
// nothing makes the server fail (500), panic or wait for more than its own deadlines. What net/http itself answers to
// what is no request of HTTP/1 (400, 431, 501, 505) is its own.
func FuzzRequest(native *testing.F) {
	f := inputtest.F{F: native}
	for _, path := range []string{"/benchmark/read", "/benchmark/write", "/benchmark/mixed", "/benchmark/txn",
		"/benchmark/cancel"} {
		f.Add("POST", path, "", []byte(seedRead))
		f.Add("POST", path, "Content-Type: application/json\r\n", []byte(seedWrite))
	}
	f.Add("GET", "/progress", "X: y\r\n", []byte{})
	f.Add("GET", "/progress/stream", "", []byte{})
	f.Add("GET", "/healthz?x", "Expect: 100-continue\r\n", []byte{})
	f.Add("PRI", "*", "Transfer-Encoding: chunked\r\n", []byte("2\r\n{}\r\n0\r\n\r\n"))
	f.Add("POST", "/benchmark/write", "", []byte(`{"endpoints":"a:1","keyPrefix":"\u0000"}`))
	f.Add("POST", "/benchmark/read", "", []byte(`{"endpoints":"a:1","key":"\ufffd","endRange":"\u0000","limit":1e3}`))
	f.Fuzz(func(t *testing.T, method, path, header string, body []byte) {
		request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, path, header)
		if !strings.Contains(strings.ToLower(header), "transfer-encoding") {
			request = fmt.Appendf(request, "Content-Length: %d\r\n", len(body))
		}
		request = append(append(request, "\r\n"...), body...)
		synctest.Test(t, func(t *testing.T) {
			for _, response := range exchange(t, simulate(t, decodeOnly), request) {
				assert.That(t, response.StatusCode != http.StatusInternalServerError, "%q: %s", request, response.Status)
			}
		})
	})
}

// pipes is a listener for one connection without a network.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// exchange sends bytes, in a bubble, and returns the answers that come until the server closes the connection or is
// silent for a minute. Every answer of ours is JSON, a line or several.
func exchange(t *testing.T, s *server, request []byte) (answers []*http.Response) {
	t.Helper()
	serving := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				fault := recover()
				assert.That(t, fault == nil, "%q: panic: %v", request, fault)
			}()
			s.ServeHTTP(w, r)
		}),
		ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: MaxBody, ReadHeaderTimeout: bodyTimeout,
	}
	ours, theirs := net.Pipe()
	listener := make(pipes, 1)
	listener <- theirs
	go serving.Serve(listener)
	defer func() {
		close(listener)
		assert.OK(t, ours.Close(), serving.Close())
		synctest.Wait()
	}()
	assert.OK(t, ours.SetDeadline(simulated.Now().Add(time.Minute)))
	go ours.Write(request) // which may be refused while it is sent
	for reader := bufio.NewReader(ours); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return answers
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		ours := slices.Contains([]string{"application/json", "application/x-ndjson"}, response.Header.Get("Content-Type"))
		for line := range bytes.Lines(body) {
			assert.That(t, !ours || err != nil || json.Valid(line), "%q: the answer %q", request, body)
		}
		assert.That(t, ours || err != nil || response.StatusCode >= 400 || response.StatusCode == http.StatusContinue,
			"%q: %s of another type: %q", request, response.Status, body)
		answers = append(answers, response)
	}
}
