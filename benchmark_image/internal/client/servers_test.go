//go:build plumbing

package client

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/hang"
	"containernet-env/benchmark_image/internal/secure"
)

// servers are the real ones of a store, in member order. They end with the test, and do not wait for the disk, which no
// test needs.
type servers struct {
	store     string
	endpoints []string
	processes []*os.Process
}

// flags are the flags of a load of these members.
func (s *servers) flags() []string {
	return []string{"--store=" + s.store, "--dial-timeout=30s", "--endpoints=" + strings.Join(s.endpoints, ",")}
}

// program is the real server that an environment variable names. etcd's is required in CI, where a skipped test would
// never run.
func program(t *testing.T, variable string) string {
	t.Helper()
	name := os.Getenv(variable)
	_, err := os.Stat(name)
	switch {
	case err == nil:
	case os.Getenv("CI") != "" && variable == "ETCD_BINARY":
		t.Fatalf("%s must name the real server in CI: %v", variable, err)
	default:
		t.Skipf("%s does not name a program: %v", variable, err)
	}
	return name
}

// startEtcd starts a real server that ends with the test.
func startEtcd(t *testing.T, flags ...string) (endpoint string) {
	t.Helper()
	return startCluster(t, 1, flags...).endpoints[0]
}

func startCluster(t *testing.T, members int, flags ...string) *servers {
	t.Helper()
	server := program(t, "ETCD_BINARY")
	scheme := "http://"
	if slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--cert-file=") }) {
		scheme = "https://"
	}
	s := &servers{store: "etcd"}
	var peers, cluster []string
	for i := range members {
		s.endpoints, peers = append(s.endpoints, freePort(t)), append(peers, freePort(t))
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	for i, endpoint := range s.endpoints {
		own := []string{"--name", fmt.Sprintf("m%d", i), "--data-dir", t.TempDir() + "/data", "--log-level", "error",
			"--unsafe-no-fsync", "--listen-client-urls", scheme + endpoint, "--advertise-client-urls", scheme + endpoint,
			"--listen-peer-urls", "http://" + peers[i], "--initial-advertise-peer-urls", "http://" + peers[i],
			"--initial-cluster", strings.Join(cluster, ",")}
		s.processes = append(s.processes, startMember(t, exec.Command(server, append(own, flags...)...)))
	}
	return s
}

// startZooKeeper starts an ensemble, and waits for a quorum unless only some of its members start. lines are added to
// the configuration.
func startZooKeeper(t *testing.T, members, start int, lines ...string) *servers {
	t.Helper()
	path := os.Getenv("ZOOKEEPER_CLASSPATH")
	if _, err := exec.LookPath("java"); err != nil || path == "" {
		t.Skip("no java, or ZOOKEEPER_CLASSPATH does not name ZooKeeper's jars: with Debian's package zookeeper it is " +
			"/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar")
	}
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	s := &servers{store: "zookeeper"}
	for i := range members {
		s.endpoints = append(s.endpoints, freePort(t))
		if members > 1 {
			lines = append(lines, fmt.Sprintf("server.%d=%s:%s", i+1, freePort(t), port(freePort(t))))
		}
	}
	for i, endpoint := range s.endpoints[:start] {
		folder := t.TempDir()
		config := append([]string{"tickTime=200", "initLimit=50", "syncLimit=25", "dataDir=" + folder,
			"clientPort=" + port(endpoint), "clientPortAddress=127.0.0.1", "admin.enableServer=false", "maxClientCnxns=0",
			"forceSync=no"}, lines...)
		file := filepath.Join(folder, "zoo.cfg")
		assert.OK(t,
			errors.Join(os.WriteFile(file, []byte(strings.Join(config, "\n")), 0o600),
				os.WriteFile(filepath.Join(folder, "myid"), fmt.Append(nil, i+1), 0o600)))
		s.processes = append(s.processes, startMember(t, exec.Command("java", "-Xmx192m", "-XX:+UseSerialGC", "-cp", path,
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)))
	}
	hang.Until(t, "a quorum", func() bool {
		modes := make(map[string]int)
		for _, endpoint := range s.endpoints[:start] {
			modes[zooKeeperMode(endpoint)]++
		}
		return modes["leader"]+modes["standalone"] == 1 && modes[""] == 0 || start < members && modes["none"] == start
	})
	return s
}

