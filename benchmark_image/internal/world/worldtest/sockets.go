package worldtest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/benchmark_image/internal/world"
)

// window is how many bytes may be sent that the other side has not read.
const window = 256 << 10

// Listener is where members accept connections, each with a goroutine.
type Listener struct {
	Endpoint string
	Latency  time.Duration // one way; 1 ms to begin with
	Jitter   time.Duration // at most so much more, of each part
	Pieces   bool          // what is sent at once may arrive in parts
	Window   int           // of what the process sends; 0: a default

	w              *World
	address        netip.AddrPort
	serve          func(*Conn)
	refuses, drops bool // new connections
	attempts       uint64
	accepted       []*Conn
}

// Listen starts a member at the next address. A nil serve lets each connection be.
func (w *World) Listen(serve func(*Conn)) *Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	number := len(w.listeners) + 1
	l := &Listener{w: w, serve: serve, Latency: time.Millisecond,
		address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}), 7000)}
	l.Endpoint = l.address.String()
	w.listeners[l.address] = l
	return l
}

// Serve starts a member like Listen, at the endpoint that it gives.
func (w *World) Serve(serve func(net.Conn)) (endpoint string) {
	return w.Listen(func(c *Conn) { serve(c) }).Endpoint
}

// Refusing gives an endpoint that refuses connections.
func (w *World) Refusing() (endpoint string) {
	l := w.Listen(nil)
	l.Refuse(true)
	return l.Endpoint
}

// Refuse makes the member refuse connections, or accept them again.
func (l *Listener) Refuse(refuse bool) { l.set(&l.refuses, refuse) }

// Drop makes the member's kernel drop what opens a connection, or no more: TCP tries again.
func (l *Listener) Drop(drop bool) { l.set(&l.drops, drop) }

func (l *Listener) set(what *bool, to bool) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	*what = to
}

// Accepted is how many connections there were.
func (l *Listener) Accepted() int {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return len(l.accepted)
}

// Reset resets all connections of the member, and Cut drops all that is sent on them from now on.
func (l *Listener) Reset() { l.each((*Conn).reset) }
func (l *Listener) Cut()   { l.each(func(c *Conn) { c.cut, c.peer.cut = true, true }) }

func (l *Listener) each(do func(*Conn)) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, c := range l.accepted {
		if !c.closed {
			do(c)
		}
	}
}

// Conn is one side of a connection; it implements net.Conn, but for the addresses. Writes have no deadline.
type Conn struct {
	net.Conn
	w        *World
	peer     *Conn
	listener *Listener
	random   *rand.Rand
	number   uint64
	inside   bool // of the process
	fd       int  // 0: none
	detached bool

	in       []byte
	eof      bool
	err      error
	ready    bool // it is connected
	closed   bool
	gone     bool // the world has ended
	cut      bool
	silence  time.Duration
	expires  *event
	room     int           // how much it may still send
	full     bool          // it wanted to send more
	flight   []func()      // what is to arrive of what it sent, in order
	arrives  time.Duration // the last of these
	waiting  chan struct{} // closed when something has changed
	deadline time.Time

	poller            *poller
	token, generation int32
	queued            bool
}

// connect begins a connection to a listener.
func (w *World) connect(to netip.AddrPort, silence time.Duration) *Conn {
	client := &Conn{w: w, inside: true, silence: silence}
	w.all = append(w.all, client)
	l := w.listeners[to]
	l.attempts++
	number := l.attempts<<32 | uint64(l.address.Addr().As4()[3])<<8 | 1<<63
	server := &Conn{w: w, listener: l, peer: client, number: number, random: w.Random(number), ready: true, room: window}
	client.number, client.peer, client.listener, client.random = number|1<<62, server, l, w.Random(number|1<<62)
	client.room = l.Window
	if client.room == 0 {
		client.room = window
	}
	w.all = append(w.all, server)
	w.attempt(client, time.Second)
	return client
}

// attempt sends what opens a connection.
func (w *World) attempt(c *Conn, again time.Duration) {
	l := c.listener
	there := l.Latency
	w.schedule(&w.outside, there, c.number, func() {
		switch {
		case c.closed && again > time.Second: // it is not sent again
		case l.refuses:
			w.schedule(&w.outside, l.Latency, c.number, func() { c.fail(unix.ECONNREFUSED) })
		case l.drops:
			w.schedule(&w.outside, again-there, c.number, func() { w.attempt(c, 2*again) })
		default:
			l.accepted = append(l.accepted, c.peer)
			if l.serve != nil {
				go func() {
					l.serve(c.peer)
					_ = c.peer.Close()
				}()
			}
			w.schedule(&w.outside, l.Latency, c.number, func() {
				if !c.closed && c.err == nil {
					c.ready = true
					c.changed()
				}
			})
		}
	})
}

func (c *Conn) fail(err error) {
	if !c.closed && c.err == nil {
		c.err = err
		c.changed()
	}
}

