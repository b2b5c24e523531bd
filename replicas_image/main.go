// Command replicas is one of N replicas of a key-value service. Any of them coordinates a request: it sends it to all,
// and answers when as many as the request requires have answered (ack of a write, from of a read). Of two versions the
// later one wins, by the clock of its coordinator. With ack+from > N, a read meets every acknowledged write; with less,
// it may not, which is what this service is there to show.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("replicas: ", err)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("replicas", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "host:port to serve on")
	peers := flags.String("peers", "",
		"host:port of all replicas, comma-separated, in the same order for each; this one's among them")
	self := flags.Int("id", 0, "number of this replica among the peers, from 0")
	data := flags.String("data", "", "folder to keep data in")
	timeout := flags.Duration("timeout", time.Second, "for how long other replicas may take to answer")
	noSync := flags.Bool("unsafe-no-fsync", false, "acknowledge before the data is on the disk (for tests)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := strings.Split(*peers, ",")
	switch {
	case *data == "":
		return errors.New("--data is needed: a folder to keep data in")
	case *peers == "" || *self < 0 || *self >= len(all):
		return fmt.Errorf("--id %d is none of the %d --peers", *self, len(all))
	case flags.NArg() > 0:
		return fmt.Errorf("an argument too many: %q", flags.Arg(0))
	}
	table, err := open(*data, !*noSync)
	if err != nil {
		return err
	}
	defer table.close()
	server := &http.Server{Addr: *listen, Handler: newReplica(*self, all, table, *timeout).handler(),
		ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), *timeout)
		defer cancel()
		_ = server.Shutdown(end) // what is left is cut off
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// replica serves clients, and the other replicas.
type replica struct {
	self    int
	peers   []string // all, this one among them
	table   *table
	timeout time.Duration
	client  *http.Client
	last    atomic.Int64 // the time of the latest version of this coordinator
}

func newReplica(self int, peers []string, t *table, timeout time.Duration) *replica {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	return &replica{self: self, peers: peers, table: t, timeout: timeout, client: &http.Client{Transport: transport}}
}

// Paths of the requests of clients, and of replicas.
const (
	entityPath   = "/v0/entity"
	internalPath = "/internal/entity"
	statusPath   = "/status"
)

func (r *replica) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(entityPath, r.serveEntity)
	mux.HandleFunc(internalPath, r.serveInternal)
	mux.HandleFunc("GET "+statusPath, r.serveStatus)
	return mux
}

// serveEntity coordinates: PUT, DELETE or GET ?id=KEY&ack=A&from=F. The default of ack and from is a majority.
func (r *replica) serveEntity(w http.ResponseWriter, q *http.Request) {
	query := q.URL.Query()
	key := query.Get("id")
	ack, ackErr := r.quorum(query, "ack")
	from, fromErr := r.quorum(query, "from")
	if err := errors.Join(ackErr, fromErr); err != nil || key == "" || len(key) > maxKey {
		http.Error(w, fmt.Sprintf("id must have 1..%d bytes, ack and from must be 1..%d: %v", maxKey, len(r.peers), err),
			http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), r.timeout)
	defer cancel()
	switch q.Method {
	case http.MethodPut, http.MethodDelete:
		value, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxValue))
		if err != nil {
			http.Error(w, fmt.Sprintf("read the value: %v", err), http.StatusRequestEntityTooLarge)
			return
		}
		v := version{Time: r.now(), By: r.self, Deleted: q.Method == http.MethodDelete}
		if !v.Deleted {
			v.Value = value
		}
		if r.write(ctx, key, v, ack) < ack {
			http.Error(w, "fewer replicas than required acknowledged the write", http.StatusGatewayTimeout)
			return
		}
		w.WriteHeader(map[bool]int{false: http.StatusCreated, true: http.StatusAccepted}[v.Deleted])
	case http.MethodGet:
		newest, answers := r.read(ctx, key, from)
		switch {
		case answers < from:
			http.Error(w, "fewer replicas than required answered", http.StatusGatewayTimeout)
		case !newest.exists():
			http.Error(w, "there is no such key", http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(newest.Value)))
			_, _ = w.Write(newest.Value) // the client may have gone
		}
	default:
		http.Error(w, "PUT, GET or DELETE", http.StatusMethodNotAllowed)
	}
}

