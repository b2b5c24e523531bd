package transport

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller tells a single goroutine which sockets are ready, when a point in time has come, and that
// another goroutine wants something. One goroutine for all connections costs a load less than one for each: there
// is nothing to switch between, and no lock to take.
type poller struct {
	epoll  int
	timer  int // a timerfd: epoll's own timeout counts whole milliseconds
	wakeup int // an eventfd

	// The goroutine waits in Go's own poller for the epoll to become ready, so that it holds no thread.
	file  *os.File
	raw   syscall.RawConn
	try   func(uintptr) bool
	ready int
	err   error
	slept bool // the last wait found nothing at first

	events [128]unix.EpollEvent
	armed  time.Duration // when the timer fires; 0: not set

	mu     sync.Mutex
	posted []func()
	woken  []int
	taken  []int // the array of woken before take
	closed bool
}

// Tokens of what is not a link.
const (
	timerToken  = -1
	wakeupToken = -2
)

func newPoller() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll: %w", err)
	}
	p := &poller{epoll: epoll, timer: -1, wakeup: -1}
	if err := p.prepare(); err != nil {
		p.close()
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
	if err = p.add(p.timer, timerToken, 0); err == nil {
		err = p.add(p.wakeup, wakeupToken, 0)
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

func (p *poller) close() {
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

// add watches a file for everything, edge-triggered: who gets an event must read and write until nothing more
// can be. The token comes back with each event, with the generation, which tells files of the same token apart.
func (p *poller) add(fd int, token, generation int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: token,
		Pad: generation}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch a file: %w", err)
	}
	return nil
}

// wait gives what is ready; with block, it waits until something is.
func (p *poller) wait(block bool) ([]unix.EpollEvent, error) {
	p.slept = false
	if !block {
		p.try(0)
	} else if err := p.raw.Read(p.try); err != nil {
		return nil, fmt.Errorf("wait for an epoll: %w", err)
	}
	if p.err != nil {
		return nil, fmt.Errorf("wait for an epoll: %w", p.err)
	}
	return p.events[:p.ready], nil
}

// wakeAt makes wait return a timerToken at the given time, and maybe earlier. now is on the same clock.
func (p *poller) wakeAt(at, now time.Duration) error {
	if p.armed != 0 && p.armed <= at {
		return nil
	}
	p.armed = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at-now), 1))}
	if err := unix.TimerfdSettime(p.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("set a timer: %w", err)
	}
	return nil
}

// drain makes the next event of the timer or of the eventfd come.
func (p *poller) drain(fd int) error {
	var b [8]byte
	if _, err := read(fd, b[:]); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("read an event: %w", err)
	}
	return nil
}

// post hands a function to the goroutine that waits; it returns false when that has ended.
func (p *poller) post(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.signal()
	p.posted = append(p.posted, f)
	return true
}

// wake tells the goroutine that waits that a client may go on. Wakes come before what is posted later.
func (p *poller) wake(client int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.signal()
		p.woken = append(p.woken, client)
	}
}

// signal makes wait return.
func (p *poller) signal() {
	if len(p.posted) == 0 && len(p.woken) == 0 {
		one := [8]byte{1}
		// It cannot fail: the counter is far from its end.
		_, _ = write(p.wakeup, one[:])
	}
}

// take gives the clients that were woken, valid until the next call, and what was posted.
func (p *poller) take() (woken []int, posted []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	woken, posted = p.woken, p.posted
	p.woken, p.taken, p.posted = p.taken[:0], woken, nil
	return woken, posted
}

// refuse makes post return false from now on, and gives what was posted before.
func (p *poller) refuse() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	posted := p.posted
	p.posted, p.closed = nil, true
	return posted
}
