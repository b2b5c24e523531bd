package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"containernet-env/replicas_image/simulated"
)

// latency is how long a request takes to a replica, and its answer back.
const latency = time.Millisecond

// cluster is replicas with a network between them, in simulated time.
type cluster struct {
	t         *testing.T
	addresses []string
	folders   []string
	replicas  []*replica // nil: it was killed
}

// simulate runs a test of three replicas.
func simulate(t *testing.T, run func(c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, addresses: []string{"one:1", "two:1", "three:1"}, replicas: make([]*replica, 3)}
		for i := range c.addresses {
			c.folders = append(c.folders, t.TempDir())
			c.start(i)
		}
		run(c)
	})
}

func (c *cluster) start(i int) {
	c.t.Helper()
	c.replicas[i] = newReplica(i, c.addresses, opened(c.t, c.folders[i]), 500*time.Millisecond)
	c.replicas[i].client = &http.Client{Transport: link{c, c.replicas[i]}}
}

func (c *cluster) kill(i int) {
	c.replicas[i].table.close() // what was not written yet is lost
	c.replicas[i] = nil
}

// link is the way from a replica, or from a client (nil), to the others.
type link struct {
	c    *cluster
	from *replica
}

func (l link) RoundTrip(q *http.Request) (*http.Response, error) {
	refused := errors.New("connection refused")
	simulated.Sleep(latency)
	to := l.c.replicas[slices.Index(l.c.addresses, q.URL.Host)]
	if to == nil || l.from != nil && l.c.replicas[l.from.self] != l.from {
		return nil, refused
	}
	w := httptest.NewRecorder()
	to.handler().ServeHTTP(w, q)
	simulated.Sleep(latency)
	if l.c.replicas[to.self] != to {
		return nil, refused
	}
	return w.Result(), nil
}

// do sends one request to a replica; status 0: there was no answer.
func (c *cluster) do(method string, i int, key, query, value string) (status int, body string) {
	url := "http://" + c.addresses[i] + entityPath + "?id=" + key + query
	q, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(value))
	must(c.t, err)
	answer, err := link{c: c}.RoundTrip(q)
	if err != nil {
		return 0, ""
	}
	b, err := io.ReadAll(answer.Body)
	check(c.t, err == nil, "%v", err)
	return answer.StatusCode, string(b)
}

func (c *cluster) expect(method string, i int, key, query, value string, status int, body string) {
	c.t.Helper()
	gotStatus, got := c.do(method, i, key, query, value)
	check(c.t, gotStatus == status && (status != 200 || got == body), "%s %s%s at %d: %d %q, expected %d %q", method, key,
		query, i, gotStatus, got, status, body)
}

func TestThreeReplicas(t *testing.T) { simulate(t, threeReplicas) }

func threeReplicas(c *cluster) {
	c.expect("GET", 0, "a", "", "", 404, "")
	c.expect("PUT", 0, "a", "&ack=3", "one", 201, "")
	for i := range 3 {
		c.expect("GET", i, "a", "&from=1", "", 200, "one")
	}
	c.expect("PUT", 2, "a", "&ack=3", "two", 201, "")
	c.expect("GET", 1, "a", "&from=1", "", 200, "two")
	c.expect("PUT", 1, "a", "&ack=3", "", 201, "")
	c.expect("GET", 0, "a", "", "", 200, "")
	c.expect("DELETE", 0, "a", "&ack=3", "", 202, "")
	c.expect("GET", 1, "a", "&from=1", "", 404, "")
	for _, query := range []string{"&ack=0", "&ack=4", "&from=4", "&from=x"} {
		c.expect("PUT", 0, "a", query, "v", 400, "")
	}
	c.expect("PUT", 0, "", "", "v", 400, "")
	c.expect("POST", 0, "a", "", "v", 405, "")

	c.kill(1)
	c.expect("PUT", 0, "b", "&ack=2", "two of three", 201, "")
	c.expect("PUT", 0, "b", "&ack=3", "never", 504, "")
	c.expect("GET", 2, "b", "&from=3", "", 504, "")
	c.expect("DELETE", 2, "a", "", "", 202, "")
	c.start(1) // it has missed all that
	c.expect("GET", 1, "b", "&from=1", "", 404, "")
	c.expect("GET", 1, "b", "&from=2", "", 200, "never") // who asked for 3 has no promise that it is not there
	c.expect("GET", 1, "a", "&from=3", "", 404, "")
	c.kill(0)
	c.kill(2)
	c.expect("GET", 1, "b", "&from=2", "", 504, "")
}

