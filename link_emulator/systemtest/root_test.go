//go:build root

package systemtest

import (
	"bytes"
	"cmp"
	numbers "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/hang"
	"containernet-env/link_emulator/netns"
	"containernet-env/link_emulator/probe"
	"containernet-env/link_emulator/rtt"
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

// TestHello: frames have stamps of the kernel, the self-test of its TAPs had echoes, and idle cores are kept in their
// shallowest state. That request is the open file, so it ends with the process; a kernel without the device is no
// fault.
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
	said := hello["kept_awake"] == held && (hello["kept_awake_reason"] == "") == held
	assert.That(t, held == (missing == nil) && said,
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
		e.ask("add_port", fields{"name": "p", "pid": h.pid(), "ifname": h.ifName, "mac": "02:00:00:00:00:07",
			"mtu": 9000})
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

func TestProbes(t *testing.T) {
	const delay = 3 * time.Millisecond
	e, hosts := star(t, 0, delay)
	down := startHost(t, 2)
	e.addPort(down)
	e.addLink(down, 0)
	var result rtt.Result
	prober(t, "rtt", append(hosts, down), fields{"probes": 20, "timeout_ms": 100}, &result)()
	pairs := result.Pairs
	for _, sampleNS := range pairs[0].SamplesNS {
		assert.That(t, time.Duration(sampleNS) >= 2*delay, "early: %+v", pairs[0])
	}
	assert.That(t, pairs[1].MedianNS == nil && pairs[1].Lost != 0, "got %+v", pairs[1])
	link := e.ask("read_link", fields{"name": down.name})
	drops := link["b_to_a"].(map[string]any)["drops"].(map[string]any)
	assert.That(t, drops["down"] != 0.0, "drops: %v", drops)
}

// clockErrorNS: the two readings of CLOCK_MONOTONIC, in this process and in the kernel's program, differ by less.
const clockErrorNS = int64(1000)

// testFrame is a broadcast of the local experimental EtherType (IEEE 802), with a number.
func testFrame(number, bytes int) []byte {
	frame := make([]byte, bytes)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")
	numbers.BigEndian.PutUint32(frame[14:], uint32(number))
	return frame
}

func numberOf(frame []byte) int { return int(numbers.BigEndian.Uint32(frame[14:])) }

// stampedTAP is a TAP whose frames the kernel stamps, and a packet socket that sends into it, past the queueing
// discipline: that may let another core send a frame after the call.
func stampedTAP(t testing.TB) (tap device.Device, socket int) {
	t.Helper()
	h := startHost(t, 0)
	tap, err := device.OpenTap(device.TapSpec{PID: h.pid(), PIDFD: -1, IfName: h.ifName, MTU: 1500, Stamps: true,
		MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}})
	assert.OK(t, err)
	h.bringUp()
	h.inside(func() (err error) {
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		made, err := net.InterfaceByName(h.ifName)
		if err != nil {
			return err
		}
		return cmp.Or(unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: made.Index}),
			unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
	})
	t.Cleanup(func() { assert.OK(t, unix.Close(socket), tap.Close()) })
	return tap, socket
}

// readStamped reads the next test frame, and skips what the kernel's own stack sends; nil: the queue is empty.
func readStamped(t testing.TB, tap device.Device) (frame []byte, atNS int64) {
	t.Helper()
	buffer := make([]byte, 2048)
	for {
		n, errno := tap.Read(buffer)
		if errno == unix.EAGAIN {
			return nil, 0
		}
		assert.Must(t, errno == 0, "%v", errno)
		atNS, ok := tap.Stamps().Take(buffer[:n], false)
		assert.Must(t, ok, "no stamp of a frame of %d bytes: % x", n, buffer[:20])
		if bytes.Equal(buffer[12:14], []byte{0x88, 0xb5}) {
			return buffer[:n], atNS
		}
	}
}

// awaitStamped waits for a frame.
func awaitStamped(t testing.TB, tap device.Device) (frame []byte, atNS int64) {
	t.Helper()
	for frame == nil {
		assert.Must(t, hang.Readable(tap.FD()), "no frame came")
		frame, atNS = readStamped(t, tap)
	}
	return frame, atNS
}

