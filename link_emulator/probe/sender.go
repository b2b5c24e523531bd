package probe

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// ShortestSleepNS is what is worth a sleep: a wake-up takes 5 to 20 us. A shorter pause is waited out.
const ShortestSleepNS = int64(15e3)

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

// belowDataThread is how much lower the priority of senders is than that of the emulator's data thread. It is above the
// ordinary threads of other programs, so that on a busy machine trains are sent as planned.
const belowDataThread = 5

// send sends everything. It stays clear of the Go scheduler; package realtime has the reason.
func (s *sender) send(schedule *Schedule, start time.Time) {
	for dueNS, ok := schedule.Next(); ok; dueNS, ok = schedule.Next() {
		if pauseNS := dueNS - time.Since(start).Nanoseconds(); pauseNS > ShortestSleepNS {
			realtime.Sleep(pauseNS)
		} else if pauseNS <= 0 {
			s.write(schedule.Frame(time.Since(start).Nanoseconds()))
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
