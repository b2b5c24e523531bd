//go:build plumbing

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/client"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// asClient makes the test program behave as benchmark-client, so that no other program is needed.
const asClient = "TEST_AS_BENCHMARK_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) != "" {
		client.Process("test", nil)
	}
	os.Exit(m.Run())
}

// start serves with the test program as the client.
func start(t *testing.T) *server {
	t.Helper()
	t.Setenv(asClient, "1")
	self := assert.Got(os.Executable())(t)
	return serve(t, self)
}

// serve serves with a program as the client.
func serve(t testing.TB, client string) *server {
	t.Helper()
	h := newHandler(t, nil)
	h.Runner.Client, h.Runner.Start, h.Runner.Allow = client, new(Children).Start, "127.0.0.0/8"
	listening := httptest.NewServer(h)
	t.Cleanup(listening.Close)
	return &server{h, t, listening.Client(), listening.URL}
}

// runningJob waits for a benchmark with requests that are done, and gives the id of its job.
func runningJob(t testing.TB, h *Handler) string {
	t.Helper()
	var status Status
	hang.Until(t, "a benchmark", func() bool { status = h.Runner.Status(); return status.Done > 0 })
	return *status.Job
}

// TestACallersConnectionEndsTheBenchmark also while a member hangs.
func TestACallersConnectionEndsTheBenchmark(t *testing.T) {
	s := start(t)
	member := etcdtest.Start(t, 1).Members[0]
	leave, answered := s.begin("/benchmark/write", `{"endpoints":"`+member.Endpoint+`","total":10000000}`)
	job := runningJob(t, s.Handler)
	member.Hang()
	leave()
	r := <-answered
	assert.That(t, r.status == 0, "the caller got %d %s", r.status, r.answer)
	var statuses []int // while it runs, the result, and none: the server removes what it has sent
	hang.Until(t, "the result to be removed", func() bool {
		status, _, answer := s.send("GET", spec.ResultPath+job, "")
		f := failed(t, answer)
		assert.That(t, status != 500 || (f.Result != nil && *f.Result.Reason == "cancelled"), "%s", answer)
		statuses = append(statuses, status)
		return status == 404
	})
	assert.That(t, slices.Contains(statuses, 500), "there was no result: %v", statuses)
}

// withGrace starts programs that get this much time to end.
func withGrace(children *Children, grace time.Duration) func(context.Context, Program) (func() error, error) {
	return func(ctx context.Context, p Program) (func() error, error) {
		p.Grace = func() time.Duration { return grace }
		return children.Start(ctx, p)
	}
}

