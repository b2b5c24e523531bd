//go:build root

package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/hang"
	"containernet-env/link_emulator/rtt"
)

// measure runs `link-emulator rtt` over hosts.
func measure(t testing.TB, hosts []*host, more fields) (result rtt.Result) {
	t.Helper()
	request := fields{"timeout_ms": hang.Deadline.Milliseconds()}
	maps.Copy(request, more)
	prober(t, "rtt", hosts, request, &result)()
	return result
}

// prober starts `link-emulator rtt` or probe over hosts; await returns when it has a result.
func prober(t testing.TB, verb string, hosts []*host, request fields, result any) (await func()) {
	t.Helper()
	var list []fields
	for _, h := range hosts {
		list = append(list, fields{"name": h.name, "pid": h.pid(), "ip": h.ip.String()})
	}
	request["hosts"] = list
	input, err := json.Marshal(request)
	assert.OK(t, err)
	var stdout, stderr bytes.Buffer
	command := exec.Command(binary, verb)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &stdout, &stderr
	assert.OK(t, command.Start())
	return func() {
		t.Helper()
		err := command.Wait()
		assert.Must(t, err == nil, "%s: %v: %s", verb, err, stderr.String())
		assert.OK(t, json.Unmarshal(stdout.Bytes(), result))
	}
}

// A prober that waits for a request ends with the pipe of its caller.
func TestProberEndsWithItsCaller(t *testing.T) {
	theirs, ours, err := os.Pipe()
	assert.OK(t, err)
	command := exec.Command(binary, "rtt", "--life-fd", "3")
	command.ExtraFiles = []*os.File{theirs}
	_, problem := command.StdinPipe()
	assert.OK(t, problem)
	assert.OK(t, command.Start())
	theirs.Close()
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	ours.Close()
	select {
	case <-ended:
	case <-hang.After():
		_ = command.Process.Kill()
		t.Fatal("still runs after the end of its caller")
	}
}

func TestRoundTripsAreNeverEarly(t *testing.T) {
	delays := []time.Duration{0, 3 * time.Millisecond, 3 * time.Millisecond, 50 * time.Millisecond}
	_, hosts := star(t, delays...)
	result := measure(t, hosts, fields{"probes": 50})
	assert.That(t, result.FrameBytes == 98, "frames of %d bytes", result.FrameBytes)
	pairs := result.Pairs
	for i := range hosts {
		for j := i + 1; j < len(hosts); j++ {
			pair, want := pairs[0], 2*(delays[i]+delays[j])
			pairs = pairs[1:]
			assert.Must(t, pair.A == hosts[i].name && pair.B == hosts[j].name && pair.Lost == 0 &&
				time.Duration(slices.Min(pair.SamplesNS)) >= want, "a sample of less than %v: %+v", want, pair)
		}
	}
	assert.Equal(t, len(pairs), 0, "more pairs")
}

// TestHello: frames have stamps of the kernel, the self-test of its TAPs had echoes, and idle cores are kept in their
// shallowest state. That request is the open file, so it ends with the process; a kernel without the device is no fault.
func TestHello(t *testing.T) {
	const device = "/dev/cpu_dma_latency"
	hello := startEmulator(t).ask("hello", nil)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%v/fd/*", hello["pid"]))
	assert.OK(t, err)
	held := slices.ContainsFunc(files, func(file string) bool {
		target, err := os.Readlink(file)
		return err == nil && target == device
	})
	_, missing := os.Stat(device)
	assert.That(t, held == (missing == nil) && hello["kept_awake"] == held && (hello["kept_awake_reason"] == "") == held,
		"%s open: %t, there: %t; %v", device, held, missing == nil, hello)
	assert.That(t, hello["stamps"] == "kernel" && hello["stamps_reason"] == "", "%v", hello)
	result := hello["self_test"].(map[string]any)
	assert.That(t, result["echoes"] != 0.0, "got %v", result)
	t.Logf("self-test: %v", result) // a busy machine may fail it
}

// TestEndsLeaveNothing: the driver's death, and SIGTERM.
func TestEndsLeaveNothing(t *testing.T) {
	for name, end := range map[string]func(e *client){
		"the driver dies": func(e *client) {
			// The terminal's Ctrl-C and hang-up go to the whole process group: it must survive them.
			for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGHUP} {
				assert.OK(t, e.process.Process.Signal(signal))
			}
			e.ask("hello", nil)
			e.stop()
		},
		"SIGTERM": func(e *client) {
			assert.OK(t, e.process.Process.Signal(unix.SIGTERM))
			e.awaitEnd(0)
			e.control.Close()
			e.control = nil
		},
	} {
		e, hosts := star(t, 0)
		assert.Must(t, hosts[0].hasInterface(), "no interface at first")
		end(e)
		assert.That(t, !hosts[0].hasInterface(), "%s: the interface is still there", name)
	}
}

// The driver is killed with an event unread: its socket answers with a reset, which is an end like any other.
func TestDriverDeathWithSomethingUnread(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.OK(t, err)
	far := os.NewFile(uintptr(fds[1]), "control of the emulator")
	process := exec.Command(binary, "serve", "--control-fd", "3")
	process.ExtraFiles = []*os.File{far}
	assert.OK(t, process.Start())
	far.Close()
	_, problem := unix.Write(fds[0], []byte("{\"id\":1,\"op\":\"hello\"}\n"))
	assert.OK(t, problem)
	assert.That(t, hang.Readable(fds[0]), "no reply came")
	unix.Close(fds[0])
	assert.Equal(t, process.Wait(), nil, "how the emulator ended")
}

// TestInterfaceAsConfigured makes it again where it was removed: the name is free at once.
func TestInterfaceAsConfigured(t *testing.T) {
	e, h := startEmulator(t), startHost(t, 0)
	for range 2 {
		e.ask("add_port", fields{"name": "p", "pid": h.pid(), "ifname": h.ifName, "mac": "02:00:00:00:00:07", "mtu": 9000})
		h.inside(func() error {
			made, err := net.InterfaceByName(h.ifName)
			assert.That(t, err == nil && made.MTU == 9000 && made.HardwareAddr.String() == "02:00:00:00:00:07" &&
				made.Flags&net.FlagUp == 0, "got %+v, %v", made, err)
			return nil
		})
		e.ask("remove_port", fields{"name": "p"})
		assert.Must(t, !h.hasInterface(), "the interface is still there")
	}
}

func TestFrameToAnInterfaceThatIsDownIsCounted(t *testing.T) {
	e, hosts := star(t, 0)
	down := startHost(t, 1)
	e.addPort(down)
	e.addLink(down, 0)
	result := measure(t, []*host{hosts[0], down}, fields{"probes": 1, "timeout_ms": 100})
	assert.That(t, result.Pairs[0].MedianNS == nil && result.Pairs[0].Lost != 0, "got %+v", result.Pairs[0])
	link := e.ask("read_link", fields{"name": down.name})
	drops := link["b_to_a"].(map[string]any)["drops"].(map[string]any)
	assert.That(t, drops["down"] != 0.0, "drops: %v", drops)
}
