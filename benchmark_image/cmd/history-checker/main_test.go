package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/verify"
)

func TestAViolationThatWasFoundOutlivesTheMemory(t *testing.T) {
	over := make(chan struct{})
	close(over)
	var found atomic.Pointer[verify.Result]
	o := first(nil, over, &found, 7)
	assert.That(t, o.result.Verdict == verify.Undecided && strings.Contains(o.result.Reason, "7 bytes"), "%+v", o.result)
	violation := &verify.Result{Verdict: verify.Violated, Reason: "no order"}
	found.Store(violation)
	assert.Equal(t, first(nil, over, &found, 7), outcome{result: violation}, "with a violation")
}

// violated is the file of a history in which a read finds what had been replaced.
func violated(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.jsonl.gz")
	file := assert.Got(os.Create(path))(t)
	defer file.Close()
	w := history.NewWriter(file, 0, "p/", 1)
	for i, o := range []history.Operation{
		{Op: history.Put, Value: keys.ID{Run: 1, Number: 1}, Revision: 10},
		{Op: history.Put, Value: keys.ID{Run: 1, Number: 2}, Revision: 11},
		{Op: history.Get, Content: history.Written, Value: keys.ID{Run: 1, Number: 1}, ModRevision: 10, Revision: 11},
	} {
		o.Invoked, o.Completed, o.Member = int64(10*i), int64(10*i+5), 1
		w.Add(history.Entry{Operation: o})
	}
	assert.Got(w.Close())(t)
	return path
}

func TestAViolationHasAPictureWhereItCanBeDrawn(t *testing.T) {
	place := filepath.Join(t.TempDir(), "a.html")
	for picture, drawn := range map[string]bool{place: true, filepath.Join(place, "no", "place.html"): false} {
		var stdout, stderr bytes.Buffer
		status := run([]string{"--picture=" + picture, violated(t)}, &stdout, &stderr)
		var result verify.Result
		err := json.Unmarshal(stdout.Bytes(), &result)
		assert.Must(t, err == nil && status == exitViolated && (result.Violation.Picture == picture) == drawn,
			"%s: status %d, %v, %s", picture, status, err, &stdout)
		assert.That(t, (stderr.Len() == 0) == drawn, "%s: %s", picture, &stderr)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(place), "*"))
	assert.That(t, err == nil && len(left) == 1 && left[0] == place, "%v are left, %v", left, err)
}
