// Package api is the HTTP interface of benchmark-server: it validates requests, runs benchmark-client and
// returns its report.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"containernet-env/benchmark_image/internal/spec"
)

const (
	// MaxBody is the largest body of a request, in bytes.
	MaxBody = 64 << 10
	// bodyTimeout is how long a caller may take to send its body.
	bodyTimeout = 10 * time.Second
)

type Handler struct {
	Runner      *Runner
	Hosts       Hosts
	Log         *log.Logger
	Credentials string // the folder of the files that bodies may name; empty: they may name none

	streams atomic.Int32
}

type route struct {
	method string
	serve  func(http.ResponseWriter, *http.Request)
}

func (h *Handler) routes() map[string]route {
	says := func(body func() any) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { h.answer(w, http.StatusOK, body()) }
	}
	routes := map[string]route{
		"/benchmark/cancel": {http.MethodPost, says(func() any {
			return map[string]bool{"cancelled": h.Runner.Cancel()}
		})},
		"/benchmark/history": {http.MethodGet, h.keptHistory},
		"/progress":          {http.MethodGet, says(func() any { return h.Runner.Status() })},
		"/progress/stream":   {http.MethodGet, h.stream},
		"/healthz":           {http.MethodGet, says(func() any { return map[string]bool{"ok": true} })},
	}
	for _, operation := range spec.Operations {
		routes[operation.Path()] = route{http.MethodPost, h.benchmark(operation)}
	}
	return routes
}

// ServeHTTP implements http.Handler. Every answer is JSON, or one JSON object for each line; of a
// history these lines are compressed.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if problem := h.Hosts.refuse(r); problem != nil {
		h.answer(w, http.StatusForbidden, problem)
		return
	}
	route, known := h.routes()[r.URL.Path]
	if id, ok := strings.CutPrefix(r.URL.Path, spec.ResultPath); ok {
		route.method, known = http.MethodGet, true
		route.serve = func(w http.ResponseWriter, _ *http.Request) { h.result(w, id) }
	}
	if !known {
		h.answer(w, http.StatusNotFound, spec.Problem{
			Message: fmt.Sprintf("there is no %.200s", r.URL.Path),
			Allowed: "POST /benchmark/read, /benchmark/write, /benchmark/mixed, /benchmark/txn, /benchmark/cancel; " +
				"GET /benchmark/result/JOB, /benchmark/history, /progress, /progress/stream, /healthz",
		})
		return
	}
	if r.Method != route.method {
		w.Header().Set("Allow", route.method)
		h.answer(w, http.StatusMethodNotAllowed, spec.Problem{
			Message: fmt.Sprintf("%s does not take %.20s", r.URL.Path, r.Method),
			Allowed: route.method,
		})
		return
	}
	if r.URL.RawQuery != "" {
		h.answer(w, http.StatusBadRequest, spec.Problem{
			Message: "the URL has a query: fields stand in the body",
			Field:   "query",
			Got:     spec.Clip(r.URL.RawQuery),
		})
		return
	}
	route.serve(w, r)
}

func (h *Handler) benchmark(operation spec.Operation) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		body, status, problem := readBody(w, r)
		var s *spec.Spec
		var located spec.Spec
		if problem == nil {
			status = http.StatusBadRequest
			if s, problem = spec.ParseBody(operation, body); problem == nil {
				located = *s
				problem = located.Locate(h.Credentials)
			}
		}
		if problem != nil {
			h.answer(w, status, problem)
			return
		}
		problem, err := h.Runner.refuse(r.Context(), s)
		if err != nil {
			h.answer(w, http.StatusInternalServerError, Outcome{Problem: err.Error()})
			return
		}
		if problem != nil {
			h.answer(w, http.StatusForbidden, problem)
			return
		}
		// The context ends when the caller goes away or the server is to end.
		outcome, err := h.Runner.Run(r.Context(), s, located)
		if errors.Is(err, errBusy) {
			h.answer(w, http.StatusConflict, spec.Problem{Message: err.Error()})
			return
		}
		if err != nil {
			h.Log.Print(err)
		}
		if outcome.Problem != "" {
			h.Log.Printf("%s: %s", operation, outcome.Problem)
		}
		status, answer := outcome.answer()
		h.answer(w, status, answer)
	}
}

// result gives the answer to a benchmark that has ended, as its caller got it or should have got it, and removes it
// once it is sent.
func (h *Handler) result(w http.ResponseWriter, id string) {
	if running := h.Runner.Status(); running.Job != nil && *running.Job == id {
		h.answer(w, http.StatusConflict, spec.Problem{Message: "this benchmark is still running"})
		return
	}
	path, status, body, err := h.Runner.Results.Get(id)
	switch {
	case err != nil:
		h.Log.Print(err)
		h.answer(w, http.StatusInternalServerError, Outcome{Problem: err.Error()})
		return
	case path == "":
		h.answer(w, http.StatusNotFound, spec.Problem{
			Message: fmt.Sprintf("there is no result of a job %.200s: "+
				"there was none, it was fetched, or newer ones took its place", id),
		})
		return
	}
	if !h.send(w, status, body) {
		return
	}
	if err := remove(path); err != nil {
		h.Log.Print(err)
	}
}

