// Package world is all that a load touches outside of its own memory: the clock, timers, sockets, what the kernel
// accounts for, and chance. A World is the real one, or in tests a simulated one, in which a seed decides everything
// (package worldtest).
package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// World may be used by any number of goroutines, unless a method says otherwise. Of what is done for each request,
// nothing allocates.
type World interface {
	// Now is the time on CLOCK_MONOTONIC, which all programs of a machine share. It is always positive.
	Now() time.Duration
	Wall() time.Time
	// NewTimer makes a timer that fires once, after d.
	NewTimer(d time.Duration) Timer
	// AfterFunc calls f in a goroutine of its own after d, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	// WithTimeout is that of package context.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	NewPoller() (Poller, error)
	// Processor gives what this process has had of the machine's cores so far.
	Processor() Processor
	// Uint64 draws a number.
	Uint64() uint64

	// Connect begins to connect a new socket that does not block. The connection ends once the other side's kernel has
	// acknowledged nothing for so many milliseconds.
	Connect(to netip.AddrPort, silenceMs int) (fd int, err error)
	// Failure is what went wrong with a socket of which the poller reports an error; nil: nothing.
	Failure(fd int) error
	// Receive is recv(2).
	Receive(fd int, b []byte) (int, error)
	// Send is send(2), with its flags; no signal follows.
	Send(fd int, b []byte, flags int) (int, error)
	// Close closes a socket. What was sent before still leaves.
	Close(fd int)

	// Dial connects as the dialer does, and blocks until that is done.
	Dial(ctx context.Context, dialer *net.Dialer, endpoint string) (net.Conn, error)
	// Detach gives a copy of the socket of a connection from Dial, for the methods above.
	Detach(connection net.Conn) (fd int, err error)
}

// Timer has the methods of a time.Timer.
type Timer struct {
	C     <-chan time.Time
	Reset func(d time.Duration) bool
	Stop  func() bool
}

// Poller reports to one goroutine which sockets are ready, when its timer has fired, and that another goroutine has
// called Wake. Only Wake may be called by others than that goroutine.
type Poller interface {
	// Add watches a socket for everything, edge-triggered: who gets an event must read and write until nothing more can
	// be. The token comes back in Fd of each event, the generation, which distinguishes sockets of the same token, in Pad.
	// A socket that is closed is watched no more.
	Add(fd int, token, generation int32) error
	// Wait gives what is ready, at most MaxEvents and valid until the next call; with block, it waits until something is.
	// slept reports that nothing was at first.
	Wait(block bool) (events []unix.EpollEvent, slept bool, err error)
	// SetTimer makes Wait return an event with TimerToken after d, instead of after the time that was set before.
	SetTimer(d time.Duration) error
	// Wake makes Wait return an event with WakeToken.
	Wake()
	// Close frees the poller.
	Close()
}

// MaxEvents is how many events a Poller gives at once.
const MaxEvents = 128

// Tokens of what is not a socket.
const (
	TimerToken = -1
	WakeToken  = -2
)

// Real is the real world.
func Real() World { return real }

var real = newReality()

// reality implements World.
type reality struct {
	begin   time.Time
	atBegin time.Duration // on CLOCK_MONOTONIC
}

func newReality() *reality {
	r := &reality{begin: time.Now()}
	var now unix.Timespec
	// Go's time package does not expose the clock. It is in every kernel.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	r.atBegin = max(time.Duration(now.Nano()), 1)
	return r
}

func (r *reality) Now() time.Duration   { return r.atBegin + time.Since(r.begin) }
func (r *reality) Wall() time.Time      { return time.Now() }
func (r *reality) Processor() Processor { return processorNow() }
func (r *reality) Uint64() uint64       { return rand.Uint64() }

func (r *reality) NewTimer(d time.Duration) Timer {
	t := time.NewTimer(d)
	return Timer{t.C, t.Reset, t.Stop}
}

func (r *reality) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

func (r *reality) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Processor is what this process has had of the machine's cores so far, and what its threads have waited for them.
type Processor struct {
	used  time.Duration         // CPU time, user and system
	waits map[string]threadWait // by thread; nil where the kernel does not account for that
}

// threadWait is how long a thread was runnable and did not run, and how often it got a core.
type threadWait struct {
	delay  time.Duration
	slices int64
}

// RunDelay is how long the generator's threads waited for a core.
type RunDelay struct {
	Sum  time.Duration // of all of them
	Mean time.Duration // each time that it woke, of the thread that waited longest in all: the one that sends and receives
}

func processorNow() Processor {
	var p Processor
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		p.used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	p.waits = waitsOf("/proc/self/task")
	return p
}

// waitsOf reads the second and third field of every thread's schedstat; nil where the kernel has no such account
// (CONFIG_SCHED_INFO). A thread that has ended is in it no more; the threads of a Go process seldom end.
func waitsOf(tasks string) map[string]threadWait {
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	var waits map[string]threadWait
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "schedstat"))
		if err != nil {
			continue // it has just ended
		}
		var ran int64
		var wait threadWait
		if _, err := fmt.Sscan(string(text), &ran, &wait.delay, &wait.slices); err != nil {
			return nil
		}
		if waits == nil {
			waits = make(map[string]threadWait, len(threads))
		}
		waits[thread.Name()] = wait
	}
	return waits
}

// Since is what has been used and waited for since before; the delay is nil where it is not known.
func (p Processor) Since(before Processor) (used time.Duration, delay *RunDelay) {
	if p.waits != nil && before.waits != nil {
		delay = &RunDelay{}
		longest := time.Duration(0)
		for thread, now := range p.waits {
			was := before.waits[thread] // of a thread that was not there before: nothing
			waited := max(now.delay-was.delay, 0)
			delay.Sum += waited
			if waited > longest {
				longest = waited
				delay.Mean = waited / time.Duration(max(now.slices-was.slices, 1))
			}
		}
	}
	return p.used - before.used, delay
}
