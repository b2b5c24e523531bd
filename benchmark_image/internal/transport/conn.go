package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

// handshake bounds one attempt to connect, in which TCP's first retransmission comes after 1 s. Where the dial timeout
// is longer than usual, because round trips are, so is an attempt: furtherAttempts is what it leaves for others.
const (
	handshake       = 3 * time.Second
	furtherAttempts = 7 * time.Second
)

func (o *Options) attempt() time.Duration {
	return max(o.slowed(handshake), o.DialTimeout-o.slowed(furtherAttempts))
}

// The pause between two attempts to connect doubles from the first to the longest, each give or take a fifth.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	pauseJitter  = 0.2
)

// conn is a connection to a member that is opened again when it is lost. All but the fields in the first
// block belong to the loop's goroutine.
type conn struct {
	member    string
	address   netip.AddrPort // of the member; the zero value: a name must be looked up
	lastError atomic.Pointer[error]
	isReady   atomic.Bool
	accepted  atomic.Bool   // TCP's part is done
	opened    chan struct{} // closed when it is ready for the first time

	loop     *loop
	link     *link // nil: none, or an attempt to connect is under way
	wasReady bool
	failures int  // attempts since a member answered
	failing  bool // the latest attempt failed: requests fail at once
	waiting  list // of jobs that cannot start yet

	deposed time.Duration // when the load moved away from its member; 0: it did not, or came back
}

// link is one TCP connection of a conn. There are two of one conn while the older one waits for its last answers.
type link struct {
	fd         int
	token      int32
	generation int32
	conn       *conn
	protocol   store.Conn
	dirty      bool // in the loop's list of links with output
	again      bool // in the loop's list of links with more input
	stuck      bool // the socket takes no more for now
	dead       bool
	connecting bool          // TCP's part is not done yet
	readyBy    time.Duration // or it is lost
	waits      int           // the release before which its output began to wait; 0: it does not wait
	listed     bool          // in the loop's list of links whose output waits
}

func (l *loop) newConn(member string) *conn {
	c := &conn{member: member, loop: l, opened: make(chan struct{}), waiting: list{which: inQueue}}
	if address, err := netip.ParseAddrPort(member); err == nil && address.Addr().Zone() == "" {
		c.address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	}
	return c
}

// connect starts an attempt: by the loop itself, or where a name must be looked up or TLS's handshake be held, beside
// it.
func (c *conn) connect() {
	l := c.loop
	if c.address.IsValid() && l.handshakes == nil {
		l.toOpen = append(l.toOpen, c)
		return
	}
	go func() {
		if l.handshakes != nil {
			l.handshakes <- struct{}{}
			defer func() { <-l.handshakes }()
		}
		ctx, cancel := l.world.WithTimeout(l.dialing, l.options.attempt())
		defer cancel()
		start := l.now()
		fd, session, err := c.dial(ctx)
		if !l.poller.post(func() { c.dialed(fd, session, err, start) }) && err == nil {
			l.world.Close(fd)
		}
	}()
}

// dial gives a connected socket that Go's poller knows nothing of, and its session, if it is to be secured.
func (c *conn) dial(ctx context.Context) (fd int, session store.Session, err error) {
	l := c.loop
	connection, err := l.world.Dial(ctx, l.dialer(c.member), c.member)
	if err != nil {
		return -1, nil, err
	}
	defer func() {
		// The copy stays open.
		_ = connection.Close()
	}()
	if security := l.traits.Security; security != nil {
		if session, err = security.Secure(ctx, connection, c.member); err != nil {
			return -1, nil, err
		}
	}
	fd, err = l.world.Detach(connection)
	return fd, session, err
}

func (c *conn) dialed(fd int, session store.Session, err error, start time.Duration) {
	if err != nil {
		c.attemptFailed(cause(err))
		return
	}
	k := c.adopt(fd, session, start)
	if k == nil {
		return
	}
	k.connected()
	if session != nil {
		c.loop.feed(k, nil)
	}
}

// adopt makes a link of a socket; nil: the attempt has failed.
func (c *conn) adopt(fd int, session store.Session, start time.Duration) *link {
	l := c.loop
	k := &link{fd: fd, conn: c, protocol: l.protocol.NewConn(c.member), readyBy: start + l.options.attempt()}
	if session != nil {
		k.protocol = session(k.protocol, l.opened)
	}
	if err := l.addLink(k); err != nil {
		l.world.Close(fd)
		c.attemptFailed(err)
		return nil
	}
	l.expect(k)
	return k
}