// TestCoordinatorsThatAreKilled has a replica miss writes, kills the one that coordinates them while it does, and reads
// at the one that missed them. With one acknowledgement and reads of one replica, acknowledged writes are lost; with
// two of three each, none is.
func TestCoordinatorsThatAreKilled(t *testing.T) {
	for _, quorum := range []int{1, 2} {
		simulate(t, func(c *cluster) {
			c.kill(2)
			query := fmt.Sprintf("&ack=%d&from=%d", quorum, quorum)
			acknowledged := make([][]string, 8) // keys, of each writer
			var writers sync.WaitGroup
			for w := range acknowledged {
				writers.Go(func() {
					for n := 0; ; n++ {
						key := fmt.Sprintf("w%d-%d", w, n)
						if status, _ := c.do("PUT", 0, key, query, key); status != 201 {
							return
						}
						acknowledged[w] = append(acknowledged[w], key)
					}
				})
			}
			simulated.Sleep(100*time.Millisecond + latency/2)
			c.kill(0)
			writers.Wait()
			c.start(2)
			lost, all := 0, slices.Concat(acknowledged...)
			for _, key := range all {
				if status, value := c.do("GET", 2, key, query, ""); status != 200 || value != key {
					lost++
				}
			}
			// A write takes one way there and back; one that another replica acknowledges takes two. The replica that
			// missed them all has none; the one that lives on has those that two have acknowledged.
			want := map[int][2]int{1: {400, 400}, 2: {0, 200}}[quorum]
			check(t, [2]int{lost, len(all)} == want, "ack=from=%d: %d of %d acknowledged writes lost", quorum, lost, len(all))
		})
	}
}

// TestTheLaterVersionWins, whichever comes first.
func TestTheLaterVersionWins(t *testing.T) {
	older, newer := version{Time: 1, By: 2, Value: []byte("older")}, version{Time: 2, By: 0, Value: []byte("newer")}
	same := version{Time: 2, By: 1, Value: []byte("same time")}
	for _, order := range [][]version{{older, newer, same}, {same, newer, older}, {newer, same, older}} {
		table := opened(t, t.TempDir())
		for _, v := range order {
			must(t, table.write("k", v))
		}
		check(t, string(table.get("k").Value) == "same time", "%v: %q wins", order, table.get("k").Value)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check reports, by what is found instead, that something does not hold.
func check(t *testing.T, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, found...)
	}
}

func opened(t *testing.T, folder string) *table {
	t.Helper()
	table, err := open(folder, true)
	must(t, err)
	t.Cleanup(table.close)
	return table
}

// TestTheFileIsReplayed, up to where it was cut off or is damaged.
func TestTheFileIsReplayed(t *testing.T) {
	folder := t.TempDir()
	before := opened(t, folder)
	var writers sync.WaitGroup
	for i := range 50 {
		writers.Go(func() {
			err := before.write(fmt.Sprint("k", i),
				version{Time: int64(i + 1), By: i, Value: bytes.Repeat([]byte("v"), i), Deleted: i == 7})
			check(t, err == nil, "%v", err)
		})
	}
	writers.Wait()
	name := filepath.Join(folder, "log")
	whole, err := os.ReadFile(name)
	must(t, err)
	for cut, want := range map[int]int{len(whole): 50, len(whole) - 1: 49, recordHeader - 1: 0, 0: 0} {
		must(t, os.WriteFile(name, whole[:cut], 0o644))
		after := opened(t, folder)
		check(t, after.size() == want, "after %d of %d bytes there are %d keys", cut, len(whole), after.size())
		must(t, after.write("new", version{Time: 99}))
		check(t, opened(t, folder).size() == want+1, "what was written after %d bytes is lost", cut)
		v := after.get("k7")
		check(t, cut != len(whole) || v.Deleted && v.By == 7 && v.Time == 8, "%+v", v)
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	must(t, os.WriteFile(name, damaged, 0o644))
	got := opened(t, folder).size()
	check(t, got > 0 && got < 50, "of a damaged file there are %d keys", got)
}

func TestNothingIsAcknowledgedThatIsNotWritten(t *testing.T) {
	table := opened(t, t.TempDir())
	table.close()
	r := newReplica(0, []string{"127.0.0.1:1"}, table, time.Second)
	for range 2 {
		w := httptest.NewRecorder()
		r.handler().ServeHTTP(w, httptest.NewRequest("PUT", entityPath+"?id=k", strings.NewReader("v")))
		check(t, w.Code == http.StatusGatewayTimeout, "status %d", w.Code)
	}
	check(t, !table.get("k").exists() && table.failed != nil, "what could not be written is read")
}

func TestTimesOfACoordinatorRise(t *testing.T) {
	r := newReplica(0, []string{"a"}, nil, time.Second)
	for before, i := r.now(), 0; i < 10_000; i++ {
		now := r.now()
		check(t, now > before, "the clock is paused")
		before = now
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--peers=a:1"}, {"--data=/nowhere"}, {"--data=/nowhere", "--peers=a:1", "--id=1"},
		{"--data=/nowhere", "--peers=a:1", "more"}, {"--data=/proc/nowhere", "--peers=a:1"}} {
		err := run(args)
		check(t, err != nil && !errors.Is(err, http.ErrServerClosed), "%q: %v", args, err)
	}
}