// readBody reads the body whatever its content type: curl -d labels JSON as a form. status is that of the answer if
// there is a problem.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, problem *spec.Problem) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // every connection has one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, http.StatusRequestEntityTooLarge, &spec.Problem{
			Message: fmt.Sprintf("the body is larger than %d bytes", MaxBody),
			Allowed: fmt.Sprintf("at most %d bytes", MaxBody),
		}
	case err != nil:
		return nil, http.StatusBadRequest, &spec.Problem{Message: fmt.Sprintf("read the body: %v", err)}
	}
	// With the deadline still set, a benchmark that takes longer would look like a caller that went away.
	_ = control.SetReadDeadline(time.Time{})
	return body, http.StatusOK, nil
}

func (h *Handler) answer(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		status, encoded = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded","result":null}`)
		h.Log.Printf("encode an answer: %v", err)
	}
	h.send(w, status, encoded)
}

// send tells whether the system took all of the answer.
func (h *Handler) send(w http.ResponseWriter, status int, encoded []byte) bool {
	encoded = append(encoded, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(encoded)))
	w.WriteHeader(status)
	_, err := w.Write(encoded)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		h.Log.Printf("send an answer: %v", err)
	}
	return err == nil
}

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

// newHistory makes an empty file for the history of the next benchmark, in place of the last one's.
func (r *Runner) newHistory() (path string, err error) {
	r.Forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history, err = r.Results.newHistory()
	return r.history, err
}

// Forget removes what is kept of benchmarks that have ended.
func (r *Runner) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.history != "" {
		_ = os.Remove(r.history) // it may be gone already
		r.history = ""
	}
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
		h.answer(w, http.StatusInternalServerError, Outcome{Problem: err.Error()})
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/gzip")
	http.ServeContent(w, r, "", time.Time{}, file)
}

// ownNameTimeout bounds how long a name is looked up that may be the server's own.
const ownNameTimeout = time.Second

// Hosts decides which requests the server takes, so that no web page in the browser of a user who can reach the
// server starts or cancels a benchmark, or fetches a result, which removes it. The browser tells the page's origin,
// which is refused where it is not the server itself. A page can also have its own name point to the server's address
// after it was loaded (DNS rebinding), and is of the same origin then; but the Host header has its name, which is none
// of the server's.
type Hosts struct {
	Names []string // of the server, beside those that it knows itself

	resolve func(ctx context.Context, network, name string) ([]netip.Addr, error) // for tests
}

// crossOrigin lets requests without an Origin pass, as programs send them.
var crossOrigin = http.NewCrossOriginProtection()

// refuse gives the problem of a request that is not for this server or that a page of another origin sent; nil if it is
// taken.
func (h *Hosts) refuse(r *http.Request) *spec.Problem {
	// Hostname takes off the port, which is another one where it is published or relayed, and the brackets of IPv6.
	host := strings.ToLower(strings.TrimSuffix((&url.URL{Host: r.Host}).Hostname(), "."))
	if !h.own(r.Context(), host) {
		return &spec.Problem{
			Message: fmt.Sprintf("the Host header %.200q does not name this server: "+
				"call it by localhost or an IP address, or start benchmark-server with --host=NAME to add a name", r.Host),
			Field: "Host", Got: spec.Clip(r.Host),
			Allowed: "localhost, an IP address, the server's own host name and container names, or a name given by --host",
		}
	}
	// A GET of another origin would pass: it is judged as a POST.
	posted := *r
	posted.Method = http.MethodPost
	if err := crossOrigin.Check(&posted); err != nil {
		return &spec.Problem{
			Message: fmt.Sprintf("a web page of another origin sent this request (%v): "+
				"call the server from a program, such as curl", err),
			Field: "Origin", Got: spec.Clip(r.Header.Get("Origin")),
			Allowed: "no Origin and no Sec-Fetch-Site, as programs call, or the server's own origin",
		}
	}
	return nil
}

// own tells whether a host in lower case names this server. Addresses always do: only names can be made to point
// elsewhere.
func (h *Hosts) own(ctx context.Context, host string) bool {
	if host == "" {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if slices.ContainsFunc(h.Names, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(name, host) {
		return true
	}
	return !strings.Contains(host, ".") && h.leadsHere(ctx, host)
}

// leadsHere tells whether a name without a dot has one of this machine's addresses. So do the names of a container in
// networks of Docker, such as its service's in Docker Compose. No one can own such a name on the Internet. The dot at
// the end keeps the resolver from adding a domain to it, in which others might.
func (h *Hosts) leadsHere(ctx context.Context, name string) bool {
	resolve := h.resolve
	if resolve == nil {
		resolve = net.DefaultResolver.LookupNetIP
	}
	ctx, cancel := context.WithTimeout(ctx, ownNameTimeout)
	defer cancel()
	found, err := resolve(ctx, "ip", name+".")
	if err != nil {
		return false
	}
	ours, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ours, func(own net.Addr) bool {
		prefix, err := netip.ParsePrefix(own.String())
		return err == nil && slices.ContainsFunc(found, func(a netip.Addr) bool { return a.Unmap() == prefix.Addr() })
	})
}
