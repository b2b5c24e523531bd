//go:build plumbing

package client

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/verify"
)

// consulCluster is server agents that end with the test.
type consulCluster struct {
	endpoints []string // in member order
	processes []*os.Process
}

// startConsul starts real server agents, all on one address or each on its own, and waits for a leader.
func startConsul(t *testing.T, members int, oneAddress bool) *consulCluster {
	t.Helper()
	program := os.Getenv("CONSUL_BINARY")
	if program == "" {
		t.Skip("CONSUL_BINARY is not set: build consul_image")
	}
	c := &consulCluster{}
	net := fmt.Sprintf("127.%d.%d.", 16+os.Getpid()%200, 1+rand.IntN(250))
	var common, joins []string
	// Where the leadership is to stay, also on a machine that is busy; 1 is an election within a second.
	multiplier := 3
	if !oneAddress {
		multiplier = 1
	}
	for i := range members {
		address, serf := net+"1", 8301+10*i
		if !oneAddress {
			address, serf = net+fmt.Sprint(i+1), 8301
		}
		joins = append(joins, fmt.Sprintf("-retry-join=%s:%d", address, serf))
	}
	common = append([]string{"agent", "-server", fmt.Sprintf("-bootstrap-expect=%d", members), "-dns-port=-1",
		"-grpc-port=-1", "-grpc-tls-port=-1", "-serf-wan-port=-1", "-log-level=warn", "-disable-host-node-id",
		"-retry-interval=1s",
		"-hcl", fmt.Sprintf("disable_update_check = true, performance { raft_multiplier = %d }", multiplier)},
		joins...)
	for i := range members {
		address, offset := net+"1", 10*i
		if !oneAddress {
			address, offset = net+fmt.Sprint(i+1), 0
		}
		c.endpoints = append(c.endpoints, fmt.Sprintf("%s:%d", address, 8500+offset))
		c.processes = append(c.processes, startMember(t, exec.Command(program, append(common,
			fmt.Sprintf("-node=m%d", i), "-bind="+address, "-client="+address, "-data-dir="+t.TempDir(),
			fmt.Sprintf("-http-port=%d", 8500+offset), fmt.Sprintf("-server-port=%d", 8300+offset),
			fmt.Sprintf("-serf-lan-port=%d", 8301+offset))...)))
	}
	c.awaitLeader(t, c.endpoints)
	return c
}

// awaitLeader waits until all members name one leader, and gives the address of its RPC.
func (c *consulCluster) awaitLeader(t *testing.T, endpoints []string) (leader string) {
	t.Helper()
	hang.Until(t, "a leader", func() bool {
		leader = ""
		for _, endpoint := range endpoints {
			status, body, _ := get(t, "http://"+endpoint+"/v1/status/leader")
			var told string
			if status != 200 || json.Unmarshal(body, &told) != nil || told == "" || leader != "" && told != leader {
				return false
			}
			leader = told
		}
		// A new leader is ready once it reads consistently.
		status, _, _ := get(t, "http://"+endpoints[0]+"/v1/kv/none?consistent")
		return status == 404
	})
	return leader
}

// leads gives the number of the member that leads.
func (c *consulCluster) leads(t *testing.T, endpoints []string) int {
	t.Helper()
	leader := c.awaitLeader(t, endpoints)
	for i, endpoint := range c.endpoints {
		host, port, _ := strings.Cut(endpoint, ":")
		if leader == host+":83"+port[2:] {
			return i
		}
	}
	t.Fatalf("the leader %s is none of %v", leader, c.endpoints)
	return -1
}

// get reads by net/http; status 0: there is no answer.
func get(t *testing.T, target string) (status int, body []byte, header http.Header) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(target)
	if err != nil {
		return 0, nil, nil
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return 0, nil, nil
	}
	return answer.StatusCode, body, answer.Header
}