// reset ends the connection on both sides, as a member does that is gone.
func (c *Conn) reset() {
	c.closed = true
	c.in = nil
	c.changed()
	c.peer.after(func() { c.peer.fail(unix.ECONNRESET) })
}

// after lets something arrive, behind what was sent before to this side.
func (c *Conn) after(do func()) {
	from := c.peer
	latency := c.listener.Latency
	if c.listener.Jitter > 0 {
		latency += time.Duration(c.random.Int64N(int64(c.listener.Jitter)))
	}
	from.arrives = max(c.w.now+latency, from.arrives)
	from.flight = append(from.flight, do)
	c.w.schedule(&c.w.outside, from.arrives-c.w.now, from.number, func() {
		first := from.flight[0] // events of the same time have no order
		from.flight = from.flight[1:]
		first()
	})
}

// changed lets the one that waits for this side look at it again.
func (c *Conn) changed() {
	if c.poller != nil && !c.queued && !c.closed {
		c.queued = true
		c.poller.ready = append(c.poller.ready, c)
		c.poller.rouse()
	}
	if waiting := c.waiting; waiting != nil {
		c.waiting = nil
		to := &c.w.outside
		if c.inside {
			to = &c.w.process
		}
		c.w.schedule(to, 0, c.number+1, func() { close(waiting) }).late = true
	}
}

// send sends as much as there is room for.
func (c *Conn) send(b []byte) int {
	n := min(len(b), c.room)
	c.full = n < len(b)
	c.room -= n
	if n == 0 {
		return 0
	}
	if c.cut {
		if c.expires == nil && c.silence > 0 {
			c.expires = c.w.schedule(&c.w.outside, c.silence, c.number, func() { c.fail(unix.ETIMEDOUT) })
		}
		return n
	}
	rest := slices.Clone(b[:n])
	for len(rest) > 0 {
		part := len(rest)
		if c.listener.Pieces && part > 1 && c.random.IntN(2) == 0 {
			part = 1 + c.random.IntN(part-1)
		}
		bytes := rest[:part]
		rest = rest[part:]
		c.peer.after(func() { c.peer.arrive(bytes) })
	}
	return n
}

func (c *Conn) arrive(b []byte) {
	switch {
	case c.cut || c.gone:
	case c.closed:
		if !c.peer.closed {
			c.peer.after(func() { c.peer.fail(unix.ECONNRESET) })
		}
	default:
		c.in = append(c.in, b...)
		c.changed()
	}
}

// receive takes what is there.
func (c *Conn) receive(b []byte) int {
	n := copy(b, c.in)
	c.in = c.in[n:]
	if n > 0 {
		c.peer.room += n
		if c.peer.full {
			c.peer.full = false
			c.peer.changed()
		}
	}
	return n
}

func (c *Conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.w.outside.callOff(c.expires)
	if c.peer == nil {
		return
	}
	if len(c.in) > 0 {
		c.peer.after(func() { c.peer.fail(unix.ECONNRESET) })
		return
	}
	c.peer.after(func() {
		if !c.peer.eof && !c.peer.cut {
			c.peer.eof = true
			c.peer.changed()
		}
	})
}

// wait waits until something has changed. The caller holds the lock.
func (c *Conn) wait() {
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	waiting := c.waiting
	c.w.mu.Unlock()
	<-waiting
	c.w.mu.Lock()
}

// Read and the following methods implement net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for {
		if c.closed || c.gone {
			return 0, net.ErrClosed
		}
		if n := c.receive(b); n > 0 || len(b) == 0 {
			return n, nil
		}
		switch {
		case c.eof:
			return 0, io.EOF
		case c.err != nil:
			return 0, c.err
		case !c.deadline.IsZero() && !epoch.Add(c.w.now).Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		c.wait()
	}
}

func (c *Conn) Write(b []byte) (sent int, err error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for {
		switch {
		case c.closed || c.gone:
			return sent, net.ErrClosed
		case c.err != nil:
			return sent, c.err
		}
		if sent += c.send(b[sent:]); sent == len(b) {
			return sent, nil
		}
		c.wait()
	}
}

// Hold waits until the connection has ended, without reading from it.
func (c *Conn) Hold() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for !c.closed && !c.gone && !c.eof && c.err == nil {
		c.wait()
	}
}

// Close implements net.Conn. One that is detached stays open as a socket of the process.
func (c *Conn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !c.detached && !c.closed {
		delete(c.w.sockets, c.fd)
		c.close()
		c.changed()
	}
	return nil
}

// SetLinger is that of a net.TCPConn, with 0.
func (c *Conn) SetLinger(int) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.reset()
	return nil
}

func (c *Conn) SetDeadline(at time.Time) error { return c.SetReadDeadline(at) }

// SetReadDeadline has a time of the world.
func (c *Conn) SetReadDeadline(at time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.deadline = at; !at.IsZero() {
		c.w.schedule(&c.w.outside, at.Sub(epoch.Add(c.w.now)), c.number, c.changed)
	}
	return nil
}

