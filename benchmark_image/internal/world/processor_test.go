package world

import (
	"os"
	"path/filepath"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

func TestRunDelayIsThatOfAllThreads(t *testing.T) {
	tasks := t.TempDir()
	for thread, text := range map[string]string{"7": "900 3000 4\n", "8": "100 200 1\n"} {
		assert.OK(t, os.Mkdir(filepath.Join(tasks, thread), 0o700))
		assert.OK(t, os.WriteFile(filepath.Join(tasks, thread, "schedstat"), []byte(text), 0o600))
	}
	if err := os.Mkdir(filepath.Join(tasks, "9"), 0o700); err != nil { // a thread that has just ended
		t.Fatal(err)
	}
	now := Processor{waits: waitsOf(tasks)}
	_, delay := now.Since(Processor{waits: map[string]threadWait{}})
	assert.That(t, *delay == (RunDelay{3200, 750}), "got %v", *delay)
	before := Processor{waits: map[string]threadWait{"7": {2900, 2}, "8": {0, 0}}}
	_, delayed := now.Since(before)
	assert.That(t, *delayed == (RunDelay{300, 200}), "since it waited before, got %v", *delayed)
}

func TestRunDelayIsUnknownWithoutAccounts(t *testing.T) {
	tasks := t.TempDir()
	assert.That(t, waitsOf(filepath.Join(tasks, "none")) == nil, "known without a folder")
	assert.That(t, waitsOf(tasks) == nil, "known without a thread")
	assert.OK(t, os.Mkdir(filepath.Join(tasks, "7"), 0o700))
	assert.OK(t, os.WriteFile(filepath.Join(tasks, "7", "schedstat"), []byte("0 0\n"), 0o600))
	assert.That(t, waitsOf(tasks) == nil, "known from another form")
}

func TestProcessorCountsTheWorkOfThisProcess(t *testing.T) {
	before, work := processorNow(), 0
	for processorNow().used == before.used {
		work++
	}
	used, _ := processorNow().Since(before)
	assert.That(t, used > 0, "%d turns took %v of CPU time", work, used)
}

func TestADelayThatIsNotKnownIsNone(t *testing.T) {
	some := map[string]threadWait{}
	for _, known := range []Processor{{used: 5}, {used: 5, waits: some}} {
		before := Processor{used: 2}
		if known.waits == nil {
			before.waits = some
		}
		used, delay := known.Since(before)
		assert.That(t, used == 3 && delay == nil, "got %v, %v", used, delay)
	}
}
