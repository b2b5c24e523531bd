package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"containernet-env/benchmark_image/internal/spec"
)

const (
	// maxStreams is how many callers may follow the progress at the same time.
	maxStreams = 16
	// streamInterval is the time between two lines.
	streamInterval = 200 * time.Millisecond
	// lineTimeout is how long a caller may take to read a line.
	lineTimeout = 5 * time.Second
)

// stream sends the progress of the running benchmark, one JSON object per line, until that benchmark has ended: the
// last line says that nothing runs. Without a benchmark that is the only line.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	if h.streams.Add(1) > maxStreams {
		h.streams.Add(-1)
		h.answer(w, http.StatusTooManyRequests, spec.Problem{
			Message: fmt.Sprintf("%d callers follow the progress already", maxStreams),
			Allowed: fmt.Sprintf("at most %d streams", maxStreams),
		})
		return
	}
	defer h.streams.Add(-1)
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	ticker := time.NewTicker(streamInterval)
	defer ticker.Stop()
	first := h.Runner.Status()
	for status := first; ; status = h.Runner.Status() {
		if status.job != first.job {
			status = Status{}
		}
		err := control.SetWriteDeadline(time.Now().Add(lineTimeout))
		if err == nil {
			err = lines.Encode(status)
		}
		if err == nil {
			err = control.Flush()
		}
		if err != nil || !status.Running {
			return // with an error, the caller is gone
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}