// Frames that find the queue full are dropped and counted; those before and after them keep their own stamps, also if
// all frames are equal.
func TestStampsOfAFullQueue(t *testing.T) {
	tap, socket := stampedTAP(t)
	const sent = 2 * device.TxQueueLen
	for _, equal := range []bool{false, true} {
		droppedBefore, err := tap.KernelDrops()
		assert.OK(t, err)
		var beforeNS, afterNS [sent]int64
		send := func(i int) {
			number := i
			if equal {
				number = 0
			}
			beforeNS[i] = hang.StampNS()
			_, err := unix.Write(socket, testFrame(number, 100))
			assert.Must(t, err == nil || err == unix.ENOBUFS, "%v", err)
			afterNS[i] = hang.StampNS()
		}
		for i := range sent - 1 {
			send(i)
		}
		drops, err := tap.KernelDrops()
		assert.OK(t, err)
		dropped := int(drops.Since(droppedBefore).Queue)
		admitted := sent - 1 - dropped
		assert.That(t, admitted <= device.TxQueueLen && admitted >= device.TxQueueLen*95/100,
			"%d frames dropped of %d, want all but nearly %d", dropped, sent-1, device.TxQueueLen)
		expect := func(i int) {
			frame, atNS := awaitStamped(t, tap)
			assert.Must(t, equal || numberOf(frame) == i, "got frame %d, want %d", numberOf(frame), i)
			assert.Must(t, atNS >= beforeNS[i]-clockErrorNS && atNS <= afterNS[i]+clockErrorNS,
				"equal %v: frame %d is stamped %d ns after it was sent", equal, i, atNS-beforeNS[i])
		}
		for i := range admitted - 10 { // the kernel's own frames may have taken some places
			expect(i)
		}
		for frame := []byte{0}; frame != nil; frame, _ = readStamped(t, tap) {
		}
		tap.Stamps().Release(hang.StampNS(), true)
		send(sent - 1)
		expect(sent - 1)
		tap.Stamps().Release(0, false)
		assert.Equal(t, tap.Stamps().GivenUp(), 0, "equal %v: stamps without a frame", equal)
	}
}

// Several senders on several cores, which nothing keeps in order: every frame, of any length, finds the stamp of its
// own sending.
func TestStampsOfConcurrentSenders(t *testing.T) {
	const senders, each = 4, 20_000
	tap, socket := stampedTAP(t)
	var beforeNS [senders * each]atomic.Int64
	var stopped atomic.Bool
	var group sync.WaitGroup
	defer group.Wait() // else they would write to whatever has the socket's number next
	defer stopped.Store(true)
	for sender := range senders {
		group.Go(func() {
			for i := sender * each; i < (sender+1)*each; i++ {
				frame := testFrame(i, 18+i%1497)
				beforeNS[i].Store(hang.StampNS())
				for {
					if _, err := unix.Write(socket, frame); err == nil {
						break
					}
					if stopped.Load() {
						return
					}
					runtime.Gosched() // the queue is full
					beforeNS[i].Store(hang.StampNS())
				}
			}
		})
	}
	read, overtaken, latestNS := 0, 0, int64(0)
	for read < senders*each {
		frame, atNS := awaitStamped(t, tap)
		read++
		tap.Stamps().Release(0, false)
		i := numberOf(frame)
		assert.Must(t, atNS >= beforeNS[i].Load()-clockErrorNS && atNS <= hang.StampNS()+clockErrorNS,
			"frame %d is stamped %d ns after it was sent", i, atNS-beforeNS[i].Load())
		if atNS < latestNS {
			overtaken++
		}
		latestNS = max(latestNS, atNS)
	}
	group.Wait()
	t.Logf("%d of %d frames were read after one with a later stamp", overtaken, read)
	assert.Equal(t, tap.Stamps().GivenUp(), 0, "stamps without a frame")
}

