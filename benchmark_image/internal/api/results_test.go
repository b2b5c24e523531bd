package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

func openResults(t testing.TB) *Results {
	t.Helper()
	results, err := OpenResults(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// runningJob waits for a benchmark with requests that are done, and gives the id of its job.
func runningJob(t testing.TB, h *Handler) string {
	t.Helper()
	var status Status
	eventually(t, "a benchmark", func() bool { status = h.Runner.Status(); return status.Done > 0 })
	return *status.Job
}

// callAndLeave asks for a benchmark of writes; leave ends the connection, and gone then has the caller's error, nil if
// it was answered.
func callAndLeave(t *testing.T, url, body string) (leave context.CancelFunc, gone <-chan error) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "POST", url+"/benchmark/write", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	return leave, ended
}

// TestAResultIsNotLostWithItsConnection: the caller goes away, which ends the benchmark; its result is there for
// whoever has read the job's id in the progress, once.
func TestAResultIsNotLostWithItsConnection(t *testing.T) {
	url, h := start(t)
	cluster := etcdtest.Start(t, 1)
	leave, gone := callAndLeave(t, url, `{"endpoints":"`+cluster.Members[0].Endpoint+`","duration":60}`)
	job := runningJob(t, h)
	status, _, answer := send(t, "GET", url+spec.ResultPath+job, "")
	if status != 409 || !strings.Contains(string(answer), "still running") {
		t.Errorf("while it runs: %d %s", status, answer)
	}
	leave()
	if err := <-gone; err == nil {
		t.Error("the caller got an answer")
	}
	eventually(t, "the result", func() bool {
		status, _, answer = send(t, "GET", url+spec.ResultPath+job, "")
		return status != 409
	})
	var failed failure
	if err := json.Unmarshal(answer, &failed); err != nil {
		t.Fatal(err)
	}
	if status != 500 || *failed.Job != job || failed.Result == nil || *failed.Result.Job != job ||
		failed.Result.OK == 0 || *failed.Result.Reason != "cancelled" {
		t.Errorf("%d %s", status, answer)
	}
	// The server removes what it has sent: the caller may have read it a moment earlier.
	eventually(t, "the result to be removed", func() bool {
		status, _, _ := send(t, "GET", url+spec.ResultPath+job, "")
		return status == 404
	})
}

// TestAnAnswerIsKeptUntilItIsFetched: what the caller got can be fetched once more, also by another server after a
// restart.
func TestAnAnswerIsKeptUntilItIsFetched(t *testing.T) {
	url, h := start(t)
	cluster := etcdtest.Start(t, 1)
	body := `{"endpoints":"` + cluster.Members[0].Endpoint + `","total":20}`
	_, _, answer := send(t, "POST", url+"/benchmark/write", body)
	reporttest.Check(t, answer)
	var result report.Result
	if err := json.Unmarshal(answer, &result); err != nil {
		t.Fatal(err)
	}
	again, other := startWith(t, "/nonexistent")
	reopened, err := OpenResults(h.Runner.Results.dir)
	if err != nil {
		t.Fatal(err)
	}
	other.Runner.Results = reopened
	status, _, kept := send(t, "GET", again+spec.ResultPath+*result.Job, "")
	if status != 200 || !bytes.Equal(kept, answer) {
		t.Errorf("%d %s\nwant %s", status, kept, answer)
	}
	// The server removes what it has sent: the caller may have read it a moment earlier.
	eventually(t, "the answer to be removed", func() bool {
		entries, err := os.ReadDir(h.Runner.Results.dir)
		return err == nil && len(entries) == 0
	})
}

func TestKeptResultsAreBounded(t *testing.T) {
	results := openResults(t)
	ids := make([]string, 2*keptResults)
	begin := time.Now().Add(-time.Hour)
	put := func(i, size int) {
		ids[i] = newJob()
		if err := results.Put(ids[i], 200, bytes.Repeat([]byte("x"), size)); err != nil {
			t.Fatal(err)
		}
		// In the order in which they came, whatever the resolution of the file system.
		at := begin.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(filepath.Join(results.dir, ids[i]+".200.json"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (text string) {
		for _, id := range ids {
			if id == "" {
				break
			}
			_, _, found, err := results.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			text += map[bool]string{true: "+", false: "-"}[found]
		}
		return text
	}
	for i := range keptResults + 3 {
		put(i, 10)
	}
	if want := "---" + strings.Repeat("+", keptResults); kept() != want {
		t.Errorf("of %d results %s are kept, want %s", keptResults+3, kept(), want)
	}
	put(keptResults+3, keptBytes-20)
	if want := strings.Repeat("-", keptResults+1) + "+++"; kept() != want {
		t.Errorf("beside a large one %s are kept, want %s", kept(), want)
	}
}

// TestWhatAKilledServerLeftIsRemoved at the start of the next one, and not while another one uses the folder.
func TestWhatAKilledServerLeftIsRemoved(t *testing.T) {
	killed := openResults(t)
	id := newJob()
	if err := killed.Put(id, 200, nil); err != nil {
		t.Fatal(err)
	}
	history, err := killed.newHistory()
	if err != nil {
		t.Fatal(err)
	}
	stay := []string{"mine.json.part", "benchmark-history-mine.jsonl.gz", id + ".200.json"}
	left := []string{newJob() + ".500.json.part", filepath.Base(history)}
	for _, name := range []string{stay[0], stay[1], left[0]} {
		if err := os.WriteFile(filepath.Join(killed.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want ...string) {
		t.Helper()
		entries, err := os.ReadDir(killed.dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	kill := func(r *Results) {
		t.Helper()
		if err := r.lock.Close(); err != nil { // as the kernel does
			t.Fatal(err)
		}
	}
	last := killed
	for range 2 { // each one begins before the one before it ends
		beside, err := OpenResults(killed.dir)
		if err != nil {
			t.Fatal(err)
		}
		check("beside another server", slices.Concat(stay, left)...)
		kill(last)
		last = beside
	}
	kill(last)
	for range 2 {
		if _, err := OpenResults(killed.dir); err != nil {
			t.Fatal(err)
		}
		check("after all", stay...)
	}
}

func TestOnlyADirectoryOfOnesOwnKeepsResults(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, link, file} {
		if _, err := OpenResults(path); err == nil {
			t.Errorf("%s keeps results", path)
		}
	}
	if _, err := OpenResults(filepath.Join(dir, "new", "one")); err != nil {
		t.Error(err)
	}
}

// TestTheGraceFollowsTheWork: a client that has many latencies gets more time for its report than one that has few,
// which TestAStoppedClientIsSeenAndReplaced is about.
func TestTheGraceFollowsTheWork(t *testing.T) {
	if grace := (&job{}).grace(); grace != endGrace {
		t.Errorf("a client that has done nothing gets %v", grace)
	}
	// It says how much is done, takes longer than the grace of an idle one after SIGTERM, and ends without a report.
	const script = "#!/bin/sh\ntrap 'sleep %v; echo took its time >&2; exit 1' TERM\n" +
		"echo '{\"done\":%d}' >&2\nwhile :; do sleep 0.05; done\n"
	path := filepath.Join(t.TempDir(), "client")
	program := fmt.Appendf(nil, script, (endGrace + time.Second).Seconds(), 10*report.MaxKept)
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	url, h := startWith(t, path)
	h.Runner.Allow = "10.0.0.0/24"
	answered := make(chan []byte)
	go func() {
		_, _, answer := send(t, "POST", url+"/benchmark/read", seedRead)
		answered <- answer
	}()
	runningJob(t, h)
	if grace := h.Runner.Grace(); grace != endGrace+report.MaxKept*reportTime {
		t.Errorf("%v of grace", grace)
	}
	h.Runner.Cancel()
	answer := string(<-answered)
	if strings.Contains(answer, "signal: killed") || !strings.Contains(answer, "took its time") {
		t.Errorf("answer %s", answer)
	}
}
