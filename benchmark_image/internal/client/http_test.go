//go:build plumbing

package client

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// replicaSet is the reference service; it ends with the test.
type replicaSet struct {
	program   string
	endpoints []string
	folders   []string // with their data
	processes []*os.Process
}

func startReplicas(t *testing.T, members int) *replicaSet {
	t.Helper()
	program, err := buildReplicas()
	if err != nil {
		t.Fatal(err)
	}
	r := &replicaSet{program: program, processes: make([]*os.Process, members)}
	for range members {
		r.endpoints, r.folders = append(r.endpoints, freePort(t)), append(r.folders, t.TempDir())
	}
	for i := range members {
		r.start(t, i)
	}
	return r
}

// buildReplicas gives the path of the program, which all tests share.
var buildReplicas = sync.OnceValues(func() (program string, err error) {
	program = filepath.Join(programFolder, "replicas")
	build := exec.Command("go", "build", "-C", "../../../replicas_image", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build replicas: %w: %s", err, out)
	}
	return program, nil
})

// start starts one, also again, and waits until it answers.
func (r *replicaSet) start(t *testing.T, i int) {
	t.Helper()
	r.processes[i] = startMember(t, exec.Command(r.program, "--listen="+r.endpoints[i], fmt.Sprintf("--id=%d", i),
		"--peers="+strings.Join(r.endpoints, ","), "--data="+r.folders[i], "--timeout=500ms", "--unsafe-no-fsync"))
	hang.Until(t, "the replica", func() bool { status, _, _ := get(t, "http://"+r.endpoints[i]+"/status"); return status == 200 })
}

func (r *replicaSet) kill(t *testing.T, i int) {
	t.Helper()
	if err := r.processes[i].Kill(); err != nil {
		t.Fatal(err)
	}
	hang.Until(t, "the end of the replica", func() bool { status, _, _ := get(t, "http://"+r.endpoints[i]+"/status"); return status == 0 })
}

// all is the flag that names them.
func (r *replicaSet) all() string { return "--endpoints=" + strings.Join(r.endpoints, ",") }

// quorums are the templates of seed documents: a write has so many acknowledgements, and a read asks so many.
func quorums(ack, from int) []string {
	query := fmt.Sprintf("/v0/entity?id={key}&ack=%d&from=%d", ack, from)
	return []string{"--store=http", "--put-path=" + query, "--get-path=" + query}
}

// flags are those of a load that its operation has.
func flags(operation string, all []string) (own []string) {
	for _, flag := range all {
		if operation == "put" && strings.HasPrefix(flag, "--get") ||
			operation == "range" && strings.HasPrefix(flag, "--put") {
			continue
		}
		own = append(own, flag)
	}
	return append([]string{operation}, own...)
}

// TestAgainstReplicas runs loads, and has net/http look at what is there.
func TestAgainstReplicas(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 3)
	to := append(quorums(2, 2), r.all())
	for _, c := range []struct {
		operation string
		args      []string
		empty     int
	}{
		{"put", []string{"--total=600", "--clients=20", "--conns=6", "--sequential-keys", "--val-size=256"}, 0},
		{"put", []string{"--total=50", "--clients=5", "--key-size=3", "--prefix=ключ %/\"\\?&#+/../",
			"--val-size=64"}, 0},
		{"put", []string{"--total=6", "--clients=3", "--conns=3", "--key-size=3", "--prefix=large", "--val-size=1048576"}, 0},
		{"range", []string{"--total=600", "--clients=20", "--conns=6", "--key-size=8", "--key-space-size=600",
			"--val-size=256", "--verify"}, 0},
		{"range", []string{"--total=50", "--key-size=3", "--key-space-size=50", "--key-prefix=ключ %/\"\\?&#+/../",
			"--val-size=64", "--verify"}, 0},
		{"range", []string{"--total=6", "--key-size=3", "--key-space-size=6", "--key-prefix=large",
			"--val-size=1048576", "--verify"}, 0},
		{"range", []string{"--total=20", "absent"}, 20},
		{"mixed", []string{"--total=600", "--clients=10", "--conns=3", "--key-size=8", "--key-space-size=600",
			"--val-size=256", "--verify"}, 0},
	} {
		status, result, stderr := callJSON(t, nil, append(flags(c.operation, to), c.args...)...)
		if status != ExitOK && c.empty == 0 || result.Failed > 0 || result.Empty != c.empty {
			t.Errorf("%s %q: status %d, %d failed, %d empty: %v, %s", c.operation, c.args, status, result.Failed, result.Empty,
				result.Errors, stderr)
		}
	}
	query := url.QueryEscape("ключ %/\"\\?&#+/../000")
	if status, body, _ := get(t, "http://"+r.endpoints[1]+"/v0/entity?id="+query); status != 200 || len(body) != 64 {
		t.Errorf("net/http finds %d %q", status, body)
	}
}

// TestReplicasLoseWhatOneOfThemAcknowledged has the coordinator of all writes killed while another replica is away, and
// reads at that one. With one acknowledgement it has none of what was acknowledged, and the load says so. With two of
// three for writes and reads, nothing is lost.
func TestReplicasLoseWhatOneOfThemAcknowledged(t *testing.T) {
	t.Parallel()
	for _, quorum := range []int{1, 2} {
		r := startReplicas(t, 3)
		r.kill(t, 2)
		common := append(quorums(quorum, quorum), r.all(), "--key-size=3", "--key-space-size=60", "--val-size=64",
			"--total=60", "--clients=6")
		if status, _, stderr := callJSON(t, nil,
			append(flags("put", common), "--target-member="+r.endpoints[0])...); status != ExitOK {
			t.Fatal(stderr)
		}
		r.kill(t, 0)
		r.start(t, 2)
		status, result, _ := callJSON(t, nil, append(flags("range", common), "--verify", "--target-member="+r.endpoints[2])...)
		want := map[int]int{1: 60, 2: 0}[quorum]
		if result.Failed != want || result.Codes["Check"] != want || (status == ExitOK) != (want == 0) {
			t.Errorf("ack=from=%d: %d of %d reads failed: %v", quorum, result.Failed, result.Done, result.Errors)
		}
	}
}

// TestServicesOverTLS, with an agreement on HTTP/1.1, and without any.
func TestServicesOverTLS(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	ca, certificate, key := authority.Files()
	for _, protocols := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}, nil} {
		var values sync.Map
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" {
				if value, ok := values.Load(r.URL.Path); ok {
					_, _ = w.Write(value.([]byte))
				} else {
					w.WriteHeader(http.StatusGone)
				}
				return
			}
			value, _ := io.ReadAll(r.Body)
			values.Store(r.URL.Path, value)
		}))
		server.TLS = authority.Server(tls.VersionTLS13)
		server.StartTLS()
		server.TLS.NextProtos = protocols
		args := []string{"--store=http", "--put-path=/{key}", "--get-path=/{key}", "--get-codes=200", "--absent-codes=410",
			"--endpoints=" + server.Listener.Addr().String(), "--cacert=" + ca, "--cert=" + certificate, "--key=" + key,
			"--key-space-size=50", "--key-size=4", "--val-size=3000", "--dial-timeout=5s"}
		status, result, stderr := callJSON(t, nil, append(flags("mixed", args), "--total=300", "--verify")...)
		if status != ExitOK || result.Done != 300 {
			t.Errorf("%q: %d of %d failed: %v, %s", protocols, result.Failed, result.Done, result.Errors, stderr)
		}
		server.Close()
	}
}
