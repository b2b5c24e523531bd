package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/client"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// asClient makes the test program behave as benchmark-client, so that no other program is needed.
const asClient = "TEST_AS_BENCHMARK_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asDecoder) != "" {
		os.Exit(decodeOnly())
	}
	if os.Getenv(asClient) != "" {
		ctx, cancel := context.WithCancelCause(context.Background())
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		go func() {
			<-signals
			cancel(client.ErrCancelled)
		}()
		var securer client.Securer
		if os.Getenv(asClient) == "with TLS" {
			securer = secure.Files
		}
		os.Exit(client.Main(ctx, "test", securer, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const (
	seedRead = `{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "key": "foo", ` +
		`"endRange": "foo3", "consistency": "l"}`
	seedWrite = `{"endpoints": "10.0.0.251:2379", "clients": 5, "conns": 5, "total": 1000, "keySize": 4, ` +
		`"valSize": 64, "targetLeader": true, "sequentialKeys": true}`
)

// start serves the interface with the test program as the client.
func start(t *testing.T) (url string, h *Handler) {
	t.Helper()
	t.Setenv(asClient, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, self)
}

func startWith(t testing.TB, clientPath string) (url string, h *Handler) {
	t.Helper()
	h = &Handler{Runner: &Runner{Client: clientPath, Children: &Children{}, Results: openResults(t)},
		Log: log.New(io.Discard, "", 0)}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL, h
}

func send(t testing.TB, method, url, body string) (int, http.Header, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl -d says
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); kind != "application/json" && !strings.HasSuffix(url,
		"/stream") || !json.Valid(answer) {
		t.Errorf("%s %s answers %q of type %q", method, url, answer, kind)
	}
	return response.StatusCode, response.Header, answer
}

func TestRequestsThatAreRefused(t *testing.T) {
	url, _ := start(t)
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
		{"POST", "/benchmark/read?clients=5", seedRead, 400, `"field":"query"`},
		{"POST", "/benchmark/read", seedWrite, 400, "/benchmark/write"},
		{"POST", "/benchmark/write", seedRead, 400, "/benchmark/read"},
		{"POST", "/benchmark/write", `{"endpoints":"a:1","valSize":-1}`, 400,
			`"field":"valSize","got":-1,"allowed":"an integer in 0..1048576 bytes"`},
		{"POST", "/benchmark/write", `{"endpoints":"a:1","keyPrefix":"a\u0000b"}`, 400, `"field":"keyPrefix"`},
		{"POST", "/benchmark/read", `{"endpoints":"a:1","keySize":8,"keyPrefix":"\u0000"}`, 400, `"field":"keyPrefix"`},
		{"POST", "/benchmark/mixed", `{"endpoints":"a:1","keyPrefix":"\u0000"}`, 400, `"field":"keyPrefix"`},
		{"POST", "/benchmark/txn", `{"endpoints":"a:1","keyPrefix":"\u0000"}`, 400, `"field":"keyPrefix"`},
		{"POST", "/benchmark/read", `{"endpoints":"a:1","key":"a\u0000"}`, 400, `"field":"key"`},
		{"POST", "/benchmark/read", `{"endpoints":"a:1","key":"a","endRange":"b\u0000"}`, 400, `"field":"endRange"`},
		{"POST", "/benchmark/write", `{"endpoints":"a:1","caFile":"/etc/passwd"}`, 400,
			`"field":"caFile","got":"/etc/passwd","allowed":"no files`},
		{"POST", "/benchmark/write", strings.Repeat(" ", MaxBody+1), 413, "65536 bytes"},
	} {
		status, header, answer := send(t, c.method, url+c.path, c.body)
		if status != c.status || !strings.Contains(string(answer), c.want) {
			t.Errorf("%s %s %.80s: %d %s, want %d with %s", c.method, c.path, c.body, status, answer, c.status, c.want)
		}
		if (header.Get("Allow") != "") != (status == 405) {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, header.Get("Allow"))
		}
	}
}

