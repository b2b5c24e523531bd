//go:build root

package roottest

import (
	"bytes"
	numbers "encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/hang"
)

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
	h.mac = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	tap, err := device.OpenTap(device.TapSpec{PID: h.pid(), PIDFD: -1, IfName: h.ifName, MAC: h.mac, MTU: 1500,
		Stamps: true})
	must(t, err)
	h.bringUp()
	h.inside(func() (err error) {
		if socket, err = packetSocket(h, 0); err != nil {
			return err
		}
		return unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	})
	t.Cleanup(func() {
		if err := errors.Join(unix.Close(socket), tap.Close()); err != nil {
			t.Error(err)
		}
	})
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
		if errno != 0 {
			t.Fatal(errno)
		}
		atNS, ok := tap.Stamps().Take(buffer[:n], false)
		if !ok {
			t.Fatalf("no stamp of a frame of %d bytes: % x", n, buffer[:20])
		}
		if bytes.Equal(buffer[12:14], []byte{0x88, 0xb5}) {
			return buffer[:n], atNS
		}
	}
}

// awaitStamped waits for a frame.
func awaitStamped(t testing.TB, tap device.Device) (frame []byte, atNS int64) {
	t.Helper()
	for frame == nil {
		if !hang.Readable(tap.FD()) {
			t.Fatal("no frame came")
		}
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
		must(t, err)
		var beforeNS, afterNS [sent]int64
		send := func(i int) {
			number := i
			if equal {
				number = 0
			}
			beforeNS[i] = hang.StampNS()
			if _, err := unix.Write(socket, testFrame(number, 100)); err != nil && err != unix.ENOBUFS {
				t.Fatal(err)
			}
			afterNS[i] = hang.StampNS()
		}
		for i := range sent - 1 {
			send(i)
		}
		drops, err := tap.KernelDrops()
		must(t, err)
		dropped := int(drops.Since(droppedBefore).Queue)
		admitted := sent - 1 - dropped
		if admitted > device.TxQueueLen || admitted < device.TxQueueLen*95/100 {
			t.Errorf("%d frames dropped of %d, want all but nearly %d", dropped, sent-1, device.TxQueueLen)
		}
		expect := func(i int) {
			frame, atNS := awaitStamped(t, tap)
			if !equal && numberOf(frame) != i {
				t.Fatalf("got frame %d, want %d", numberOf(frame), i)
			}
			if atNS < beforeNS[i]-clockErrorNS || atNS > afterNS[i]+clockErrorNS {
				t.Fatalf("equal %v: frame %d is stamped %d ns after it was sent", equal, i, atNS-beforeNS[i])
			}
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
		if got := tap.Stamps().GivenUp(); got != 0 {
			t.Errorf("equal %v: %d stamps have no frame", equal, got)
		}
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
		if i := numberOf(frame); atNS < beforeNS[i].Load()-clockErrorNS || atNS > hang.StampNS()+clockErrorNS {
			t.Fatalf("frame %d is stamped %d ns after it was sent", i, atNS-beforeNS[i].Load())
		}
		if atNS < latestNS {
			overtaken++
		}
		latestNS = max(latestNS, atNS)
	}
	group.Wait()
	t.Logf("%d of %d frames were read after one with a later stamp", overtaken, read)
	if got := tap.Stamps().GivenUp(); got != 0 {
		t.Errorf("%d stamps have no frame", got)
	}
}

// flow sends frames from one host to another, five, a pause, and so on, and returns how long after its sending each was
// received, by the kernel's receive time stamps. One function is called after half of them, one after three quarters.
func flow(t *testing.T, from, to *host, bursts int, half, threeQuarters func()) (tookNS []int64) {
	t.Helper()
	var sender, receiver int
	from.inside(func() (err error) {
		sender, err = packetSocket(from, 0)
		return err
	})
	to.inside(func() (err error) {
		receiver, err = packetSocket(to, 0xb588) // local experimental, in network byte order
		return err
	})
	defer unix.Close(sender)
	defer unix.Close(receiver)
	for option, value := range map[int]int{unix.SO_RCVBUFFORCE: 64 << 20, unix.SO_TIMESTAMPNS: 1} {
		must(t, unix.SetsockoptInt(receiver, unix.SOL_SOCKET, option, value))
	}
	patience := unix.NsecToTimeval(hang.Deadline.Nanoseconds())
	must(t, unix.SetsockoptTimeval(receiver, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))
	sentNS := make([]atomic.Int64, 5*bursts)
	var sending sync.WaitGroup
	defer sending.Wait() // before the socket is closed, whose number is another's then
	sending.Go(func() {
		for burst := range bursts {
			switch burst {
			case bursts / 2:
				half()
			case bursts * 3 / 4:
				threeQuarters()
			}
			hang.Pause()
			for i := 5 * burst; i < 5*burst+5; i++ {
				frame := testFrame(i, 200)
				copy(frame, to.mac)
				copy(frame[6:], from.mac)
				sentNS[i].Store(hang.StampNS())
				if _, err := unix.Write(sender, frame); err != nil {
					t.Errorf("send: %v", err)
					return
				}
			}
		}
	})
	frame, control := make([]byte, 2048), make([]byte, 128)
	realtime := hang.WallLessStampNS()
	for len(tookNS) < len(sentNS) {
		n, controlBytes, _, _, err := unix.Recvmsg(receiver, frame, control, 0)
		if err == unix.EINTR { // with a timeout, the runtime's signals interrupt it
			continue
		}
		if err != nil {
			t.Fatalf("after %d frames: %v", len(tookNS), err)
		}
		messages, err := unix.ParseSocketControlMessage(control[:controlBytes])
		if err != nil || len(messages) != 1 || messages[0].Header.Type != unix.SCM_TIMESTAMPNS || n != 200 {
			t.Fatalf("%d bytes, %+v, %v", n, messages, err)
		}
		at := (*unix.Timespec)(unsafe.Pointer(unsafe.SliceData(messages[0].Data)))
		tookNS = append(tookNS, at.Nano()-realtime-sentNS[numberOf(frame)].Load())
	}
	if moved := hang.WallLessStampNS() - realtime; moved > clockErrorNS || moved < -clockErrorNS {
		t.Skipf("the clock was set by %d ns meanwhile", moved)
	}
	return tookNS
}

func packetSocket(h *host, protocol int) (int, error) {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	made, err := net.InterfaceByName(h.ifName)
	if err == nil {
		err = unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: uint16(protocol), Ifindex: made.Index})
	}
	return socket, err
}