// connected lets the protocol begin.
func (k *link) connected() {
	c := k.conn
	k.connecting, c.link = false, k
	c.accepted.Store(true)
	c.loop.markDirty(k)
	if k.protocol.Ready() {
		c.becameReady()
	}
}

var errNoAnswer = errors.New("the member does not answer")

// cause leaves out the address that Go puts in front of what went wrong.
func cause(err error) error {
	if operation := new(net.OpError); errors.As(err, &operation) && !errors.As(err, new(store.RefusedError)) {
		return operation.Err
	}
	return err
}

// becameReady lets the jobs go that wait.
func (c *conn) becameReady() {
	c.failing = false
	c.isReady.Store(true)
	c.loop.readyConns++
	c.loop.keepBeating(c.link)
	if !c.wasReady {
		c.wasReady = true
		close(c.opened) // who waits for it asks isReady next
	}
	c.startWaiting()
	c.loop.resume(c)
}

// startWaiting starts as many jobs as the member allows.
func (c *conn) startWaiting() {
	for c.waiting.first != nil && c.link != nil && c.start(c.waiting.first) {
		j := c.waiting.first
		c.waiting.remove(j)
		j.queued = false
	}
}

// start returns false when the member takes no job for now.
func (c *conn) start(j *job) bool {
	if c.loop.loggingIn || !c.link.protocol.Start(j.call, j.task.request(), &c.loop.scratch) {
		return false
	}
	j.link, j.login = c.link, c.loop.logins
	c.loop.markDirty(c.link)
	return true
}

// submit sends a job's request as soon as the member allows it. It returns false when there is no
// connection and the latest attempt to open one failed.
func (c *conn) submit(j *job, timeout time.Duration) bool {
	if !c.isReady.Load() && c.failing {
		return false
	}
	j.renewed = false
	j.deadline = c.loop.now() + timeout
	c.loop.await(j)
	c.take(j)
	return true
}

// take starts a job, or lets it wait until the member allows it.
func (c *conn) take(j *job) {
	j.conn = c
	if !c.isReady.Load() || c.waiting.first != nil || !c.start(j) {
		j.queued = true
		c.waiting.append(j)
	}
}

// patience is how many connections in a row the member may close in order, before it answered anything,
// until requests fail at once.
const patience = 2

// leave takes the conn off a link that is lost or, if orderly, takes no more requests, and gets another one.
func (c *conn) leave(k *link, err error, orderly bool) {
	if c.link != k {
		return
	}
	c.link = nil
	if c.isReady.Swap(false) {
		c.loop.readyConns--
		c.loop.noteDown()
	}
	switch {
	case k.protocol.Answered() || orderly &&
		k.protocol.Active() > 0: // calls that are left are calls that the member has taken
		c.failures = 0
		c.connect()
	case orderly && c.failures < patience:
		c.retry()
	default:
		c.attemptFailed(err)
	}
}

// attemptFailed fails the jobs that wait for the connection, and tries again later. A connection that is lost
// before it carried an answer is such an attempt too, or a member that closes each one would keep the loop busy.
func (c *conn) attemptFailed(err error) {
	c.lastError.Store(&err)
	c.failing = true
	if c.loop.dialing.Err() != nil {
		return
	}
	if errors.As(err, new(store.RefusedError)) {
		c.loop.refuse(fmt.Errorf("%s: %w", c.member, err))
	}
	c.retry()
	c.failWaiting(c.failure())
}

// failWaiting fails the jobs that wait now: others may follow them at once.
func (c *conn) failWaiting(failure *store.Failure) {
	waiting := c.waiting
	c.waiting = list{which: inQueue}
	for waiting.first != nil {
		j := waiting.first
		waiting.remove(j)
		j.queued = false
		c.loop.deadlines.remove(j)
		j.task.fail(failure)
	}
}

func (c *conn) retry() {
	pause := c.loop.options.slowed(min(longestPause, firstPause<<min(c.failures, 10)))
	c.failures++
	jitter := 1 + pauseJitter*(2*float64(c.loop.world.Uint64()>>11)/(1<<53)-1)
	c.loop.after(time.Duration(float64(pause)*jitter), c.connect)
}

// failure is the outcome of a request for which there is no connection.
func (c *conn) failure() *store.Failure {
	text := "there is no connection"
	if last := c.lastError.Load(); last != nil {
		text = (*last).Error()
	}
	return &store.Failure{Code: store.Unavailable, Text: text}
}

