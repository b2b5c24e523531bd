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
	select {
	case err := <-ended:
		t.Fatalf("ended before its caller: %v", err)
	default:
	}
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
	assert.Must(t, len(result.Pairs) == 6 && result.FrameBytes == 98, "%d pairs of frames of %d bytes, want 6 of 98",
		len(result.Pairs), result.FrameBytes)
	index := 0
	for i := range hosts {
		for j := i + 1; j < len(hosts); j++ {
			pair := result.Pairs[index]
			index++
			want := 2 * (delays[i] + delays[j])
			assert.Must(t, pair.A == hosts[i].name && pair.B == hosts[j].name && pair.MedianNS != nil && pair.Lost == 0,
				"got %+v", pair)
			for _, ns := range pair.SamplesNS {
				assert.That(t, time.Duration(ns) >= want, "%s - %s: a sample of %v is early", pair.A, pair.B, time.Duration(ns))
			}
		}
	}
}

func TestSelfTestOfTheKernelsTAPs(t *testing.T) {
	hello := startEmulator(t).ask("hello", nil)
	result := hello["self_test"].(map[string]any)
	t.Logf("%v, latencies %v", result, hello["latencies"])
	assert.That(t, result["echoes"] != 0.0, "got %v", result)
	if result["passed"] != true { // a busy machine is no fault of the emulator's
		t.Logf("the self-test failed: %v", result["reason"])
	}
}

// The request is the open file, so it ends with the process; a kernel without the device is no fault.
func TestIdleCoresAreKeptInTheirShallowestState(t *testing.T) {
	const device = "/dev/cpu_dma_latency"
	hello := startEmulator(t).ask("hello", nil)
	files := fmt.Sprintf("/proc/%v/fd", hello["pid"])
	entries, err := os.ReadDir(files)
	assert.OK(t, err)
	held := false
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(files, entry.Name())); err == nil && target == device {
			held = true
		}
	}
	_, missing := os.Stat(device)
	assert.That(t, held == (missing == nil) && hello["kept_awake"] == held && (hello["kept_awake_reason"] == "") == held,
		"%s open: %t, there: %t; hello says %v, %q", device, held, missing == nil, hello["kept_awake"],
		hello["kept_awake_reason"])
}

func TestHostDeath(t *testing.T) {
	e, hosts := star(t, 0, 0, 0)
	victim := hosts[2]
	assert.OK(t, victim.process.Process.Kill())
	event := parse(t, e.next())
	assert.That(t, event["event"] == "port_down" && event["port"] == victim.name &&
		event["reason"] == fmt.Sprintf("host process %d ended", victim.pid()), "got event %v", event)
	link := e.ask("read_link", fields{"name": victim.name})
	assert.That(t, link["up"] == false, "the link of the dead host: %v", link)
	result := measure(t, hosts[:2], fields{"probes": 3})
	assert.That(t, result.Pairs[0].MedianNS != nil, "the others cannot reach each other any more")
	e.ask("remove_link", fields{"name": victim.name})
	e.ask("remove_port", fields{"name": victim.name})
	again := startHost(t, 2)
	e.addPort(again)
	e.addLink(again, 0)
	again.bringUp()
	outcome := measure(t, []*host{hosts[0], again}, fields{"probes": 3})
	assert.That(t, outcome.Pairs[0].MedianNS != nil, "the new host cannot be reached")
}

func TestDriverDeathLeavesNothing(t *testing.T) {
	e, hosts := star(t, 0, 0)
	for _, h := range hosts {
		assert.Must(t, h.hasInterface(), "%s has no interface at first", h.name)
	}
	// The terminal's Ctrl-C and hang-up go to the whole process group: it must survive them.
	for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGHUP} {
		assert.OK(t, e.process.Process.Signal(signal))
	}
	e.ask("hello", nil)
	e.stop()
	for _, h := range hosts {
		assert.That(t, !h.hasInterface(), "%s still has its interface", h.name)
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

func TestTerminate(t *testing.T) {
	e, hosts := star(t, 0)
	assert.OK(t, e.process.Process.Signal(unix.SIGTERM))
	e.awaitEnd(0)
	e.control.Close()
	e.control = nil
	assert.That(t, !hosts[0].hasInterface(), "the interface is still there")
}

func TestRemovedPortFreesTheNameAtOnce(t *testing.T) {
	e, hosts := star(t, 0)
	h := hosts[0]
	for range 3 {
		e.ask("remove_link", fields{"name": h.name})
		e.ask("remove_port", fields{"name": h.name})
		assert.Must(t, !h.hasInterface(), "the interface is still there")
		e.addPort(h)
		e.addLink(h, 0)
	}
}

func TestInterfaceAsConfigured(t *testing.T) {
	e := startEmulator(t)
	h := startHost(t, 0)
	e.ask("add_port", fields{"name": "p", "pid": h.pid(), "ifname": h.ifName, "mac": "02:00:00:00:00:07", "mtu": 9000})
	h.inside(func() error {
		made, err := net.InterfaceByName(h.ifName)
		if err != nil {
			return err
		}
		assert.That(t, made.MTU == 9000 && made.HardwareAddr.String() == "02:00:00:00:00:07" && made.Flags&net.FlagUp == 0,
			"got %+v", made)
		return nil
	})
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