// number makes a Conn of the process a socket.
func (w *World) number(c *Conn) int {
	c.fd = 100
	for w.sockets[c.fd] != nil {
		c.fd++
	}
	w.sockets[c.fd] = c
	return c.fd
}

// Connect and the following methods implement world.World.
func (w *World) Connect(to netip.AddrPort, silenceMs int) (fd int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.number(w.connect(to, time.Duration(silenceMs)*time.Millisecond)), nil
}

func (w *World) Failure(fd int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sockets[fd].err
}

func (w *World) Receive(fd int, b []byte) (int, error) {
	w.called()
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.sockets[fd]
	switch n := c.receive(b); {
	case n > 0:
		return n, nil
	case c.err != nil:
		return -1, c.err
	case c.eof:
		return 0, nil
	}
	return -1, unix.EAGAIN
}

func (w *World) Send(fd int, b []byte, _ int) (int, error) {
	w.called()
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.sockets[fd]
	if c.err != nil {
		return -1, c.err
	}
	if !c.ready {
		return -1, unix.EAGAIN
	}
	if n := c.send(b); n > 0 {
		return n, nil
	}
	return -1, unix.EAGAIN
}

func (w *World) Close(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sockets[fd].close()
	delete(w.sockets, fd)
}

func (w *World) Dial(ctx context.Context, dialer *net.Dialer, endpoint string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(endpoint)
	if err == nil && dialer.Control != nil {
		err = dialer.Control("tcp", to.String(), noSocket{})
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.connect(to, 0)
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		c.changed()
	})()
	for !c.ready && c.err == nil && ctx.Err() == nil {
		c.wait()
	}
	if c.ready && ctx.Err() == nil {
		w.number(c)
		return c, nil
	}
	err = os.NewSyscallError("connect", c.err)
	if c.err == nil {
		if err = os.ErrDeadlineExceeded; ctx.Err() == context.Canceled {
			err = fmt.Errorf("operation was canceled")
		}
	}
	c.close()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
}

func (w *World) Detach(connection net.Conn) (fd int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := connection.(*Conn)
	c.detached = true
	return c.fd, nil
}

// noSocket is a syscall.RawConn of no socket.
type noSocket struct{ syscall.RawConn }

func (noSocket) Control(func(uintptr)) error { return nil }

// poller implements world.Poller.
type poller struct {
	w       *World
	number  uint64
	ready   []*Conn
	fired   bool
	woken   bool
	timer   *event
	waiting chan struct{}
	events  [world.MaxEvents]unix.EpollEvent
}

func (w *World) NewPoller() (world.Poller, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	w.pollers++
	return &poller{w: w, number: 1<<60 + w.pollers}, nil
}

// rouse wakes the one that waits, once the process runs.
func (p *poller) rouse() {
	if waiting := p.waiting; waiting != nil {
		p.waiting = nil
		p.w.schedule(&p.w.process, 0, p.number, func() { close(waiting) })
	}
}

func (p *poller) Close() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.open--
	p.w.outside.callOff(p.timer)
}

func (p *poller) Add(fd int, token, generation int32) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	c := p.w.sockets[fd]
	c.poller, c.token, c.generation = p, token, generation
	if c.mask() != 0 {
		c.changed()
	}
	return nil
}

// mask is what the socket is ready for.
func (c *Conn) mask() (events uint32) {
	if c.err != nil {
		return unix.EPOLLERR | unix.EPOLLHUP | unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP
	}
	if len(c.in) > 0 || c.eof {
		events |= unix.EPOLLIN
	}
	if c.eof {
		events |= unix.EPOLLRDHUP
	}
	if c.ready && c.room > 0 {
		events |= unix.EPOLLOUT
	}
	return events
}

func (p *poller) Wait(block bool) (events []unix.EpollEvent, slept bool, err error) {
	p.w.called()
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for {
		if n := p.collect(); n > 0 || !block {
			return p.events[:n], slept, nil
		}
		slept = true
		p.waiting = make(chan struct{})
		waiting := p.waiting
		p.w.mu.Unlock()
		<-waiting
		p.w.mu.Lock()
	}
}

func (p *poller) collect() (n int) {
	report := func(happened *bool, token int32) {
		if *happened {
			p.events[n] = unix.EpollEvent{Events: unix.EPOLLIN, Fd: token}
			*happened = false
			n++
		}
	}
	report(&p.fired, world.TimerToken)
	report(&p.woken, world.WakeToken)
	for n < len(p.events) && len(p.ready) > 0 {
		c := p.ready[0]
		p.ready = p.ready[1:]
		c.queued = false
		if mask := c.mask(); mask != 0 && !c.closed {
			p.events[n] = unix.EpollEvent{Events: mask, Fd: c.token, Pad: c.generation}
			n++
		}
	}
	return n
}

func (p *poller) SetTimer(d time.Duration) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.outside.callOff(p.timer)
	p.fired = false
	p.timer = p.w.schedule(&p.w.outside, max(d, 1), p.number, func() {
		p.fired = true
		p.rouse()
	})
	return nil
}

func (p *poller) Wake() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.woken = true
	p.rouse()
}