func TestTheCallsOfTheSeed(t *testing.T) {
	url, _ := start(t)
	cluster := etcdtest.Start(t, 1)
	for path, body := range map[string]string{"/benchmark/read": seedRead, "/benchmark/write": seedWrite} {
		status, _, answer := send(t, "POST", url+path,
			strings.Replace(body, "10.0.0.251:2379", cluster.Members[0].Endpoint, 1))
		var result report.Result
		if err := json.Unmarshal(answer, &result); err != nil {
			t.Fatal(err)
		}
		if status != 200 || result.OK != 1000 || result.Connections != 5 || *result.Leader != cluster.Members[0].Endpoint {
			t.Errorf("%s: %d %s", path, status, answer)
		}
		if path == "/benchmark/read" && result.Empty != 1000 {
			t.Errorf("reads of keys that do not exist: %d empty", result.Empty)
		}
	}
}

func TestAFailedBenchmarkReturnsWhatWasMeasured(t *testing.T) {
	url, _ := start(t)
	cluster := etcdtest.Start(t, 1)
	status, _, answer := send(t, "POST", url+"/benchmark/read",
		`{"endpoints":"`+cluster.Members[0].Endpoint+`","total":10,"key":"k","requireFound":true}`)
	var failed failure
	if err := json.Unmarshal(answer, &failed); err != nil {
		t.Fatal(err)
	}
	if status != 500 || failed.Result == nil || failed.Result.Failed != 10 ||
		failed.Message != "10 of 10 requests failed (10 times: no key found)" {
		t.Errorf("%d %s", status, answer)
	}
}

func TestABenchmarkUnderWay(t *testing.T) {
	url, h := start(t)
	cluster := etcdtest.Start(t, 1)
	type reply struct {
		status int
		answer []byte
	}
	ended := make(chan reply)
	long := `{"endpoints":"` + cluster.Members[0].Endpoint + `","total":10000000,"clients":2}`
	go func() {
		status, _, answer := send(t, "POST", url+"/benchmark/write", long)
		ended <- reply{status, answer}
	}()
	var status Status
	eventually(t, "progress", func() bool {
		_, _, answer := send(t, "GET", url+"/progress", "")
		status = Status{}
		if err := json.Unmarshal(answer, &status); err != nil {
			t.Error(err)
		}
		return status.Done > 0
	})
	if !status.Running || status.Total != 10000000 || status.Errors != 0 || *status.Operation != "put" ||
		status.ElapsedS <= 0 {
		t.Errorf("%+v", status)
	}
	if code, _, answer := send(t, "POST", url+"/benchmark/write", long); code != 409 {
		t.Errorf("a second benchmark: %d %s", code, answer)
	}
	if code, _, _ := send(t, "GET", url+"/healthz", ""); code != 200 {
		t.Errorf("healthz: %d", code)
	}
	if _, _, answer := send(t, "POST", url+"/benchmark/cancel", ""); string(answer) != "{\"cancelled\":true}\n" {
		t.Errorf("cancel: %s", answer)
	}
	r := <-ended
	var failed failure
	if err := json.Unmarshal(r.answer, &failed); err != nil {
		t.Fatal(err)
	}
	if r.status != 500 || !strings.HasPrefix(failed.Message,
		"cancelled") || failed.Result == nil || failed.Result.OK == 0 || *failed.Result.Reason != "cancelled" {
		t.Errorf("%d %s", r.status, r.answer)
	}
	if h.Runner.Status().Running {
		t.Error("the benchmark is still running")
	}
	if _, _, answer := send(t, "POST", url+"/benchmark/cancel", ""); string(answer) != "{\"cancelled\":false}\n" {
		t.Errorf("cancel of nothing: %s", answer)
	}
	const idle = `{"running":false,"job":null,"operation":null,"done":0,"total":0,"errors":0,"warmup_done":0,` +
		`"began_ns":null,"elapsed_s":0,"client_silent_s":0}`
	if _, _, answer := send(t, "GET", url+"/progress", ""); strings.TrimSpace(string(answer)) != idle {
		t.Errorf("progress of nothing: %s", answer)
	}
}

