//go:build root

package roottest

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These measure the machine as much as the emulator: they report and judge nothing. Run them with
//
//	go test -tags root -run xx -bench . -benchtime 1x ./roottest

const benchFor = 3 * time.Second

// sender writes raw frames into a host's interface, many per system call.
type sender struct {
	t        testing.TB
	socket   int
	messages []mmsghdr
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

func newSender(t testing.TB, from, to *host, bytes, batch int) *sender {
	t.Helper()
	frame := make([]byte, bytes)
	copy(frame, to.mac)
	copy(frame[6:], from.mac)
	frame[12], frame[13] = 0x88, 0xb5 // local experimental (IEEE 802): the receiver's stack drops it early
	s := &sender{t: t, messages: make([]mmsghdr, batch)}
	for i := range s.messages {
		part := &unix.Iovec{Base: unsafe.SliceData(frame)}
		part.SetLen(len(frame))
		s.messages[i].header.Iov = part
		s.messages[i].header.SetIovlen(1)
	}
	from.inside(func() (err error) {
		if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		device, err := net.InterfaceByName(from.ifName)
		if err != nil {
			return err
		}
		return unix.Bind(s.socket, &unix.SockaddrLinklayer{Ifindex: device.Index})
	})
	t.Cleanup(func() { unix.Close(s.socket) })
	return s
}

// send writes the first count frames of the batch and returns how many the kernel took.
func (s *sender) send(count int) int {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.socket),
		uintptr(unsafe.Pointer(unsafe.SliceData(s.messages))), uintptr(count), 0, 0, 0)
	if errno != 0 && errno != unix.ENOBUFS {
		s.t.Fatalf("sendmmsg: %v", errno)
	}
	return int(n)
}

// withAndWithoutStamps runs a benchmark with the kernel's stamps and without.
func withAndWithoutStamps(b *testing.B, run func(b *testing.B, stamps string)) {
	for _, stamps := range []string{"kernel", "read"} {
		b.Run(stamps, func(b *testing.B) { run(b, stamps) })
	}
}

func pairOfHosts(b *testing.B, stamps string) (*emulator, []*host) {
	b.Helper()
	e := startEmulator(b, "--stamps", stamps)
	hosts := e.star(nil, 3*time.Millisecond, 3*time.Millisecond)
	measure(b, hosts, fields{"probes": 3}) // both addresses are learned
	return e, hosts
}

// sentTo is how many frames the emulator has delivered to a host.
func (e *emulator) sentTo(h *host) float64 {
	port := e.ask("stats", nil)["ports"].(map[string]any)[h.name].(map[string]any)
	return port["sent_frames"].(float64)
}

// cpuSeconds that the emulator has used.
func (e *emulator) cpuSeconds() float64 {
	e.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.process.Process.Pid))
	if err != nil {
		e.t.Fatal(err)
	}
	columns := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := 0.0
	for _, column := range columns[11:13] { // utime, stime: columns 14 and 15 of proc(5), in 1/100 s
		n, err := strconv.ParseFloat(column, 64)
		if err != nil {
			e.t.Fatal(err)
		}
		ticks += n
	}
	return ticks / 100
}

func BenchmarkForward64(b *testing.B) { withAndWithoutStamps(b, forward64) }

func forward64(b *testing.B, stamps string) {
	e, hosts := pairOfHosts(b, stamps)
	flood := newSender(b, hosts[0], hosts[1], 64, 64)
	for b.Loop() {
		before, start := e.sentTo(hosts[1]), time.Now()
		offered := 0
		for time.Since(start) < benchFor {
			offered += flood.send(64)
		}
		seconds := time.Since(start).Seconds()
		b.ReportMetric(float64(offered)/seconds, "offered-frames/s")
		b.ReportMetric((e.sentTo(hosts[1])-before)/seconds, "frames/s")
	}
}

func BenchmarkCost20000EvenlySpaced(b *testing.B) {
	withAndWithoutStamps(b, func(b *testing.B, stamps string) { cost(b, stamps, 50*time.Microsecond, 1) })
}

func BenchmarkCost20000InBursts(b *testing.B) {
	withAndWithoutStamps(b, func(b *testing.B, stamps string) { cost(b, stamps, time.Millisecond, 20) })
}

// cost sends full frames at 20,000 per second and reports the share of a core that the emulator uses.
func cost(b *testing.B, stamps string, every time.Duration, burst int) {
	e, hosts := pairOfHosts(b, stamps)
	load := newSender(b, hosts[0], hosts[1], 1514, burst)
	for b.Loop() {
		cpu, before, start := e.cpuSeconds(), e.sentTo(hosts[1]), time.Now()
		for next := start; time.Since(start) < benchFor; next = next.Add(every) {
			at := unix.NsecToTimespec(time.Until(next).Nanoseconds())
			if at.Sec >= 0 && at.Nsec > 0 {
				_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &at, nil) // an early wake-up does no harm
			}
			load.send(burst)
		}
		seconds := time.Since(start).Seconds()
		b.ReportMetric((e.sentTo(hosts[1])-before)/seconds, "frames/s")
		b.ReportMetric(100*(e.cpuSeconds()-cpu)/seconds, "%core")
		lateness := e.ask("stats", nil)["lateness"].(map[string]any)
		b.ReportMetric(lateness["p50_ns"].(float64)/1e3, "late-p50-us")
		b.ReportMetric(lateness["p99_ns"].(float64)/1e3, "late-p99-us")
	}
}