func (r *replica) quorum(query url.Values, name string) (int, error) {
	text := query.Get(name)
	if text == "" {
		return len(r.peers)/2 + 1, nil
	}
	n, err := strconv.Atoi(text)
	if err == nil && (n < 1 || n > len(r.peers)) {
		err = fmt.Errorf("%s is %d", name, n)
	}
	return n, err
}

// now is the clock, which never stands still for a coordinator: its versions have an order.
func (r *replica) now() int64 {
	for {
		last, now := r.last.Load(), time.Now().UnixNano()
		if now = max(now, last+1); r.last.CompareAndSwap(last, now) {
			return now
		}
	}
}

// write sends a version to all replicas, itself first, and returns when so many have acknowledged it, or how many did
// in time. The others still get it: they have the timeout to themselves.
func (r *replica) write(ctx context.Context, key string, v version, ack int) (acknowledged int) {
	done := make(chan error, len(r.peers))
	record := appendRecord(nil, key, v)
	for i := range r.peers {
		go func() {
			if i == r.self {
				done <- r.table.write(key, v)
				return
			}
			sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
			defer cancel()
			_, err := r.call(sending, http.MethodPut, i, key, record)
			done <- err
		}()
	}
	for answered := 0; answered < len(r.peers) && acknowledged < ack; answered++ {
		select {
		case err := <-done:
			if err == nil {
				acknowledged++
			}
		case <-ctx.Done():
			return acknowledged
		}
	}
	return acknowledged
}

// read requests the version of as many replicas as are needed, itself and those after it, and of one more for each that
// fails. The newest version counts.
func (r *replica) read(ctx context.Context, key string, from int) (newest version, answers int) {
	type answer struct {
		version
		err error
	}
	done := make(chan answer, len(r.peers))
	next := 0
	request := func() {
		i := (r.self + next) % len(r.peers)
		next++
		go func() {
			var a answer
			if i == r.self {
				a.version = r.table.get(key)
			} else {
				a.version, a.err = r.call(ctx, http.MethodGet, i, key, nil)
			}
			done <- a
		}()
	}
	for range from {
		request()
	}
	for waiting := from; waiting > 0 && answers < from; waiting-- {
		select {
		case a := <-done:
			switch {
			case a.err == nil:
				answers++
				if newest.before(a.version) {
					newest = a.version
				}
			case next < len(r.peers):
				request()
				waiting++
			}
		case <-ctx.Done():
			return newest, answers
		}
	}
	return newest, answers
}

// call sends a version to another replica (PUT), or requests the one that it has (GET).
func (r *replica) call(ctx context.Context, method string, peer int, key string, body []byte) (has version, err error) {
	target := "http://" + r.peers[peer] + internalPath + "?id=" + url.QueryEscape(key)
	q, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return version{}, err
	}
	answer, err := r.client.Do(q)
	if err != nil {
		return version{}, err
	}
	defer answer.Body.Close()
	switch {
	case method == http.MethodGet && answer.StatusCode == http.StatusNotFound:
		return version{}, nil
	case answer.StatusCode != http.StatusOK:
		return version{}, fmt.Errorf("replica %d: %s", peer, answer.Status)
	case method == http.MethodGet:
		_, has, err = readRecord(answer.Body)
		return has, err
	}
	_, err = io.Copy(io.Discard, answer.Body) // so that the connection is used again
	return version{}, err
}

// serveInternal does for a coordinator what it requests of this replica alone.
func (r *replica) serveInternal(w http.ResponseWriter, q *http.Request) {
	switch q.Method {
	case http.MethodPut:
		key, v, err := readRecord(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		} else if err := r.table.write(key, v); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	case http.MethodGet:
		key := q.URL.Query().Get("id")
		v := r.table.get(key)
		if v.Time == 0 {
			http.Error(w, "there is no such key", http.StatusNotFound)
			return
		}
		_, _ = w.Write(appendRecord(nil, key, v))
	default:
		http.Error(w, "PUT or GET", http.StatusMethodNotAllowed)
	}
}

// serveStatus tells what this replica is: {"id":0,"replicas":3,"keys":12}. Keys that were deleted count.
func (r *replica) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int{"id": r.self, "replicas": len(r.peers), "keys": r.table.size()})
}