// zooKeeperMode queries a server's mode; empty: it does not answer, "none": it has none. The reference client does not
// understand these servers.
func zooKeeperMode(endpoint string) string {
	connection, err := net.Dial("tcp", endpoint)
	if err != nil {
		return ""
	}
	defer connection.Close()
	_ = connection.SetDeadline(hang.Deadline())
	_, _ = io.WriteString(connection, "srvr")
	text, _ := io.ReadAll(connection)
	_, mode, known := strings.Cut(string(text), "Mode: ")
	if !known && len(text) > 0 {
		return "none"
	}
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

type noLog struct{}

// Printf implements zk.Logger.
func (noLog) Printf(string, ...any) {}

// reference opens a session of ZooKeeper's reference client.
func reference(t *testing.T, endpoints ...string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect(endpoints, 10*time.Second, zk.WithLogger(noLog{}))
	assert.OK(t, err)
	t.Cleanup(c.Close)
	return c
}

// get reads by net/http; status 0: there is no answer.
func get(t *testing.T, target string) (status int, body []byte) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(target)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return 0, nil
	}
	return answer.StatusCode, body
}

// startReplicas builds and starts the reference service of package keyvalue.
func startReplicas(t *testing.T, members int) *servers {
	t.Helper()
	program := filepath.Join(t.TempDir(), "replicas")
	out, err := exec.Command("go", "build", "-C", "../../../replicas_image", "-o", program, ".").CombinedOutput()
	assert.Must(t, err == nil, "build replicas: %v: %s", err, out)
	s := &servers{store: "http"}
	for range members {
		s.endpoints = append(s.endpoints, freePort(t))
	}
	for i, endpoint := range s.endpoints {
		s.processes = append(s.processes, startMember(t, exec.Command(program,
			"--listen="+endpoint, fmt.Sprintf("--id=%d", i), "--peers="+strings.Join(s.endpoints, ","),
			"--data="+t.TempDir(), "--timeout=500ms", "--unsafe-no-fsync")))
	}
	for _, endpoint := range s.endpoints {
		hang.Until(t, "the replica", func() bool {
			status, _ := get(t, "http://"+endpoint+"/status")
			return status == 200
		})
	}
	return s
}

func startMember(t *testing.T, command *exec.Cmd) *os.Process {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "log"))
	assert.OK(t, err)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.OK(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		problem := command.Process.Signal(syscall.SIGTERM)
		assert.That(t, problem == nil || errors.Is(problem, os.ErrProcessDone), "%v", problem)
		select {
		case <-ended:
		case <-hang.Midway(hang.Limit):
			t.Errorf("%s does not end on SIGTERM: %v", command.Path, command.Process.Kill())
		}
		if t.Failed() {
			log, err := os.ReadFile(output.Name())
			t.Logf("%s: %s (%v)", command.Path, log, err)
		}
	})
	return command.Process
}

// freePort is below those that the kernel gives to connections and to listeners of port 0: no other process takes it
// before the server does.
func freePort(t *testing.T) (address string) {
	t.Helper()
	const lowest, ports = 10_000, 22_000
	for range 100 {
		address = fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(ports))
		if _, taken := portsGiven.LoadOrStore(address, nil); taken {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			err := listener.Close()
			assert.That(t, err == nil, "%v", err)
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// portsGiven are the addresses that freePort gave to tests of this process.
var portsGiven sync.Map

func TestMain(m *testing.M) {
	// A copy of the test's program is the program that it is named as.
	switch filepath.Base(os.Args[0]) {
	case "benchmark-client":
		Process("test", nil)
	case "benchmark-client-tls":
		Process("test", secure.Files)
	}
	os.Exit(m.Run())
}