// An emulator that is stopped, and goes on when more frames have come, delivers all of them, none early: neither those
// that waited nor those behind them. What it says of their lateness is no more than what the receiver saw.
func TestAStopMakesNoFrameEarly(t *testing.T) {
	const delay = time.Millisecond // of each of two links
	e, hosts := star(t, delay, delay)
	var result probe.Result
	await := prober(t, "probe", hosts, fields{"warmup_ms": 60_000, "duration_ms": 1000, "streams": []fields{{
		"from": 0, "to": 1, "until_us": 800_000, "interval_ns": 100_000, "count": 5000, "frame_bytes": 200}}}, &result)
	received := func() float64 {
		return e.ask("stats", nil)["ports"].(fields)[hosts[0].name].(fields)["received_frames"].(float64)
	}
	for received() < 1000 { // the stream has begun
	}
	assert.OK(t, e.process.Process.Signal(unix.SIGSTOP))
	for range 100 {
		hang.Pause()
	}
	assert.OK(t, e.process.Process.Signal(unix.SIGCONT))
	await()
	if moved := result.ClockStepNS; moved > clockErrorNS || moved < -clockErrorNS {
		t.Skipf("disturbed: the clock was set by %d ns meanwhile", moved)
	}
	stream := result.Streams[0]
	assert.Must(t, stream.Received == stream.Sent && result.Hosts[1].RingLost == 0, "%d of %d frames arrived: %+v",
		stream.Received, stream.Sent, result.Hosts)
	least, most := slices.Min(stream.DelayNS)-2*delay.Nanoseconds(), slices.Max(stream.DelayNS)-2*delay.Nanoseconds()
	stats := e.ask("stats", nil)
	late := stats["lateness"].(fields)
	t.Logf("%d frames late by %v to %v, lateness %v", stream.Sent, time.Duration(least), time.Duration(most), late)
	assert.That(t, least >= -clockErrorNS && late["early_max_ns"] == 0.0 && late["too_early"] == 0.0 &&
		stats["unmatched"] == 0.0, "a frame was %d ns early; %v, %v not matched", -least, late, stats["unmatched"])
	assert.That(t, late["max_ns"].(float64) <= float64(most+clockErrorNS), "late by %v of the receiver's %v",
		late["max_ns"], time.Duration(most))
	if stream.Sent < 1100 || most < (50*time.Millisecond).Nanoseconds() {
		t.Skipf("disturbed: of %d frames none was later than %v", stream.Sent, time.Duration(most))
	}
}

// programVariable is the emulator that execWithoutBPF becomes.
const programVariable = "LINK_EMULATOR_TEST_PROGRAM"

func init() { roles["without BPF"] = execWithoutBPF }

// execWithoutBPF drops what a process needs to load a BPF program, and becomes an emulator; it returns only on failure.
// CAP_SYS_ADMIN includes CAP_BPF, and a host's namespace cannot be entered without.
func execWithoutBPF() int {
	runtime.LockOSThread() // capabilities belong to a thread
	program := os.Getenv(programVariable)
	fmt.Fprintln(os.Stderr, cmp.Or(
		unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_BPF, 0, 0, 0),
		unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0),
		syscall.Exec(program, []string{program, "serve", "--control-fd", "3"}, nil)))
	return 1
}

func TestStampsAreGrantedOrTheReasonIsSaid(t *testing.T) {
	forced := startEmulator(t, "--stamps", "read").ask("hello", nil)
	assert.That(t, forced["stamps"] == "read" && forced["stamps_reason"] == "--stamps read", "forced: %v, %q",
		forced["stamps"], forced["stamps_reason"])
	if text, err := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled"); err != nil ||
		strings.TrimSpace(string(text)) == "0" {
		t.Skip("this kernel lets everybody load programs")
	}
	refused := inRole("without BPF")
	refused.Env = append(refused.Env, programVariable+"="+binary)
	hello := start(t, refused).ask("hello", nil)
	t.Logf("without CAP_BPF: %v", hello["stamps_reason"])
	assert.That(t, hello["stamps"] == "read" && strings.Contains(hello["stamps_reason"].(string),
		"operation not permitted"), "without CAP_BPF: %v, %q", hello["stamps"], hello["stamps_reason"])
}

