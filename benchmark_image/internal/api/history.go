package api

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"time"

	"containernet-env/benchmark_image/internal/spec"
)

// newHistory makes an empty file for the history of the next benchmark, in place of the last one's.
func (r *Runner) newHistory() (path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeHistory()
	r.history, err = r.Results.newHistory()
	return r.history, err
}

func (r *Runner) removeHistory() {
	if r.history != "" {
		// It may be gone already, and is of no use to anybody.
		_ = os.Remove(r.history)
		r.history = ""
	}
}

// Forget removes what is kept of benchmarks that have ended.
func (r *Runner) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeHistory()
}

// openHistory opens the history of the last benchmark that kept one; fs.ErrNotExist if there is none, errBusy while a
// benchmark runs.
func (r *Runner) openHistory() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.current != nil:
		return nil, errBusy
	case r.history == "":
		return nil, fs.ErrNotExist
	}
	return os.Open(r.history)
}

// keptHistory sends the history of the last benchmark that kept one.
func (h *Handler) keptHistory(w http.ResponseWriter, r *http.Request) {
	file, err := h.Runner.openHistory()
	switch {
	case errors.Is(err, errBusy):
		h.answer(w, http.StatusConflict, spec.Problem{Message: err.Error()})
		return
	case errors.Is(err, fs.ErrNotExist):
		h.answer(w, http.StatusNotFound, spec.Problem{Message: `no benchmark with "history": true has run`})
		return
	case err != nil:
		h.answer(w, http.StatusInternalServerError, failure{Message: err.Error()})
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/gzip")
	http.ServeContent(w, r, "", time.Time{}, file)
}