// TestAgainstConsul runs against the real server, and has net/http look at what is there.
func TestAgainstConsul(t *testing.T) {
	c := startConsul(t, 3, false)
	to := []string{"--store=consul", "--endpoints=" + strings.Join(c.endpoints, ",")}
	for _, load := range []struct {
		args  []string
		empty int
	}{
		{[]string{"put", "--total=600", "--clients=20", "--conns=6", "--sequential-keys", "--val-size=256",
			"--target-leader"}, 0},
		{[]string{"put", "--total=100", "--clients=5", "--key-size=4", "--prefix=ключ %/\"\\?&#+/", "--val-size=64"}, 0},
		{[]string{"put", "--total=9", "--clients=3", "--conns=3", "--key-size=3", "--prefix=large/", "--val-size=500000"}, 0},
		{[]string{"range", "--total=600", "--clients=20", "--conns=6", "--key-size=8", "--key-space-size=600",
			"--val-size=256", "--verify"}, 0},
		{[]string{"range", "--total=600", "--clients=20", "--conns=6", "--key-size=8", "--key-space-size=600",
			"--val-size=256", "--verify", "--consistency=default"}, 0},
		{[]string{"range", "--total=300", "--clients=5", "--conns=3", "--key-size=8", "--key-space-size=600",
			"--val-size=256", "--verify", "--consistency=s"}, 0},
		{[]string{"range", "--total=100", "--key-size=4", "--key-space-size=100", "--key-prefix=ключ %/\"\\?&#+/",
			"--val-size=64", "--verify"}, 0},
		{[]string{"range", "--total=9", "--key-size=3", "--key-space-size=9", "--key-prefix=large/",
			"--val-size=500000", "--verify"}, 0},
		{[]string{"range", "--total=20", "absent"}, 20},
		{[]string{"txn", "--total=300", "--clients=8", "--conns=3", "--key-space-size=300", "--val-size=33"}, 0},
		{[]string{"txn", "--total=40", "--key-size=4", "--key-space-size=100", "--prefix=ключ %/\"\\?&#+/",
			"--val-size=64"}, 0},
		{[]string{"mixed", "--total=600", "--clients=10", "--conns=3", "--key-size=5", "--key-space-size=20",
			"--val-size=100", "--verify"}, 0},
	} {
		status, result, stderr := callJSON(t, nil, append(load.args, to...)...)
		if load.empty == 0 && status != ExitOK || result.Failed > 0 || result.Empty != load.empty {
			if load.args[0] == "mixed" && result.Failed == 0 {
				continue // the first reads find no key
			}
			t.Errorf("%q: status %d, %d failed, %d empty: %v, %s", load.args, status, result.Failed, result.Empty,
				result.Errors, stderr)
		}
	}
	key := url.PathEscape("ключ %/\"\\?&#+/0000")
	status, body, header := get(t, "http://"+c.endpoints[0]+"/v1/kv/"+key+"?raw")
	if status != 200 || len(body) != 64 || header.Get("X-Consul-Index") == "" {
		t.Errorf("net/http finds %d %q %v", status, body, header)
	}
	status, body, _ = get(t, "http://"+c.endpoints[0]+"/v1/kv/?keys&consistent")
	var keys []string
	if err := json.Unmarshal(body, &keys); err != nil || status != 200 || len(keys) < 600+100+9 {
		t.Errorf("%d keys: %v", len(keys), err)
	}
	// A transaction of a key that is not there changes nothing.
	exit, result, _ := callJSON(t, nil, append(to, "txn", "--total=5", "--prefix=nowhere/")...)
	if exit != ExitFailed || result.Codes["Check"] != 5 {
		t.Errorf("status %d, codes %v, errors %v", exit, result.Codes, result.Errors)
	}
	if status, _, _ := get(t, "http://"+c.endpoints[0]+"/v1/kv/nowhere/00000000"); status != 404 {
		t.Errorf("it wrote a key: %d", status)
	}
	// Too large a value is refused, and is told to be.
	exit, result, _ = callJSON(t, nil, append(to, "put", "--total=3", "--val-size=600000")...)
	if exit != ExitFailed || result.Codes["InvalidArgument"] != 3 || result.Outcomes.Unknown != 0 {
		t.Errorf("status %d, codes %v, errors %v", exit, result.Codes, result.Errors)
	}
}

