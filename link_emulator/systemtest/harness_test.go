//go:build plumbing || root

// Package systemtest runs whole emulators, as processes that are controlled over their sockets. With the build tag
// plumbing their TAPs are socket pairs; with the tag root it is the built program with namespaces and TAPs of the
// kernel. It leaves nothing behind.
package systemtest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/hang"
)

// roleVariable names the role of a process that this test started of its own program.
const roleVariable = "LINK_EMULATOR_TEST_ROLE"

// roles return exit statuses.
var roles = map[string]func() int{
	// A host lives until its parent closes the pipe, so it never outlives the test.
	"host": func() int {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return 0
	},
}

// prepare runs the tests, after what they need was made.
var prepare = (*testing.M).Run

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(roles[role]())
	}
	os.Exit(prepare(m))
}

// inRole is this program in a role.
func inRole(role string) *exec.Cmd {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), roleVariable+"="+role)
	return command
}

// startProcess starts the process of a host, which ends with the test.
func startProcess(t testing.TB, change func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	process := inRole("host")
	change(process)
	life, err := process.StdinPipe()
	assert.OK(t, err)
	assert.OK(t, process.Start())
	t.Cleanup(func() {
		life.Close()
		_ = process.Wait() // some tests kill it
	})
	return process
}

// client controls a running emulator.
type client struct {
	t       testing.TB
	process *exec.Cmd
	control *os.File
	lines   chan string
	id      int
	ended   chan error
}

// start starts an emulator by a command whose descriptor 3 is to be the control connection.
func start(t testing.TB, command *exec.Cmd) *client {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.OK(t, err)
	far := os.NewFile(uintptr(fds[1]), "control of the emulator")
	defer far.Close()
	e := &client{
		t:       t,
		process: command,
		control: os.NewFile(uintptr(fds[0]), "control"),
		lines:   make(chan string, 100),
		ended:   make(chan error, 1),
	}
	e.process.ExtraFiles = []*os.File{far}
	e.process.Stderr = os.Stderr
	assert.OK(t, e.process.Start())
	go func() { e.ended <- e.process.Wait() }()
	go func() {
		defer close(e.lines)
		scanner := bufio.NewScanner(e.control)
		scanner.Buffer(nil, 1<<22)
		for scanner.Scan() {
			e.lines <- scanner.Text()
		}
	}()
	t.Cleanup(e.stop)
	return e
}

// stop closes the control connection, as the death of the driver does, and waits for the end.
func (e *client) stop() {
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
func (e *client) awaitEnd(status int) {
	e.t.Helper()
	select {
	case <-e.ended:
		assert.Equal(e.t, e.process.ProcessState.ExitCode(), status, "exit status of the emulator")
	case <-hang.After():
		e.t.Error("the emulator keeps running without its driver")
		_ = e.process.Process.Kill()
	}
}

func (e *client) send(line string) {
	e.t.Helper()
	_, err := io.WriteString(e.control, line+"\n")
	assert.OK(e.t, err)
}

func (e *client) next() string {
	e.t.Helper()
	select {
	case line, ok := <-e.lines:
		assert.Must(e.t, ok, "the emulator closed the connection")
		return line
	case <-hang.After():
		e.t.Fatal("no line came within the deadline")
	}
	return ""
}

type fields = map[string]any

func parse(t testing.TB, line string) (value fields) {
	t.Helper()
	err := json.Unmarshal([]byte(line), &value)
	assert.Must(t, err == nil, "%v in %q", err, line)
	return value
}

// ask sends a request and returns the result; a refusal ends the test.
func (e *client) ask(op string, more fields) fields {
	e.t.Helper()
	e.id++
	request := fields{"id": e.id, "op": op}
	for name, value := range more {
		request[name] = value
	}
	line, err := json.Marshal(request)
	assert.OK(e.t, err)
	e.send(string(line))
	reply := parse(e.t, e.next())
	assert.Must(e.t, reply["ok"] == true, "%s: %v", line, reply)
	return reply["result"].(fields)
}
