package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asReplica makes this test's program a replica.
const asReplica = "TEST_AS_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// cluster is replicas as processes, which can be killed.
type cluster struct {
	t         *testing.T
	addresses []string
	folders   []string
	processes []*exec.Cmd
}

func startCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t, processes: make([]*exec.Cmd, n)}
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.addresses, c.folders = append(c.addresses, listener.Addr().String()), append(c.folders, t.TempDir())
		listener.Close()
	}
	for i := range n {
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.processes {
			c.kill(i)
		}
	})
	return c
}

func (c *cluster) start(i int) {
	c.t.Helper()
	p := exec.Command(os.Args[0], "--listen", c.addresses[i], "--id", fmt.Sprint(i), "--peers",
		strings.Join(c.addresses, ","), "--data", c.folders[i], "--timeout", "500ms", "--unsafe-no-fsync")
	p.Env, p.Stderr = append(os.Environ(), asReplica+"=1"), os.Stderr
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.processes[i] = p
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if answer, err := http.Get("http://" + c.addresses[i] + statusPath); err == nil {
			answer.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("replica %d does not answer", i)
		}
	}
}

func (c *cluster) kill(i int) {
	if p := c.processes[i]; p != nil {
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()
		c.processes[i] = nil
	}
}

// do sends one request to a replica; status 0: there was no answer.
func (c *cluster) do(method string, i int, key, query, value string) (status int, body string) {
	q, err := http.NewRequest(method, "http://"+c.addresses[i]+entityPath+"?id="+key+query, strings.NewReader(value))
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(b)
}

func (c *cluster) expect(method string, i int, key, query, value string, status int, body string) {
	c.t.Helper()
	if gotStatus, got := c.do(method, i, key, query, value); gotStatus != status || status == 200 && got != body {
		c.t.Errorf("%s %s%s at %d: %d %q, expected %d %q", method, key, query, i, gotStatus, got, status, body)
	}
}

func TestThreeReplicas(t *testing.T) {
	c := startCluster(t, 3)
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
		c := startCluster(t, 3)
		c.kill(2)
		query := fmt.Sprintf("&ack=%d&from=%d", quorum, quorum)
		var acknowledged sync.Map
		var count atomic.Int64
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for n := 0; ; n++ {
					key := fmt.Sprintf("w%d-%d", w, n)
					if status, _ := c.do("PUT", 0, key, query, key); status != 201 {
						return
					}
					acknowledged.Store(key, true)
					count.Add(1)
				}
			})
		}
		for deadline := time.Now().Add(30 * time.Second); count.Load() < 400 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		c.kill(0)
		writers.Wait()
		c.start(2)
		lost := 0
		acknowledged.Range(func(key, _ any) bool {
			if status, value := c.do("GET", 2, key.(string), query, ""); status != 200 || value != key {
				lost++
			}
			return true
		})
		t.Logf("ack=from=%d: %d of %d acknowledged writes lost", quorum, lost, count.Load())
		if count.Load() < 400 || (lost > 0) != (quorum == 1) {
			t.Errorf("ack=from=%d: %d of %d acknowledged writes lost", quorum, lost, count.Load())
		}
	}
}

// TestTheLaterVersionWins, whichever comes first.
func TestTheLaterVersionWins(t *testing.T) {
	older, newer := version{Time: 1, By: 2, Value: []byte("older")}, version{Time: 2, By: 0, Value: []byte("newer")}
	same := version{Time: 2, By: 1, Value: []byte("same time")}
	for _, order := range [][]version{{older, newer, same}, {same, newer, older}, {newer, same, older}} {
		table := opened(t, t.TempDir())
		for _, v := range order {
			if err := table.write("k", v); err != nil {
				t.Fatal(err)
			}
		}
		if v, _ := table.get("k"); string(v.Value) != "same time" {
			t.Errorf("%v: %q wins", order, v.Value)
		}
	}
}

func opened(t *testing.T, folder string) *table {
	t.Helper()
	table, err := open(folder, true)
	if err != nil {
		t.Fatal(err)
	}
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
			if err := before.write(fmt.Sprint("k", i),
				version{Time: int64(i + 1), By: i, Value: bytes.Repeat([]byte("v"), i), Deleted: i == 7}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	name := filepath.Join(folder, "log")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]int{len(whole): 50, len(whole) - 1: 49, recordHeader - 1: 0, 0: 0} {
		if err := os.WriteFile(name, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		after := opened(t, folder)
		if after.size() != want {
			t.Errorf("after %d of %d bytes there are %d keys, not %d", cut, len(whole), after.size(), want)
		}
		if err := after.write("new", version{Time: 99}); err != nil {
			t.Fatal(err)
		}
		if again := opened(t, folder); again.size() != want+1 {
			t.Errorf("what was written after %d bytes is lost", cut)
		}
		if v, _ := after.get("k7"); cut == len(whole) && (!v.Deleted || v.By != 7 || v.Time != 8) {
			t.Errorf("%+v", v)
		}
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(name, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, folder).size(); got >= 50 || got == 0 {
		t.Errorf("of a damaged file there are %d keys", got)
	}
}

// TestNothingIsAcknowledgedThatIsNotWritten.
func TestNothingIsAcknowledgedThatIsNotWritten(t *testing.T) {
	table := opened(t, t.TempDir())
	table.close()
	r := newReplica(0, []string{"127.0.0.1:1"}, table, time.Second)
	for range 2 {
		w := httptest.NewRecorder()
		r.handler().ServeHTTP(w, httptest.NewRequest("PUT", entityPath+"?id=k", strings.NewReader("v")))
		if w.Code != http.StatusGatewayTimeout {
			t.Errorf("status %d", w.Code)
		}
	}
	if _, known := table.get("k"); known || table.failed == nil {
		t.Error("what could not be written is read")
	}
}

func TestTimesOfACoordinatorRise(t *testing.T) {
	r := newReplica(0, []string{"a"}, nil, time.Second)
	for before, i := r.now(), 0; i < 10_000; i++ {
		now := r.now()
		if now <= before {
			t.Fatal("the clock stands still")
		}
		before = now
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--peers=a:1"}, {"--data=/nowhere"}, {"--data=/nowhere", "--peers=a:1", "--id=1"},
		{"--data=/nowhere", "--peers=a:1", "more"}, {"--data=/proc/nowhere", "--peers=a:1"}} {
		if err := run(args); err == nil || errors.Is(err, http.ErrServerClosed) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
