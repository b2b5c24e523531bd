//go:build root

package systemtest

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/netns"
)

var binary string // the built emulator

func init() { prepare = runAsRoot }

// runAsRoot builds the program for the tests.
func runAsRoot(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("systemtest: skipped, it needs root")
		return 0
	}
	directory, err := os.MkdirTemp("", "link-emulator-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	binary = filepath.Join(directory, "link-emulator")
	build := exec.Command("go", "build", "-o", binary, "..")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// host is a process with a network namespace of its own, and the port that the emulator has made there.
type host struct {
	t       testing.TB
	name    string
	ip      net.IP
	ifName  string
	process *exec.Cmd
}

func (h *host) pid() int { return h.process.Process.Pid }

func startHost(t testing.TB, index int) *host {
	t.Helper()
	return &host{
		t: t, name: fmt.Sprintf("h%d", index), ip: net.IPv4(10, 0, 0, byte(index+1)),
		ifName: fmt.Sprintf("lt%xe%d", os.Getpid(), index),
		process: startProcess(t, func(process *exec.Cmd) {
			process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		}),
	}
}

// inside runs fn on a thread in the host's namespace.
func (h *host) inside(fn func() error) {
	h.t.Helper()
	err := netns.Do(h.pid(), -1, fn)
	assert.Must(h.t, err == nil, "%s: %v", h.name, err)
}

// bringUp gives the host's interface its address and brings it up.
func (h *host) bringUp() {
	h.t.Helper()
	h.inside(func() error { // programs start in the namespace of the thread
		return cmp.Or(exec.Command("ip", "address", "add", h.ip.String()+"/24", "dev", h.ifName).Run(),
			exec.Command("ip", "link", "set", h.ifName, "up").Run())
	})
}

// hasInterface reports whether the emulator's interface exists in the host's namespace.
func (h *host) hasInterface() (has bool) {
	h.t.Helper()
	h.inside(func() error {
		_, err := net.InterfaceByName(h.ifName)
		has = err == nil
		return nil
	})
	return has
}

// startEmulator starts `link-emulator serve` with more arguments.
func startEmulator(t testing.TB, arguments ...string) *client {
	t.Helper()
	return start(t, exec.Command(binary, append([]string{"serve", "--control-fd", "3"}, arguments...)...))
}

func (e *client) addPort(h *host) {
	e.t.Helper()
	e.ask("add_port", fields{"name": h.name, "pid": h.pid(), "ifname": h.ifName})
}

func (e *client) addLink(h *host, delay time.Duration) {
	e.t.Helper()
	direction := fields{"delay_ns": delay.Nanoseconds()}
	e.ask("add_link", fields{"name": h.name, "a": fields{"port": h.name}, "b": fields{"switch": "s1"},
		"a_to_b": direction, "b_to_a": direction})
}

// star starts an emulator with one switch, and hosts that are up, one for each delay.
func star(t testing.TB, delays ...time.Duration) (e *client, hosts []*host) {
	t.Helper()
	e = startEmulator(t)
	e.ask("add_switch", fields{"name": "s1"})
	for i, delay := range delays {
		h := startHost(t, i)
		e.addPort(h)
		e.addLink(h, delay)
		h.bringUp()
		hosts = append(hosts, h)
	}
	return e, hosts
}