// TestAStoppedClientIsSeenAndReplaced stops the client for ever, so that it takes no SIGTERM: the progress tells for
// how long it has been silent, a cancel kills it, and the next benchmark runs.
func TestAStoppedClientIsSeenAndReplaced(t *testing.T) {
	s := start(t)
	children := &Children{}
	s.Runner.Start = withGrace(children, time.Millisecond)
	body := `{"endpoints":"` + etcdtest.Start(t, 1).Members[0].Endpoint + `","total":%d,"clients":2}`
	_, answered := s.begin("/benchmark/write", fmt.Sprintf(body, 10000000))
	runningJob(t, s.Handler)
	children.mu.Lock()
	for pid := range children.own {
		assert.OK(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	children.mu.Unlock()
	hang.Until(t, "silence", func() bool { return s.Runner.Status().ClientSilentS > 0.5 })
	s.Runner.Cancel()
	r := <-answered
	assert.That(t, strings.Contains(string(r.answer), "ended without a report (signal: killed)"), "%s", r.answer)
	status, _, answer := s.send("POST", "/benchmark/write", fmt.Sprintf(body, 10))
	assert.That(t, status == 200, "the next one: %d %s", status, answer)
}

// TestClientsThatEnd has those that no other process can stand for: one is killed, and one gets its grace to end by
// itself after SIGTERM.
func TestClientsThatEnd(t *testing.T) {
	for text, want := range map[string]string{
		"echo '{\"done\":1}' >&2; sleep 0.1; echo oops >&2; kill -9 $$": "ended without a report (signal: killed): oops",
		"trap 'sleep 0.1; echo took its time >&2; exit 1' TERM\necho '{\"done\":1}' >&2\n" +
			"while :; do sleep 0.05; done": "took its time",
	} {
		path := filepath.Join(t.TempDir(), "client")
		assert.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		s := serve(t, path)
		s.Runner.Start = withGrace(&Children{}, hang.Limit)
		_, answered := s.begin("/benchmark/write", thousand)
		if strings.HasPrefix(text, "trap") {
			runningJob(t, s.Handler)
			s.Runner.Cancel()
		}
		r := <-answered
		found := r.status == 500 && strings.Contains(string(r.answer), want)
		assert.That(t, found, "%d %s, want %q", r.status, r.answer, want)
	}
}

func TestServeEndsAtOnceAndAnswersWhatItHas(t *testing.T) {
	s, member, served := start(t), etcdtest.Start(t, 1).Members[0], make(chan error)
	listener := assert.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- Serve(ctx, listener, s.Handler) }()
	s.url = "http://" + listener.Addr().String()
	_, answered := s.begin("/benchmark/write", `{"endpoints":"`+member.Endpoint+`","total":10000000}`)
	hang.Until(t, "requests", func() bool { return member.Requests.Load() > 10 })
	cancel()
	assert.OK(t, <-served)
	r := <-answered
	assert.That(t, *failed(t, r.answer).Result.Reason == "cancelled", "the benchmark under way answers %s", r.answer)
}

func TestReapingLeavesOwnChildrenAlone(t *testing.T) {
	var children Children
	wait := assert.Got(children.Start(t.Context(), Program{Args: []string{"/bin/true"}}))(t)
	orphan := exec.Command("true")
	assert.OK(t, orphan.Start())
	reaped := 0
	hang.Until(t, "the orphan", func() bool {
		reaped += children.ReapOrphans()
		return reaped > 0
	})
	assert.OK(t, wait())
	assert.That(t, len(children.own) == 0 && orphan.Wait() != nil, "still known: %v, or not reaped", children.own)
}

const examplesFile = "examples.md"

var (
	example = regexp.MustCompile("(?s)```sh\n(curl [^\n]*)\n```\n\nAnswer (\\d+):\n\n```json\n([^\n]*)\n```")
	curl    = regexp.MustCompile(`^curl (?:-X (\w+) )?(?:-d '([^']*)' )?http://localhost:8080(/\S*)$`)
)

var update = flag.Bool("update", false, "write the answers of the examples anew")

// TestExamplesInTheDocs runs every example, in order, against a cluster whose members replace those in the
// examples. Answers must be equal, except for measured figures.
func TestExamplesInTheDocs(t *testing.T) {
	encoded := assert.Got(os.ReadFile(examplesFile))(t)
	text := string(encoded)
	examples := example.FindAllStringSubmatch(text, -1)
	blocks := strings.Count(text, "```sh")
	assert.Must(t, len(examples) == blocks && blocks >= 5, "%d of %d examples have the right form", len(examples), blocks)
	s := start(t)
	cluster := etcdtest.Start(t, 3)
	var toTest []string
	toDocs := []string{"127.0.0.0/8", "local"}
	for i, endpoint := range cluster.Endpoints() {
		inDocs := fmt.Sprintf("10.0.0.%d:2379", 251+i)
		toTest, toDocs = append(toTest, inDocs, endpoint), append(toDocs, endpoint, inDocs)
	}
	for _, e := range examples {
		call := curl.FindStringSubmatch(e[1])
		assert.Must(t, call != nil, "cannot read %s", e[1])
		method, body, path := call[1], call[2], call[3]
		if method == "" {
			method = map[bool]string{true: "POST", false: "GET"}[body != ""]
		}
		status, _, answer := s.send(method, path, strings.NewReplacer(toTest...).Replace(body))
		assert.Must(t, strconv.Itoa(status) == e[2], "%s\nanswers %d %s", e[1], status, answer)
		if *update {
			written := strings.NewReplacer(toDocs...).Replace(string(bytes.TrimSpace(answer)))
			text = strings.Replace(text, e[0], strings.Replace(e[0], e[3], written, 1), 1)
			continue
		}
		var got, want any
		assert.OK(t, json.Unmarshal([]byte(strings.NewReplacer(toDocs...).Replace(string(answer))), &got))
		err := json.Unmarshal([]byte(e[3]), &want)
		assert.That(t, err == nil, "the answer of %s in the docs: %v", e[1], err)
		if object := want.(map[string]any); object["schema"] != nil {
			reporttest.Check(t, []byte(e[3]))
		}
		found, wanted := withoutFigures(got, false), withoutFigures(want, false)
		assert.That(t, reflect.DeepEqual(found, wanted), "%s\nanswers   %v\nin the docs %v", e[1], found, wanted)
	}
	if *update {
		assert.OK(t, os.WriteFile(examplesFile, []byte(text), 0o644))
	}
}

// mayBeZero are measured figures that are 0 at times.
var mayBeZero = []string{
	"run_delay_s", "mean_run_delay_s", "pause_s", "pauses", "paused_s", "drain_s", "longest_gap_start_s",
}

// withoutFigures replaces measured figures: numbers in fields that end in _s, the start, percentiles, histograms, and
// the number and contents of a timeline's rows. How many requests of an open loop were sent depends on the machine, so
// all its numbers are figures but for what is configured. Other tests judge schedules.
func withoutFigures(v any, open bool) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	open = open || object["schedule"] != nil
	for name, value := range object {
		switch value := value.(type) {
		case float64:
			measured := strings.HasSuffix(name, "_s") || name == "began_ns" || name == "busy_ratio" || name == "pauses"
			measured = measured && (value != 0 || slices.Contains(mayBeZero, name)) && name != "rate_offered_per_s"
			if measured || open {
				object[name] = "a figure"
			}
		case string:
			if name == "histogram" || name == "job" {
				object[name] = "a figure"
			}
		case []any:
			if name == "timeline" && len(value) > 0 {
				object[name] = slices.Sorted(maps.Keys(value[0].(map[string]any)))
			}
			for i := range value {
				value[i] = withoutFigures(value[i], open)
			}
		case map[string]any:
			if strings.HasPrefix(name, "percentiles") || name == "schedule" {
				for p := range value {
					value[p] = "a figure"
				}
			}
			object[name] = withoutFigures(value, open && name != "configured")
		}
	}
	return object
}
