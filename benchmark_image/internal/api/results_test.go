package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/spec"
)

// TestAnAnswerIsKeptUntilItIsFetched: what the caller got can be fetched once more, also from another server after a
// restart.
func TestAnAnswerIsKeptUntilItIsFetched(t *testing.T) {
	s, restarted := simulate(t, decodeOnly), simulate(t, nil)
	_, _, answer := s.send("POST", "/benchmark/write", thousand)
	reopened := assert.Got(OpenResults(s.Runner.Results.dir))(t)
	restarted.Runner.Results = reopened
	status, _, kept := restarted.send("GET", spec.ResultPath+jobOf(t, answer), "")
	assert.That(t, status == 200 && bytes.Equal(kept, answer), "%d %s\nwant %s", status, kept, answer)
	entries, err := os.ReadDir(reopened.dir)
	assert.That(t, err == nil && len(entries) == 0, "%v is left, %v", entries, err)
}

// TestTheLastHistoryIsKept also after a benchmark that kept none, until the next one that does.
func TestTheLastHistoryIsKept(t *testing.T) {
	text := ""
	s := simulate(t, func(ctx context.Context, p Program) error {
		path, keeps := strings.CutPrefix(p.Args[len(p.Args)-1], "--history-file=")
		assert.That(t, keeps == (text != ""), "%q: a client with %v", text, p.Args)
		if keeps {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
		}
		return decodeOnly(ctx, p)
	})
	kept := ""
	for _, text = range []string{"the first", "", "another"} {
		body := fmt.Sprintf(`{"endpoints":"127.0.0.1:1","valSize":20,"history":%v}`, text != "")
		status, _, answer := s.send("POST", "/benchmark/write", body)
		assert.Must(t, status == 200, "%d: %s", status, answer)
		if text != "" {
			kept = text
		}
		response := assert.Got(s.client.Get(s.url + "/benchmark/history"))(t)
		got, err := io.ReadAll(response.Body)
		assert.That(t, err == nil && response.StatusCode == 200 && string(got) == kept &&
			response.ContentLength == int64(len(kept)) && response.Header.Get("Content-Type") == "application/gzip",
			"%d %v %q, %v", response.StatusCode, response.Header, got, err)
	}
	s.Runner.Forget()
	left, err := filepath.Glob(filepath.Join(s.Runner.Results.dir, "*history*"))
	code, _, _ := s.send("GET", "/benchmark/history", "")
	assert.That(t, code == 404 && err == nil && len(left) == 0, "afterwards: %d, %v is left, %v", code, left, err)
}

func TestKeptResultsAreBounded(t *testing.T) {
	results := openResults(t)
	ids := make([]string, keptResults+4)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	put := func(i, size int) {
		ids[i] = newJob()
		assert.OK(t, results.Put(ids[i], 200, bytes.Repeat([]byte("x"), size)))
		// In the order in which they came, whatever the resolution of the file system.
		at := begin.Add(time.Duration(i) * time.Second)
		assert.OK(t, os.Chtimes(filepath.Join(results.dir, ids[i]+".200.json"), at, at))
	}
	kept := func() (text string) {
		for _, id := range ids {
			path, _, _, err := results.Get(id)
			assert.OK(t, err)
			text += map[bool]string{true: "+", false: "-"}[path != ""]
		}
		return text
	}
	for i := range keptResults + 3 {
		put(i, 10)
	}
	assert.Equal(t, kept(), "---"+strings.Repeat("+", keptResults)+"-", "kept of small ones")
	put(keptResults+3, keptBytes-20)
	assert.Equal(t, kept(), strings.Repeat("-", keptResults+1)+"+++", "kept beside a large one")
}

// TestWhatAKilledServerLeftIsRemoved at the start of the next one, and not while another one uses the folder.
func TestWhatAKilledServerLeftIsRemoved(t *testing.T) {
	killed := openResults(t)
	id := newJob()
	assert.OK(t, killed.Put(id, 200, nil))
	history := assert.Got(killed.newHistory())(t)
	stay := []string{"mine.json.part", "benchmark-history-mine.jsonl.gz", id + ".200.json"}
	left := []string{newJob() + ".500.json.part", filepath.Base(history)}
	for _, name := range []string{stay[0], stay[1], left[0]} {
		assert.OK(t, os.WriteFile(filepath.Join(killed.dir, name), nil, 0o600))
	}
	check := func(when string, want ...string) {
		t.Helper()
		entries := assert.Got(os.ReadDir(killed.dir))(t)
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		assert.Equal(t, got, slices.Sorted(slices.Values(want)), "%s", when)
	}
	last := killed
	for range 2 { // each one begins before the one before it ends
		beside := assert.Got(OpenResults(killed.dir))(t)
		check("beside another server", slices.Concat(stay, left)...)
		assert.OK(t, last.lock.Close()) // as where it is killed
		last = beside
	}
	assert.OK(t, last.lock.Close())
	for range 2 {
		assert.Got(OpenResults(killed.dir))(t)
		check("after all", stay...)
	}
}

func TestOnlyADirectoryOfOnesOwnKeepsResults(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	assert.OK(t, os.Mkdir(open, 0o700))
	assert.OK(t, os.Chmod(open, 0o777))
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	assert.OK(t, os.Symlink(t.TempDir(), link))
	assert.OK(t, os.WriteFile(file, nil, 0o600))
	own := filepath.Join(dir, "new", "one")
	for path, taken := range map[string]bool{open: false, link: false, file: false, own: true} {
		_, err := OpenResults(path)
		assert.That(t, (err == nil) == taken, "%s keeps results: %v", path, err)
	}
}
