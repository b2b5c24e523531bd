package probe

import (
	"fmt"
	"runtime"
	"slices"
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

// course is one stream under way. It does no I/O: every time is an argument.
type course struct {
	stream Stream
	index  uint32
	due    time.Duration
	sent   []int64 // when each was sent, ns from the start
	frame  []byte
}

// advance records that a frame was sent at now. A late sender keeps the pace and does not catch up in a burst; what it
// has not sent by the end of the stream it does not send.
func (c *course) advance(now time.Duration) {
	c.sent = append(c.sent, now.Nanoseconds())
	c.due = max(c.due+c.stream.Interval, now)
}

func (c *course) done() bool { return len(c.sent) == c.stream.Count || c.due > c.stream.Until }

// first is the course whose next frame is due first; of two that are due at once, that which has waited longer. So
// streams that are sent as fast as it goes take turns. nil when all are done.
func first(courses []*course) *course {
	var next *course
	for _, c := range courses {
		if !c.done() && (next == nil || c.due < next.due || c.due == next.due && len(c.sent) < len(next.sent)) {
			next = c
		}
	}
	return next
}

// sender sends the streams of one host, on a thread of its own.
type sender struct {
	socket  int
	waiting []*course // in the order of their start
	run     uint64
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
func (s *sender) send(start time.Time) {
	runtime.LockOSThread() // for good: the thread ends with its goroutine, and its priority with it
	// Without these it sends later and sleeps up to 50 us longer (prctl(2)); what it cannot send in time is not judged.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = realtime.BlockSignals()
	realtime.Pin()
	defer realtime.Unpin()
	_ = realtime.SetFIFO(priority)
	active := make([]*course, 0, len(s.waiting))
	for {
		next := first(active)
		if len(s.waiting) > 0 && (next == nil || s.waiting[0].due <= next.due) {
			active = append(active, s.waiting[0])
			s.waiting = s.waiting[1:]
			continue
		}
		if next == nil {
			return
		}
		now := time.Since(start)
		if pause := next.due - now; pause > shortestSleep {
			realtime.Sleep(pause.Nanoseconds())
			continue
		} else if pause > 0 {
			continue
		}
		mark{run: s.run, stream: next.index, number: uint32(len(next.sent))}.encode(next.frame)
		next.advance(time.Since(start))
		s.write(next.frame)
		if next.done() {
			active = slices.DeleteFunc(active, func(c *course) bool { return c == next })
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