// wait returns when the connection is ready, or at the end of ctx, or once refused is closed, with what went wrong.
func (c *conn) wait(ctx context.Context, refused <-chan struct{}) error {
	select {
	case <-c.opened:
		return nil
	case <-refused:
	case <-ctx.Done():
	}
	select {
	case <-c.opened: // both were ready, and one was drawn: the wait for another connection used up the time
		return nil
	default:
	}
	reason := errNoAnswer
	if last := c.lastError.Load(); last != nil {
		reason = *last
	} else if c.accepted.Load() {
		reason = c.loop.errSpeech
	}
	return fmt.Errorf("%s: %w", c.member, reason)
}

// opensAtOnce is how many connections the loop opens before it looks at the others: a member whose queue of new
// connections is full lets later ones wait for a second.
const opensAtOnce = 64

// open starts some of the attempts that are due. Go's dialer would take a goroutine, a second epoll, a copy of the
// socket and twice as many system calls for each.
func (l *loop) open() {
	now := min(len(l.toOpen), opensAtOnce)
	for _, c := range l.toOpen[:now] {
		start := l.now()
		fd, err := l.connect(c)
		if err != nil {
			c.attemptFailed(err)
			continue
		}
		k := c.adopt(fd, nil, start)
		if k == nil {
			continue
		}
		// On loopback the member's kernel has accepted already.
		k.connecting = true
		l.begin(k)
	}
	l.toOpen = slices.Delete(l.toOpen, 0, now)
}

// connect gives a socket that is being connected.
func (l *loop) connect(c *conn) (fd int, err error) {
	if l.options.Permit != nil {
		if err := l.options.Permit(c.member, c.address); err != nil {
			return -1, err
		}
	}
	return l.world.Connect(c.address, l.silenceMs)
}

// begin writes the protocol's first output, which shows whether the socket is connected.
func (l *loop) begin(k *link) {
	first := k.protocol.Output()
	if len(first) == 0 {
		return // epoll will tell
	}
	switch n, err := l.world.Send(k.fd, first, 0); {
	case err == nil:
		k.protocol.Wrote(n)
		k.connected()
	case err != unix.EAGAIN && err != unix.EINTR:
		l.lose(k, os.NewSyscallError("connect", err))
	}
}

// hasConnected takes what epoll tells of a socket that is being connected.
func (l *loop) hasConnected(k *link, events uint32) bool {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		if err := l.world.Failure(k.fd); err != nil {
			l.lose(k, os.NewSyscallError("connect", err))
			return false
		}
	} else if events&unix.EPOLLOUT == 0 {
		return false
	}
	k.connected()
	return true
}

// expect gives up a link that is not ready in time. All share one timer.
func (l *loop) expect(k *link) {
	at := len(l.expected)
	for at > 0 && l.expected[at-1].readyBy > k.readyBy {
		at--
	}
	l.expected = slices.Insert(l.expected, at, k)
	if at == 0 {
		l.after(k.readyBy-l.now(), l.giveUp)
	}
}

func (l *loop) giveUp() {
	given := 0
	for ; given < len(l.expected); given++ {
		k := l.expected[given]
		if k.dead || !k.connecting && k.protocol.Ready() {
			continue
		}
		if k.readyBy > l.now() {
			l.after(k.readyBy-l.now(), l.giveUp)
			break
		}
		if k.connecting {
			l.lose(k, os.ErrDeadlineExceeded)
		} else {
			l.lose(k, l.errSpeech)
		}
	}
	l.expected = slices.Delete(l.expected, 0, given)
}

// leastUserTimeout is what loop.silenceMs is at least: a request timeout of milliseconds must not end connections whose
// packets are only late.
const leastUserTimeout = time.Second

// Permit tells why a connection to an address must not be opened for an endpoint; nil: it may.
type Permit func(endpoint string, address netip.AddrPort) error

// dialer opens connections to one endpoint, only where it may. The kernel is about to connect to the address that is
// judged: no name is looked up in between. They are not kept alive, like those that the loop opens: idle ones cost
// nothing.
func (l *loop) dialer(endpoint string) *net.Dialer {
	return &net.Dialer{KeepAlive: -1, Control: func(_, address string, raw syscall.RawConn) error {
		if l.options.Permit != nil {
			number, err := netip.ParseAddrPort(address)
			if err == nil {
				err = l.options.Permit(endpoint, number)
			}
			if err != nil {
				return err
			}
		}
		var err error
		if controlErr := raw.Control(func(fd uintptr) {
			err = world.BoundSilence(int(fd), l.silenceMs)
		}); controlErr != nil {
			return controlErr
		}
		return err
	}}
}
