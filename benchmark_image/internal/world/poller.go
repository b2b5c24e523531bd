package world

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller implements Poller: one goroutine for all connections costs a load less than one for each, for there is nothing
// to switch between, and no lock to take.
type poller struct {
	epoll int
	// Nobody reads from these two: for an edge-triggered epoll each expiration and each write is another event.
	timer  int // a timerfd: epoll's own timeout counts whole milliseconds
	wakeup int // an eventfd

	// The goroutine waits in Go's own poller for the epoll to become ready, so that it holds no thread.
	file  *os.File
	raw   syscall.RawConn
	try   func(uintptr) bool
	ready int
	err   error
	slept bool // the last wait found nothing at first

	events [MaxEvents]unix.EpollEvent
}

func (r *reality) NewPoller() (Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll: %w", err)
	}
	p := &poller{epoll: epoll, timer: -1, wakeup: -1}
	if err := p.prepare(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *poller) prepare() (err error) {
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("create a timer: %w", err)
	}
	if p.wakeup, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("create an eventfd: %w", err)
	}
	if err = p.Add(p.timer, TimerToken, 0); err == nil {
		err = p.Add(p.wakeup, WakeToken, 0)
	}
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(p.epoll, true); err != nil {
		return fmt.Errorf("prepare an epoll: %w", err)
	}
	p.file = os.NewFile(uintptr(p.epoll), "epoll")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return fmt.Errorf("prepare an epoll: %w", err)
	}
	p.try = func(uintptr) bool {
		p.ready, p.err = pollNow(p.epoll, p.events[:])
		for errors.Is(p.err, unix.EINTR) {
			p.ready, p.err = pollNow(p.epoll, p.events[:])
		}
		found := p.ready != 0 || p.err != nil
		p.slept = p.slept || !found
		return found
	}
	return nil
}

func (p *poller) Close() {
	for _, fd := range []int{p.timer, p.wakeup} {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing was written to it
		}
	}
	if p.file != nil {
		_ = p.file.Close()
	} else {
		_ = unix.Close(p.epoll)
	}
}

func (p *poller) Add(fd int, token, generation int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: token,
		Pad: generation}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch a file: %w", err)
	}
	return nil
}

func (p *poller) Wait(block bool) (events []unix.EpollEvent, slept bool, err error) {
	p.slept = false
	if !block {
		p.try(0)
	} else if err := p.raw.Read(p.try); err != nil {
		return nil, p.slept, fmt.Errorf("wait for an epoll: %w", err)
	}
	if p.err != nil {
		return nil, p.slept, fmt.Errorf("wait for an epoll: %w", p.err)
	}
	return p.events[:p.ready], p.slept, nil
}

// leastSleep is how long a wait for the timer lasts at least: what becomes due meanwhile is done together. To wake up for
// each request of 20,000/s or more would take most of the loop's time.
const leastSleep = 50 * time.Microsecond

func (p *poller) SetTimer(d time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, leastSleep)))}
	if err := unix.TimerfdSettime(p.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	return nil
}

func (p *poller) Wake() {
	one := [8]byte{1}
	// It cannot fail: the counter is far from its end.
	_, _ = write(p.wakeup, one[:])
}
