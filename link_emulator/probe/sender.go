package probe

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// priority is the real-time priority of the senders: above the ordinary threads of other programs, so that on a busy
// machine trains are sent as planned; below that of the emulator's data thread (10).
const priority = 5

// shortestSleep is what is worth a sleep: a wake-up takes 5 to 20 us. A shorter pause is waited out.
const shortestSleep = 15 * time.Microsecond

// sendBufferBytes holds the frames of the longest trains where they pass a queueing discipline.
const sendBufferBytes = 64 << 20

// sender sends the streams of one host, on a thread of its own.
type sender struct {
	socket  int
	failed  int
	failure error // the last error of sending
}

// openSender must be called in the namespace of the interface.
func openSender(interfaceIndex int, bypassQdisc bool) (int, error) {
	// Protocol 0: it receives nothing.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	err = unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: interfaceIndex})
	if err == nil {
		err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBufferBytes)
	}
	if err == nil && bypassQdisc {
		err = unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	}
	if err != nil {
		unix.Close(socket)
		return -1, fmt.Errorf("set up a packet socket: %w", err)
	}
	return socket, nil
}

// send sends everything. It stays clear of the Go scheduler; package realtime has the reason.
func (s *sender) send(schedule *Schedule, start time.Time) {
	runtime.LockOSThread() // for good: the thread ends with its goroutine, and its priority with it
	// Without these it sends later and sleeps up to 50 us longer (prctl(2)); what it cannot send in time is not judged.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = realtime.BlockSignals()
	realtime.Pin()
	defer realtime.Unpin()
	_ = realtime.SetFIFO(priority)
	for due, ok := schedule.Next(); ok; due, ok = schedule.Next() {
		if pause := due - time.Since(start); pause > shortestSleep {
			realtime.Sleep(pause.Nanoseconds())
		} else if pause <= 0 {
			s.write(schedule.Frame(time.Since(start)))
		}
	}
}

// write sends a frame; one that the kernel refuses is lost.
func (s *sender) write(frame []byte) {
	if errno := realtime.Write(s.socket, frame); errno != 0 {
		s.failed++
		s.failure = errno
	}
}
