package load

import (
	"testing"

	"containernet-env/benchmark_image/internal/keys"
)

// TestReadsThatTellNoRevision: nothing can be said against them. One that tells a revision is held to it.
func TestReadsThatTellNoRevision(t *testing.T) {
	run := NewRun(Options{Clients: 1, Pacer: ClosedLoop{Total: 9},
		Targeter: &Reads{KeySize: 1, Order: keys.NewOrder(9, true, 0)}})
	for _, step := range []struct {
		revision int64
		want     error
	}{{7, nil}, {0, nil}, {6, errBehind}, {7, nil}} {
		request, _ := run.Ask(0, nil)
		if err := run.CheckRevision(request, step.revision, 1, false); err != step.want {
			t.Errorf("revision %d after 7: %v, want %v", step.revision, err, step.want)
		}
	}
}
