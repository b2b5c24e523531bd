//go:build root

// Package roottest runs the built emulator on real namespaces and TAPs. It needs root and leaves nothing behind.
package roottest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/hang"
	"containernet-env/link_emulator/netns"
)

// hostRole marks a process that this test started to hold a network namespace.
const hostRole = "LINK_EMULATOR_TEST_HOST"

var binary string // the built emulator

func TestMain(m *testing.M) {
	if os.Getenv(withoutBPF) != "" {
		fmt.Fprintln(os.Stderr, execWithoutBPF())
		os.Exit(1)
	}
	if os.Getenv(hostRole) != "" {
		// A host lives until its parent closes the pipe, so it never outlives the test.
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("roottest: skipped, it needs root")
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
	mac     net.HardwareAddr // known once the port is added
	process *exec.Cmd
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *host) pid() int { return h.process.Process.Pid }

func startHost(t testing.TB, index int) *host {
	t.Helper()
	h := &host{
		t:       t,
		name:    fmt.Sprintf("h%d", index),
		ip:      net.IPv4(10, 0, 0, byte(index+1)),
		ifName:  fmt.Sprintf("lt%xe%d", os.Getpid(), index),
		process: exec.Command(os.Args[0]),
	}
	h.process.Env = append(os.Environ(), hostRole+"=1")
	h.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	life, err := h.process.StdinPipe()
	must(t, err)
	must(t, h.process.Start())
	t.Cleanup(func() {
		life.Close()
		_ = h.process.Wait() // some tests kill it
	})
	return h
}

// inside runs fn on a thread in the host's namespace.
func (h *host) inside(fn func() error) {
	h.t.Helper()
	if err := netns.Do(h.pid(), -1, fn); err != nil {
		h.t.Fatalf("%s: %v", h.name, err)
	}
}

// bringUp gives the host's interface its address and brings it up (netdevice(7)).
func (h *host) bringUp() {
	h.t.Helper()
	h.inside(func() error {
		control, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(control)
		request, err := unix.NewIfreq(h.ifName)
		if err != nil {
			return err
		}
		for _, step := range []struct {
			number  uint
			address []byte
		}{{unix.SIOCSIFADDR, h.ip.To4()}, {unix.SIOCSIFNETMASK, []byte{255, 255, 255, 0}}} {
			err = errors.Join(err, request.SetInet4Addr(step.address), unix.IoctlIfreq(control, step.number, request))
		}
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return errors.Join(err, unix.IoctlIfreq(control, unix.SIOCSIFFLAGS, request))
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

// emulator is a running `link-emulator serve` and its control connection.
type emulator struct {
	t       testing.TB
	process *exec.Cmd
	control *os.File
	lines   chan map[string]any
	id      int
	ended   chan error
}

// startEmulator starts `link-emulator serve` with more arguments.
func startEmulator(t testing.TB, arguments ...string) *emulator {
	t.Helper()
	return startProgram(t, exec.Command(binary, append([]string{"serve", "--control-fd", "3"}, arguments...)...))
}

// startProgram starts an emulator by a command whose fd 3 is to be the control connection.
func startProgram(t testing.TB, command *exec.Cmd) *emulator {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	far := os.NewFile(uintptr(fds[1]), "control of the emulator")
	defer far.Close()
	e := &emulator{
		t:       t,
		process: command,
		control: os.NewFile(uintptr(fds[0]), "control"),
		lines:   make(chan map[string]any, 100),
		ended:   make(chan error, 1),
	}
	e.process.ExtraFiles = []*os.File{far}
	e.process.Stderr = os.Stderr
	must(t, e.process.Start())
	go func() { e.ended <- e.process.Wait() }()
	go func() {
		defer close(e.lines)
		scanner := bufio.NewScanner(e.control)
		scanner.Buffer(nil, 1<<22)
		for scanner.Scan() {
			var line map[string]any
			if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
				t.Errorf("the emulator wrote %q: %v", scanner.Text(), err)
				return
			}
			e.lines <- line
		}
	}()
	t.Cleanup(func() { e.stop() })
	return e
}

// stop closes the control connection, as the death of the driver does, and waits for the end.
func (e *emulator) stop() {
	if e.control == nil {
		return
	}
	// Shutdown, not only close: the reading goroutine still holds the file.
	_ = unix.Shutdown(int(e.control.Fd()), unix.SHUT_RDWR)
	e.control.Close()
	e.control = nil
	e.awaitEnd(0)
}

// awaitEnd waits until the process has ended and compares its exit status.
func (e *emulator) awaitEnd(status int) {
	e.t.Helper()
	select {
	case <-e.ended:
		if got := e.process.ProcessState.ExitCode(); got != status {
			e.t.Errorf("the emulator ended with status %d, want %d", got, status)
		}
	case <-hang.After():
		e.t.Error("the emulator keeps running without its driver")
		_ = e.process.Process.Kill()
	}
}

func (e *emulator) next() map[string]any {
	e.t.Helper()
	select {
	case line, ok := <-e.lines:
		if !ok {
			e.t.Fatal("the emulator closed the connection")
		}
		return line
	case <-hang.After():
		e.t.Fatal("no line came within the deadline")
	}
	return nil
}

type fields map[string]any

// ask sends a request and returns the result; a refusal ends the test.
func (e *emulator) ask(op string, more fields) map[string]any {
	e.t.Helper()
	e.id++
	request := fields{"id": e.id, "op": op}
	for name, value := range more {
		request[name] = value
	}
	line, err := json.Marshal(request)
	must(e.t, err)
	if _, err := e.control.Write(append(line, '\n')); err != nil {
		e.t.Fatal(err)
	}
	reply := e.next()
	if reply["ok"] != true {
		e.t.Fatalf("%s: %v", line, reply)
	}
	return reply["result"].(map[string]any)
}

func (e *emulator) addPort(h *host) {
	e.t.Helper()
	result := e.ask("add_port", fields{"name": h.name, "pid": h.pid(), "ifname": h.ifName})
	var err error
	if h.mac, err = net.ParseMAC(result["mac"].(string)); err != nil {
		e.t.Fatal(err)
	}
}

func (e *emulator) addLink(h *host, delay time.Duration) {
	e.t.Helper()
	direction := fields{"delay_ns": delay.Nanoseconds()}
	e.ask("add_link", fields{"name": h.name, "a": fields{"port": h.name}, "b": fields{"switch": "s1"},
		"a_to_b": direction, "b_to_a": direction})
}

// star starts an emulator with one switch, and hosts that are up, one for each delay.
func star(t testing.TB, delays ...time.Duration) (*emulator, []*host) {
	t.Helper()
	return starOf(startEmulator(t), delays...)
}

func starOf(e *emulator, delays ...time.Duration) (*emulator, []*host) {
	e.t.Helper()
	e.ask("add_switch", fields{"name": "s1"})
	var hosts []*host
	for i, delay := range delays {
		h := startHost(e.t, i)
		e.addPort(h)
		e.addLink(h, delay)
		h.bringUp()
		hosts = append(hosts, h)
	}
	return e, hosts
}
