package probe

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/realtime"
)

// ShortestSleepNS is what is worth a sleep: a wake-up takes 5 to 20 us. A shorter pause is waited out.
const ShortestSleepNS = int64(15e3)

// sendBufferBytes holds the frames of the longest trains where they pass a queueing discipline.
const sendBufferBytes = 64 << 20

// openSender must be called in the namespace of the interface.
func (s *station) openSender(interfaceIndex int, bypassQdisc bool) (err error) {
	// Protocol 0: it receives nothing.
	if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	err = cmp.Or(unix.Bind(s.socket, &unix.SockaddrLinklayer{Ifindex: interfaceIndex}),
		unix.SetsockoptInt(s.socket, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBufferBytes))
	if err == nil && bypassQdisc {
		err = unix.SetsockoptInt(s.socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	}
	if err != nil {
		return fmt.Errorf("set up a packet socket: %w", err)
	}
	return nil
}

// belowDataThread is how much lower the priority of senders is than that of the emulator's data thread. It is above the
// ordinary threads of other programs, so that on a busy machine trains are sent as planned.
const belowDataThread = 5

// send sends everything that the host sends. It stays clear of the Go scheduler; package realtime has the reason.
func (s *station) send(schedule *Schedule, start time.Time) {
	for dueNS, ok := schedule.Next(); ok; dueNS, ok = schedule.Next() {
		if pauseNS := dueNS - time.Since(start).Nanoseconds(); pauseNS > ShortestSleepNS {
			realtime.Sleep(pauseNS)
		} else if pauseNS <= 0 {
			s.write(schedule.Frame(time.Since(start).Nanoseconds()))
		}
	}
}

// write sends a frame; one that the kernel refuses is lost.
func (s *station) write(frame []byte) {
	if errno := device.FrameFD(s.socket).Write(frame); errno != 0 {
		s.refused++
		s.failure = errno
	}
}