// TestConsulOnOneAddress finds the leader among members that share it, and revisions of keys by reads.
func TestConsulOnOneAddress(t *testing.T) {
	c := startConsul(t, 3, true)
	leader := c.leads(t, c.endpoints)
	_, result, stderr := callJSON(t, nil, "put", "--store=consul", "--endpoints="+strings.Join(c.endpoints, ","), "--total=50",
		"--target-leader")
	if result.Failed > 0 || result.Leader == nil || *result.Leader != c.endpoints[leader] {
		t.Errorf("leader %v, expected %s: %v, %s", result.Leader, c.endpoints[leader], result.Errors, stderr)
	}
	// The load follows the leader when it moves.
	go func() {
		<-hang.Midway(time.Second)
		answer, err := http.Post("http://"+c.endpoints[leader]+"/v1/operator/raft/transfer-leader", "", nil)
		if err != nil || answer.StatusCode != 200 {
			t.Error("the leadership does not move: ", err)
		}
	}()
	_, result, stderr = callJSON(t, nil, "put", "--store=consul", "--endpoints="+strings.Join(c.endpoints, ","),
		"--duration=4s", "--target-leader", "--clients=3")
	leader = c.leads(t, c.endpoints)
	if n := len(result.LeaderChanges); n == 0 || result.LeaderChanges[n-1].Leader != c.endpoints[leader] {
		t.Errorf("the load went to %+v, the leader is %s: %v, %s", result.LeaderChanges, c.endpoints[leader],
			result.Errors, stderr)
	}
	var others []string
	for i, endpoint := range c.endpoints {
		if i != leader {
			others = append(others, endpoint)
		}
	}
	exit, result, _ := callJSON(t, nil, "put", "--store=consul", "--endpoints="+strings.Join(others, ","), "--total=5",
		"--target-leader")
	if exit != ExitFailed || result.Reason == nil || !strings.Contains(*result.Reason, "is none of the endpoints") {
		t.Errorf("status %d, reason %v", exit, result.Reason)
	}
}

// TestConsulsLeaderIsKilled while a load writes and reads: no acknowledged write is lost, and what is not known is
// told.
func TestConsulsLeaderIsKilled(t *testing.T) {
	c := startConsul(t, 3, false)
	cluster := "--endpoints=" + strings.Join(c.endpoints, ",")
	args := []string{"--store=consul", "--key-size=3", "--key-space-size=40", "--val-size=64", "--clients=12",
		"--conns=6", cluster}
	if exit, _, stderr := callJSON(t, nil, append(args, "put", "--total=40")...); exit != ExitOK {
		t.Fatal(stderr)
	}
	leader := c.leads(t, c.endpoints)
	go func() {
		<-hang.Midway(1500 * time.Millisecond)
		_ = c.processes[leader].Kill() // the test shows if it did not
	}()
	path := t.TempDir() + "/history.jsonl.gz"
	_, result, stderr := callJSON(t, nil, append(args, "mixed", "--verify", "--duration=6s", "--request-timeout=3s",
		"--history", "--history-file="+path)...)
	if result.Outcomes.Unknown+result.Failed == 0 || result.Done-result.Failed < 500 {
		t.Errorf("%d of %d failed: %s", result.Failed, result.Done, stderr)
	}
	t.Logf("%d requests, outcomes %+v, codes %v, errors %v", result.Done, result.Outcomes, result.Codes, result.Errors)
	if result.Codes["Check"] > 0 {
		t.Errorf("wrong answers: %v", result.Errors)
	}
	judged := judge(t, path, nil)
	if judged.Verdict == verify.Violated || judged.Judged < 500 {
		t.Errorf("%+v", judged)
	}
}