func TestTheProgressIsStreamed(t *testing.T) {
	url, h := start(t)
	cluster := etcdtest.Start(t, 1)
	ended := make(chan []byte)
	go func() {
		_, _, answer := send(t, "POST", url+"/benchmark/write",
			`{"endpoints":"`+cluster.Members[0].Endpoint+`","rate":200,"duration":1,"clients":4}`)
		ended <- answer
	}()
	eventually(t, "the benchmark", func() bool { return h.Runner.Status().Done > 0 })
	response, err := http.Get(url + "/progress/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var lines []Status
	for decoder := json.NewDecoder(response.Body); ; {
		var status Status
		if err := decoder.Decode(&status); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, status)
	}
	if n := len(lines); n < 3 || !lines[0].Running || lines[0].Total != 200 || lines[n-2].Done < lines[0].Done ||
		lines[n-1].Running {
		t.Errorf("%+v", lines)
	}
	if kind := response.Header.Get("Content-Type"); kind != "application/x-ndjson" {
		t.Errorf("type %q", kind)
	}
	reporttest.Check(t, <-ended)
}

func TestStreamsAreBounded(t *testing.T) {
	url, h := startWith(t, "/nonexistent")
	h.streams.Store(maxStreams)
	if status, _, answer := send(t, "GET", url+"/progress/stream",
		""); status != 429 || !strings.Contains(string(answer), "16") {
		t.Errorf("%d %s", status, answer)
	}
	if h.streams.Load() != maxStreams {
		t.Error("a refused stream is counted")
	}
}

func TestACallerThatGoesAwayEndsTheBenchmark(t *testing.T) {
	url, h := start(t)
	cluster := etcdtest.Start(t, 1)
	cluster.Members[0].Hang()
	leave, gone := callAndLeave(t, url, `{"endpoints":"`+cluster.Members[0].Endpoint+`"}`)
	eventually(t, "a request at the member", func() bool { return cluster.Members[0].Requests.Load() > 0 })
	leave()
	if err := <-gone; err == nil {
		t.Error("the caller got an answer")
	}
	eventually(t, "the end of the benchmark", func() bool { return !h.Runner.Status().Running })
}

func TestClientsThatMisbehave(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"missing": {"", "no such file"},
		"crash":   {"echo oops >&2; kill -9 $$", "benchmark-client ended without a report (signal: killed): oops"},
		"panic": {
			`echo warming up >&2; ` +
				`printf 'panic: index out of range [4]\n\ngoroutine 1 [running]:\nmain.main()\n' >&2; exit 2`,
			"ended without a report (exit status 2): panic: index out of range [4]\"",
		},
		"fatal": {
			`printf 'runtime: out of memory: cannot allocate\nfatal error: out of memory\n\n' >&2; ` +
				`head -c 50000 /dev/zero | tr '\0' 'x' | fold >&2; exit 2`,
			"ended without a report (exit status 2): runtime: out of memory: cannot allocate\"",
		},
		"no crash": {`printf 'runtime: mlock failed\nno answer\n' >&2; exit 1`,
			"(exit status 1): runtime: mlock failed no answer"},
		"noise":         {"echo hello", "not JSON"},
		"other schema":  {`echo '{"schema":7}'`, "schema 7, expected is 9"},
		"endless":       {"head -c 9000000 /dev/zero", "printed more than 8388608 bytes"},
		"lies":          {`echo '{"schema":9,"ok":1}'; exit 3`, "benchmark-client ended with exit status 3"},
		"endless error": {"head -c 3000000 /dev/zero >&2; exit 1", "ended without a report (exit status 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "client")
			if c.script != "" {
				if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			url, h := startWith(t, path)
			h.Runner.Allow = "10.0.0.251:2379"
			status, _, answer := send(t, "POST", url+"/benchmark/read", seedRead)
			if status != 500 || !strings.Contains(string(answer), c.want) || len(answer) > 3*maxComplaints {
				t.Errorf("%d %.300s, want %q", status, answer, c.want)
			}
		})
	}
}

