package world

import (
	"os"
	"path/filepath"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

// TestRunDelayIsThatOfAllThreads, since one reading or another; without accounts, it is unknown.
func TestRunDelayIsThatOfAllThreads(t *testing.T) {
	tasks := t.TempDir()
	assert.That(t, waitsOf(filepath.Join(tasks, "none")) == nil && waitsOf(tasks) == nil, "known without a thread")
	write := func(thread, text string) {
		assert.OK(t, os.MkdirAll(filepath.Join(tasks, thread), 0o700),
			os.WriteFile(filepath.Join(tasks, thread, "schedstat"), []byte(text), 0o600))
	}
	write("7", "0 0\n")
	assert.That(t, waitsOf(tasks) == nil, "known from another form")
	write("7", "900 3000 4\n")
	write("8", "100 200 1\n")
	assert.OK(t, os.Mkdir(filepath.Join(tasks, "9"), 0o700)) // a thread that has just ended
	none, waits := map[string]threadWait{}, waitsOf(tasks)
	for _, c := range []struct {
		before, now map[string]threadWait
		want        *RunDelay // nil: unknown
	}{
		{none, waits, &RunDelay{3200, 750}},
		{map[string]threadWait{"7": {2900, 2}, "8": {0, 0}}, waits, &RunDelay{300, 200}},
		{none, nil, nil},
		{nil, none, nil},
	} {
		used, delay := Processor{used: 5, waits: c.now}.Since(Processor{used: 2, waits: c.before})
		assert.Equal(t, delay, c.want, "since %v", c.before)
		assert.Equal(t, used, 3, "CPU time")
	}
}

func TestProcessorCountsTheWorkOfThisProcess(t *testing.T) {
	before, work := processorNow(), 0
	for processorNow().used == before.used {
		work++
	}
	used, _ := processorNow().Since(before)
	assert.That(t, used > 0, "%d turns took %v of CPU time", work, used)
}
