package rtt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/netns"
	"containernet-env/link_emulator/probe"
)

// icmpFilter is the socket option ICMP_FILTER of raw(7): a mask of the ICMP types to drop.
const icmpFilter = 1

// prober sends the probes of one host and receives the replies, on a thread of its own.
type prober struct {
	request  *Request
	host     input.Host
	socket   int
	nonce    uint64
	interval time.Duration
	first    uint32 // index of pairs[0]
	pairs    []*pair
	message  []byte
	packet   [65536]byte
	control  [256]byte
}

// open opens the raw socket inside the host's namespace; the socket stays in that namespace.
func (p *prober) open() error {
	p.message = append(make([]byte, icmpHeaderBytes), payloadFill(p.request.PayloadBytes)...)
	err := netns.Do(p.host.PID, -1, func() (err error) {
		p.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
		return err
	})
	if err != nil {
		return fmt.Errorf("host %q: open a raw ICMP socket: %w", p.host.Name, err)
	}
	for _, option := range [...]struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{unix.SOL_RAW, icmpFilter, ^(1 << typeEchoReply)},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO}, // a probe is one frame
	} {
		if err := unix.SetsockoptInt(p.socket, option.level, option.name, option.value); err != nil {
			return fmt.Errorf("host %q: set option %d of level %d of the ICMP socket: %w", p.host.Name, option.name,
				option.level, err)
		}
	}
	return nil
}

func (p *prober) run(start time.Time) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		now := time.Since(start)
		wake := time.Duration(-1)
		for _, pair := range p.pairs {
			if number, send := pair.tick(p.request, now, p.interval); send {
				if err := p.send(pair, number, start); err != nil {
					return err
				}
			}
			if due, more := pair.due(p.request); more && (wake < 0 || due < wake) {
				wake = due
			}
		}
		if wake < 0 {
			return nil
		}
		if err := p.receive(start, wake); err != nil {
			return err
		}
	}
}

// send sends one probe. A probe that the network refuses (interface down, no route yet) is lost; one that is too long
// is an error.
func (p *prober) send(to *pair, number uint32, start time.Time) error {
	encode(probe.Mark{Run: p.nonce, Stream: to.index, Number: number}, p.message)
	address := &unix.SockaddrInet4{Addr: to.to.IP.As4()}
	at := now(start)
	err := unix.Sendto(p.socket, p.message, 0, address)
	if errors.Is(err, unix.EMSGSIZE) {
		return fmt.Errorf("host %q: a payload of %d bytes does not fit the MTU", p.host.Name, p.request.PayloadBytes)
	}
	if err != nil {
		to.failure = fmt.Sprintf("send to %s: %v", to.to.IP, err)
	}
	if number&warmupMark == 0 {
		to.sent(p.request, at, time.Duration(at.monotonicNS))
	}
	return nil
}

// receive waits for replies until the time wake and reads those that have come.
func (p *prober) receive(start time.Time, wake time.Duration) error {
	timeout := unix.NsecToTimespec(max(wake-time.Since(start), 0).Nanoseconds())
	fds := []unix.PollFd{{Fd: int32(p.socket), Events: unix.POLLIN}}
	if _, err := unix.Ppoll(fds, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("host %q: ppoll: %w", p.host.Name, err)
	}
	for {
		n, controlBytes, _, _, err := unix.Recvmsg(p.socket, p.packet[:], p.control[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			// EAGAIN: that was all. Others report an earlier ICMP error (RFC 1122 section 4.2.3.9), which shows as a
			// loss.
			return nil
		}
		at := now(start)
		m, ok := decodeReply(p.packet[:n])
		if !ok || m.Run != p.nonce || m.Stream < p.first || m.Stream-p.first >= uint32(len(p.pairs)) {
			continue
		}
		p.pairs[m.Stream-p.first].replied(p.request, m.Number, kernelStamp(p.control[:controlBytes]), at)
	}
}

func now(start time.Time) stamp {
	t := time.Now()
	return stamp{wallNS: t.UnixNano(), monotonicNS: t.Sub(start).Nanoseconds()}
}

// kernelStamp finds the receive time (SO_TIMESTAMPNS: a struct timespec) in the control data; 0 when there is none.
func kernelStamp(control []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, message := range messages {
		if message.Header.Level == unix.SOL_SOCKET && message.Header.Type == unix.SO_TIMESTAMPNS && len(message.Data) >= 16 {
			seconds := int64(binary.NativeEndian.Uint64(message.Data))
			return seconds*1e9 + int64(binary.NativeEndian.Uint64(message.Data[8:]))
		}
	}
	return 0
}
