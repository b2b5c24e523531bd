package load

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRunDelayIsThatOfAllThreads(t *testing.T) {
	tasks := t.TempDir()
	for thread, text := range map[string]string{"7": "900 3000 4\n", "8": "100 200 1\n"} {
		if err := os.Mkdir(filepath.Join(tasks, thread), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tasks, thread, "schedstat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(tasks, "9"), 0o700); err != nil { // a thread that has just ended
		t.Fatal(err)
	}
	if delay, known := runDelay(tasks); delay != 3200 || !known {
		t.Errorf("got %v, %v", delay, known)
	}
}

func TestRunDelayIsUnknownWithoutAccounts(t *testing.T) {
	tasks := t.TempDir()
	if _, known := runDelay(filepath.Join(tasks, "none")); known {
		t.Error("known without a folder")
	}
	if _, known := runDelay(tasks); known {
		t.Error("known without a thread")
	}
	if err := os.Mkdir(filepath.Join(tasks, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tasks, "7", "schedstat"), []byte("0 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, known := runDelay(tasks); known {
		t.Error("known from another form")
	}
}

func TestProcessorCountsTheWorkOfThisProcess(t *testing.T) {
	before, work := processorNow(), 0
	for begin := time.Now(); time.Since(begin) < 30*time.Millisecond || processorNow().used == before.used; {
		work++
	}
	used, _ := processorNow().since(before)
	if used <= 0 || used > 10*time.Second {
		t.Errorf("%d turns took %v of CPU time", work, used)
	}
}

func TestADelayThatIsNotKnownIsNone(t *testing.T) {
	used, delay := processor{used: 5, delay: 9}.since(processor{used: 2, delay: 1, delayed: true})
	if used != 3 || delay != nil {
		t.Errorf("got %v, %v", used, delay)
	}
	if _, delay = (processor{delay: 9, delayed: true}).since(processor{delay: 1, delayed: true}); delay == nil || *delay != 8 {
		t.Errorf("got %v", delay)
	}
}