// TestAStoppedClientIsSeenAndReplaced stops the client for ever, so that it takes no SIGTERM: the progress tells for
// how long it has been silent, a cancel kills it, and the next benchmark runs.
func TestAStoppedClientIsSeenAndReplaced(t *testing.T) {
	url, h := start(t)
	cluster := etcdtest.Start(t, 1)
	body := `{"endpoints":"` + cluster.Members[0].Endpoint + `","total":%d,"clients":2}`
	ended := make(chan []byte)
	go func() {
		_, _, answer := send(t, "POST", url+"/benchmark/write", fmt.Sprintf(body, 10000000))
		ended <- answer
	}()
	eventually(t, "progress", func() bool { return h.Runner.Status().Done > 0 })
	if silent := h.Runner.Status().ClientSilentS; silent > 2 {
		t.Errorf("silent for %v s while it runs", silent)
	}
	var pid int
	h.Runner.Children.mu.Lock()
	for pid = range h.Runner.Children.own {
	}
	h.Runner.Children.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "silence", func() bool { return h.Runner.Status().ClientSilentS > 0.5 })
	began := time.Now()
	h.Runner.Cancel()
	answer := <-ended
	if took := time.Since(began); took > endGrace+5*time.Second {
		t.Errorf("it took %v to end", took)
	}
	if want := "benchmark-client ended without a report (signal: killed)"; !strings.Contains(string(answer), want) {
		t.Errorf("%s, want %q", answer, want)
	}
	if status, _, answer := send(t, "POST", url+"/benchmark/write", fmt.Sprintf(body, 10)); status != 200 {
		t.Errorf("the next one: %d %s", status, answer)
	}
}

func TestABenchmarkIsBoundedByDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$@\" >&2\ncat >&2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	url, _ := startWith(t, path)
	for body, want := range map[string]string{
		`{"endpoints":"[::1]:1"}`:                    `"runTimeout":86400`,
		`{"endpoints":"[::1]:1","runTimeout":86400}`: `"runTimeout":86400`,
		`{"endpoints":"[::1]:1","runTimeout":0.5}`:   `"runTimeout":0.5`,
	} {
		_, _, answer := send(t, "POST", url+"/benchmark/write", body)
		var failed failure
		if err := json.Unmarshal(answer, &failed); err != nil {
			t.Fatal(err)
		}
		const begin = `: run --output=json --progress=json --allow=local {"operation":"put","endpoints":"[::1]:1",`
		if !strings.Contains(failed.Message, begin) || !strings.Contains(failed.Message, want) {
			t.Errorf("%s: the client is given %s, want %q", body, failed.Message, want)
		}
	}
}

func TestServeEndsAtOnceAndAnswersWhatItHas(t *testing.T) {
	t.Setenv(asClient, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cluster := etcdtest.Start(t, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	results := openResults(t)
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- Serve(ctx, listener, Options{Client: self, Results: results}, log.New(io.Discard, "", 0))
	}()
	answered := make(chan []byte)
	go func() {
		_, _, answer := send(t, "POST", "http://"+listener.Addr().String()+"/benchmark/write",
			`{"endpoints":"`+cluster.Members[0].Endpoint+`","total":10000000}`)
		answered <- answer
	}()
	eventually(t, "requests", func() bool { return cluster.Members[0].Requests.Load() > 10 })
	end()
	if answer := <-answered; !bytes.Contains(answer, []byte(`"reason":"cancelled"`)) {
		t.Errorf("the benchmark under way answers %s", answer)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestReapingLeavesOwnChildrenAlone(t *testing.T) {
	var children Children
	own, orphan := exec.Command("true"), exec.Command("true")
	if err := children.Start(own); err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := 0
	eventually(t, "the orphan", func() bool {
		n, err := children.ReapOrphans()
		if err != nil {
			t.Error(err)
		}
		reaped += n
		return reaped > 0
	})
	if err := children.Wait(own); err != nil {
		t.Errorf("the own child: %v", err)
	}
	if err := orphan.Wait(); err == nil {
		t.Error("the orphan was not reaped")
	}
}

func TestEndedChild(t *testing.T) {
	for stat, ended := range map[string]bool{"": false, "x": false, ") (": false, "12 (a) b) Z 1": os.Getpid() == 1,
		"12 (a": false} {
		if _, got := endedChild(stat); got != ended {
			t.Errorf("%q: %v", stat, got)
		}
	}
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