// What hosts send arrives as it was sent, also over links that lose, change and double frames, with offload and
// without. With it the host's kernel takes frames that were split and joined, and the links count each by itself.
func TestWhatHostsSendArrives(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	for _, arguments := range [][]string{{"--offload"}, nil} {
		for _, direction := range []fields{
			{"delay_ns": 100_000},
			{"delay_ns": 1_000_000, "rate_bps": 10_000_000_000},
			{"delay_ns": 100_000, "loss": fields{"model": "independent", "ratio": 0.001}, "seed": 1},
			{"delay_ns": 100_000, "corruption_ratio": 0.001, "seed": 2},
			{"delay_ns": 100_000, "duplication_ratio": 0.01, "seed": 3},
		} {
			e := startEmulator(t, arguments...)
			e.ask("add_switch", fields{"name": "s1"})
			var hosts [2]*host
			for i := range hosts {
				hosts[i] = startHost(t, i)
				e.addPort(hosts[i])
				e.ask("add_link", fields{"name": hosts[i].name, "a": fields{"port": hosts[i].name},
					"b": fields{"switch": "s1"}, "a_to_b": direction, "b_to_a": direction})
				hosts[i].bringUp()
			}
			transfer(t, hosts[0], hosts[1], sent)
			if len(direction) == 1 {
				datagram(t, hosts[0], hosts[1], sent[:1000])
			}
			stats := e.ask("stats", nil)
			assert.Equal(t, stats["unmatched"], any(0.0), "%v: frames without a stamp", arguments)
			sentFrames := stats["ports"].(fields)[hosts[1].name].(fields)["sent_frames"].(float64)
			assert.That(t, sentFrames >= float64(len(sent)/1500), "%v: %v frames of %d bytes", arguments, sentFrames,
				len(sent))
			if len(direction) == 1 {
				// All that was handed over at once is due at once.
				assert.That(t, (hosts[1].received() < sentFrames/2) == (arguments != nil), "%v: %v pieces of %v frames",
					arguments, hosts[1].received(), sentFrames)
			}
			e.stop()
		}
	}
}

// received is how many pieces the kernel of a host was handed.
func (h *host) received() (count float64) {
	h.t.Helper()
	h.inside(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		_, rest, _ := strings.Cut(string(text), h.ifName+":")
		var bytes int
		_, scanErr := fmt.Sscan(rest, &bytes, &count)
		return cmp.Or(err, scanErr)
	})
	return count
}

// datagram sends data from one host to another over UDP and checks that it arrives.
func datagram(t *testing.T, from, to *host, data []byte) {
	t.Helper()
	var sender net.Conn
	var receiver net.PacketConn
	to.inside(func() (err error) {
		receiver, err = net.ListenPacket("udp4", to.ip.String()+":5000")
		return err
	})
	defer receiver.Close()
	from.inside(func() (err error) {
		sender, err = net.Dial("udp4", to.ip.String()+":5000")
		return err
	})
	defer sender.Close()
	got := make(chan []byte, 1)
	go func() {
		received := make([]byte, 2*len(data))
		n, _, _ := receiver.ReadFrom(received)
		got <- received[:n]
	}()
	_, err := sender.Write(data)
	assert.OK(t, err)
	expect(t, got, data)
}

func expect(t *testing.T, got <-chan []byte, data []byte) {
	t.Helper()
	select {
	case received := <-got:
		assert.Must(t, bytes.Equal(received, data), "%d of %d bytes came, or others", len(received), len(data))
	case <-hang.After():
		t.Fatal("nothing came")
	}
}

// transfer sends data from one host to another over TCP and checks that it arrives.
func transfer(t *testing.T, from, to *host, data []byte) {
	t.Helper()
	var listener net.Listener
	to.inside(func() (err error) {
		listener, err = net.Listen("tcp4", to.ip.String()+":5000")
		return err
	})
	defer listener.Close()
	got := make(chan []byte, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			close(got)
			return
		}
		defer connection.Close()
		received, _ := io.ReadAll(connection)
		got <- received
	}()
	var connection net.Conn
	from.inside(func() (err error) {
		connection, err = net.Dial("tcp4", to.ip.String()+":5000")
		return err
	})
	_, err := connection.Write(data)
	assert.OK(t, err)
	assert.OK(t, connection.Close())
	expect(t, got, data)
}