// lateness is that of all frames, and how many had no stamp.
func (e *emulator) lateness() (earlyMaxNS, tooEarly, maxNS, unmatched float64) {
	e.t.Helper()
	stats := e.ask("stats", nil)
	late := stats["lateness"].(map[string]any)
	earlyMaxNS, tooEarly = late["early_max_ns"].(float64), late["too_early"].(float64)
	return earlyMaxNS, tooEarly, late["max_ns"].(float64), stats["unmatched"].(float64)
}

const flowDelay = time.Millisecond // of each of two links

// An emulator that is stopped, and goes on when more frames have come, delivers all of them, none early: neither those
// that waited nor those behind them. What it says of their lateness is no more than what the receiver saw.
func TestAStopMakesNoFrameEarly(t *testing.T) {
	e, hosts := star(t, flowDelay, flowDelay)
	measure(t, hosts, fields{"probes": 3}) // both addresses are learned
	e.ask("stats", fields{"reset": true})
	var errs [2]error
	took := flow(t, hosts[0], hosts[1], 1000, func() { errs[0] = e.process.Process.Signal(unix.SIGSTOP) },
		func() { errs[1] = e.process.Process.Signal(unix.SIGCONT) })
	least, most := slices.Min(took)-2*flowDelay.Nanoseconds(), slices.Max(took)-2*flowDelay.Nanoseconds()
	earlyMaxNS, tooEarly, maxNS, unmatched := e.lateness()
	t.Logf("late by %v to %v, lateness at most %v", time.Duration(least), time.Duration(most), time.Duration(maxNS))
	must(t, errors.Join(errs[:]...))
	if least < -clockErrorNS || earlyMaxNS != 0 || tooEarly != 0 || unmatched != 0 {
		t.Errorf("a frame was %d ns early; at most %v by its own account, %v too early, %v not matched",
			-least, earlyMaxNS, tooEarly, unmatched)
	}
	if maxNS > float64(most+clockErrorNS) {
		t.Errorf("lateness at most %v, more than the %v of the receiver", time.Duration(maxNS), time.Duration(most))
	}
}

// withoutBPF marks a process that drops what it needs to load a program, and becomes an emulator: its value.
const withoutBPF = "LINK_EMULATOR_TEST_WITHOUT_BPF"

// execWithoutBPF returns only on failure. CAP_SYS_ADMIN includes CAP_BPF, and a host's namespace cannot be entered
// without.
func execWithoutBPF() error {
	runtime.LockOSThread() // capabilities belong to a thread
	for _, capability := range []uintptr{unix.CAP_BPF, unix.CAP_SYS_ADMIN} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return err
		}
	}
	program := os.Getenv(withoutBPF)
	return syscall.Exec(program, []string{program, "serve", "--control-fd", "3"}, nil)
}

func TestStampsAreGrantedOrTheReasonIsSaid(t *testing.T) {
	if hello := startEmulator(t).ask("hello", nil); hello["stamps"] != "kernel" || hello["stamps_reason"] != "" {
		t.Errorf("as root: %v, %q", hello["stamps"], hello["stamps_reason"])
	}
	if hello := startEmulator(t, "--stamps", "read").ask("hello", nil); hello["stamps"] != "read" ||
		hello["stamps_reason"] != "--stamps read" {
		t.Errorf("forced: %v, %q", hello["stamps"], hello["stamps_reason"])
	}
	if text, err := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled"); err != nil ||
		strings.TrimSpace(string(text)) == "0" {
		t.Skip("this kernel lets everybody load programs")
	}
	refused := exec.Command(os.Args[0])
	refused.Env = append(os.Environ(), withoutBPF+"="+binary)
	hello := startProgram(t, refused).ask("hello", nil)
	t.Logf("without CAP_BPF: %v", hello["stamps_reason"])
	if hello["stamps"] != "read" || !strings.Contains(hello["stamps_reason"].(string), "operation not permitted") {
		t.Errorf("without CAP_BPF: %v, %q", hello["stamps"], hello["stamps_reason"])
	}
}
