package transport

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

// readSize is how much is read at once, in bytes, into a buffer that all links share.
const readSize = 64 << 10

// maxReads is how often one link is read before it is the turn of the others.
const maxReads = 4

// maxHandshakes is how many handshakes of TLS go on at a time: with thousands of connections, all at once would each
// take longer than an attempt may.
const maxHandshakes = 64

var (
	errClosing = errors.New("the member closes new connections")
	errClosed  = errors.New("the connections were closed")
)

// loop is the goroutine that owns all connections, and everything that it shares among them.
type loop struct {
	world     world.World
	poller    *poller
	protocol  store.Protocol
	traits    store.Traits
	options   *Options
	errSpeech error // of a member that does not speak the protocol
	// For how many milliseconds a member's kernel may acknowledge nothing until the connection is given up: as long as a
	// request may take, so that all requests under way have ended by their deadlines. Otherwise a connection over a link
	// that was cut would stay useless after its repair until TCP sends again, up to 120 s later (tcp(7),
	// TCP_USER_TIMEOUT).
	silenceMs int
	done      context.Context // ends with the loop; its cause is why
	end       context.CancelCauseFunc

	dialing     context.Context
	stopDialing context.CancelFunc
	handshakes  chan struct{}   // has an element for each handshake that goes on; nil: connections are plain
	refused     context.Context // ends when a member has refused a connection, or has to be refused; its cause is why
	refuse      context.CancelCauseFunc

	links      []*link // by token
	free       []int32
	generation int32
	dirty      []*link
	again      []*link
	toOpen     []*conn
	expected   []*link       // in the order of readyBy; some are ready or lost already
	waiting    []*link       // whose output waits, or did when the list was looked through last
	releases   int           // how often it was, and 1
	beat       time.Duration // between two beats of connections that need them; 0: none does
	buffer     []byte
	opened     []byte // for what sessions open
	scratch    []byte

	loggingIn bool // requests wait for that
	logins    int  // how many there were

	deadlines  list
	timers     timers
	readyConns int
	drive      *drive
	quit       bool
	flags      int // of each send
}

func newLoop(protocol store.Protocol, o *Options, requestTimeout time.Duration) (*loop, error) {
	p, err := o.World.NewPoller()
	if err != nil {
		return nil, err
	}
	l := &loop{
		world: o.World, poller: &poller{Poller: p}, protocol: protocol, traits: protocol.Traits(), options: o,
		silenceMs: int(max(requestTimeout, o.slowed(leastUserTimeout)) / time.Millisecond),
		errSpeech: fmt.Errorf("the member accepts connections but does not speak %s on them", protocol.Traits().Name),
		buffer:    make([]byte, readSize), deadlines: list{which: byDeadline}, releases: 1,
	}
	if l.traits.Security != nil {
		l.opened, l.handshakes = make([]byte, readSize), make(chan struct{}, maxHandshakes)
	}
	l.done, l.end = context.WithCancelCause(context.Background())
	l.refused, l.refuse = context.WithCancelCause(context.Background())
	l.dialing, l.stopDialing = context.WithCancel(context.Background())
	go l.run()
	return l, nil
}

// close ends the loop and waits for it.
func (l *loop) close() {
	l.poller.post(func() { l.quit = true })
	<-l.done.Done()
}

// now is always positive.
func (l *loop) now() time.Duration { return l.world.Now() }

func (l *loop) run() {
	why := l.serve()
	l.stopDialing()
	if l.drive != nil {
		l.drive.abandon(l)
	}
	l.flags = unix.MSG_MORE // what the protocol says at its end leaves with TCP's end
	for _, k := range l.links {
		if k != nil && !k.connecting {
			k.protocol.Leave(nil)
			l.flush(k)
		}
		if k != nil {
			l.lose(k, io.EOF)
		}
	}
	for _, f := range l.poller.take(true) {
		f() // a socket that was dialed must be closed
	}
	for _, k := range l.links {
		if k != nil {
			l.lose(k, io.EOF)
		}
	}
	l.poller.Close()
	l.end(why)
}

// serve returns why the loop is to end, or what keeps it from going on.
func (l *loop) serve() error {
	for !l.quit {
		if err := l.runTimers(); err != nil {
			return err
		}
		l.startClients()
		l.open()
		l.flushAll()
		if l.quit {
			break
		}
		if next := earlier(l.next(), l.nextStart()); next > 0 {
			if err := l.poller.wakeAt(next, l.now()); err != nil {
				return err
			}
		}
		block := len(l.again) == 0 && len(l.dirty) == 0 && len(l.toOpen) == 0
		begin, tell := time.Duration(0), block && l.drive != nil
		if tell {
			begin = l.now()
		}
		events, slept, err := l.poller.Wait(block)
		if err != nil {
			return err
		}
		if tell && slept {
			l.drive.run.NoteIdle(l.now() - begin)
		}
		l.handleAll(events)
	}
	return errClosed
}

func (l *loop) handleAll(events []unix.EpollEvent) {
	again := l.again
	l.again = nil
	for i := range events {
		l.handle(&events[i])
	}
	for _, k := range again {
		k.again = false
		l.read(k, true)
	}
}

// backlogRounds bounds catchUp, beyond one round for each batch of events: more than what a socket's receive buffer
// holds takes to read.
const backlogRounds = 64

// catchUp takes what was received before now. More may come all the time, so it ends although something is ready.
func (l *loop) catchUp() error {
	for range len(l.links)/world.MaxEvents + backlogRounds {
		events, _, err := l.poller.Wait(false)
		if err != nil {
			return err
		}
		if len(events) == 0 && len(l.again) == 0 {
			return nil
		}
		l.handleAll(events)
		l.flushAll()
	}
	return nil
}

func (l *loop) handle(event *unix.EpollEvent) {
	switch event.Fd {
	case world.TimerToken:
		l.poller.armed = 0
		return
	case world.WakeToken:
		for _, f := range l.poller.take(false) {
			f()
		}
		return
	}
	k := l.links[event.Fd]
	if k == nil || k.generation != event.Pad {
		return // it was closed by what happened before in this batch
	}
	if k.connecting && !l.hasConnected(k, event.Events) {
		return
	}
	if event.Events&unix.EPOLLOUT != 0 && k.stuck {
		k.stuck = false
		l.flush(k)
	}
	if event.Events&^unix.EPOLLOUT != 0 && !k.dead {
		l.read(k, event.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
	}
}

// read takes what has come, and writes what that leads to. A short read has emptied the socket unless the
// end of the connection, for which there is no further event, stands behind it.
func (l *loop) read(k *link, toTheEnd bool) {
	for range maxReads {
		if k.dead {
			return
		}
		n, err := l.world.Receive(k.fd, l.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			l.flush(k)
			return
		case err != nil:
			l.lose(k, fmt.Errorf("reading from the member: %w", err))
			return
		case n == 0:
			l.lose(k, k.protocol.EOF())
			return
		}
		l.feed(k, l.buffer[:n])
		if n < len(l.buffer) && !toTheEnd {
			if !k.dead {
				l.flush(k)
			}
			return
		}
	}
	if !k.dead {
		l.flush(k)
	}
	if !k.dead && !k.again {
		k.again = true
		l.again = append(l.again, k)
	}
}

func (l *loop) feed(k *link, b []byte) {
	wasReady := k.protocol.Ready()
	if err := k.protocol.Feed(b); err != nil {
		k.protocol.Leave(err)
		l.flush(k)
		l.lose(k, err)
		return
	}
	if k.dead {
		return
	}
	c := k.conn
	if !wasReady && k.protocol.Ready() {
		c.becameReady()
	}
	if k.protocol.Closing() {
		c.leave(k, errClosing, true)
		if k.protocol.Active() == 0 {
			l.lose(k, nil)
			return
		}
	}
	c.startWaiting()
}

// markDirty remembers that a link has output.
func (l *loop) markDirty(k *link) {
	if !k.dirty {
		k.dirty = true
		l.dirty = append(l.dirty, k)
	}
}

func (l *loop) flushAll() {
	// Losing a link makes others dirty while this goes on.
	for i := 0; i < len(l.dirty); i++ {
		k := l.dirty[i]
		k.dirty = false
		if !k.dead {
			l.flush(k)
		}
	}
	l.dirty = l.dirty[:0]
}

// write is flush for output that does not wait.
func (l *loop) write(k *link) {
	k.waits = 0
	for !k.stuck && !k.dead && len(k.protocol.Output()) > 0 {
		n, err := l.world.Send(k.fd, k.protocol.Output(), l.flags)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			k.stuck = true
		case err != nil:
			l.lose(k, fmt.Errorf("writing to the member: %w", err))
		default:
			k.protocol.Wrote(n)
		}
	}
	if !k.dead && k.protocol.Closing() && k.conn.link == k {
		k.conn.leave(k, errClosing, true)
	}
}

func (l *loop) addLink(k *link) error {
	if n := len(l.free); n > 0 {
		k.token = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		k.token = int32(len(l.links))
		l.links = append(l.links, nil)
	}
	l.generation++
	k.generation = l.generation
	if err := l.poller.Add(k.fd, k.token, k.generation); err != nil {
		l.free = append(l.free, k.token)
		return err
	}
	l.links[k.token] = k
	return nil
}

// lose closes a link. The calls on it end with err as the reason.
func (l *loop) lose(k *link, err error) {
	if k.dead {
		return
	}
	k.dead = true
	l.links[k.token] = nil
	l.free = append(l.free, k.token)
	l.world.Close(k.fd)
	if err == nil {
		err = errors.New("the member closed the connection")
	}
	if k.connecting {
		k.conn.attemptFailed(err)
		return
	}
	k.conn.leave(k, err, false)
	k.protocol.Lost(err.Error())
}

// await puts a job where its deadline belongs. Nearly all have the same timeout, so that mostly is the end.
func (l *loop) await(j *job) {
	before := l.deadlines.last
	for before != nil && before.deadline > j.deadline {
		before = before.links[byDeadline].before
	}
	l.deadlines.insert(before, j)
}

// withdraw takes back a job that is under way; its task gets no outcome. unknown is as in store.Failure.
func (l *loop) withdraw(j *job) (unknown bool) {
	l.deadlines.remove(j)
	if j.queued {
		j.queued = false
		j.conn.waiting.remove(j)
		return false
	}
	k := j.link
	j.link = nil
	unknown = k.protocol.Cancel(j.call)
	l.markDirty(k)
	if k.protocol.Closing() {
		k.conn.leave(k, errNoAnswer, true) // unless it was closing before
		if k.protocol.Active() == 0 {
			l.flush(k)
			l.lose(k, nil)
		}
	} else {
		j.conn.startWaiting()
	}
	return unknown
}

// next is the time of what is due next; 0: nothing.
func (l *loop) next() (next time.Duration) {
	if l.deadlines.first != nil {
		next = l.deadlines.first.deadline
	}
	if len(l.timers) > 0 {
		next = earlier(next, l.timers[0].at)
	}
	return next
}

// earlier is the earlier one of two times, of which 0 is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// runTimers does what is due. What was received before that is taken first: a process that was stopped, or had no CPU
// time, finds that deadlines have passed of which the answers are there.
func (l *loop) runTimers() error {
	next := l.next()
	if next == 0 {
		return nil
	}
	now := l.now()
	if next <= now {
		if err := l.catchUp(); err != nil {
			return err
		}
	}
	for l.deadlines.first != nil && l.deadlines.first.deadline <= now {
		j := l.deadlines.first
		unknown := l.withdraw(j)
		j.task.fail(&store.Failure{Code: store.DeadlineExceeded, Unknown: unknown})
	}
	for len(l.timers) > 0 && l.timers[0].at <= now {
		heap.Pop(&l.timers).(timer).do()
	}
	return nil
}

// after calls a function in a while.
func (l *loop) after(d time.Duration, do func()) { heap.Push(&l.timers, timer{l.now() + d, do}) }

type timer struct {
	at time.Duration
	do func()
}

// timers implements heap.Interface; there are few, only when something goes wrong.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = timer{}
	*t = (*t)[:len(*t)-1]
	return last
}

// poller is a world.Poller with a queue of what other goroutines want from the one that waits.
type poller struct {
	world.Poller
	armed time.Duration // when the timer fires; 0: not set

	mu     sync.Mutex
	posted []func()
	closed bool
}

// wakeAt makes Wait return a TimerToken at the given time, and maybe earlier. now is on the same clock.
func (p *poller) wakeAt(at, now time.Duration) error {
	if p.armed != 0 && p.armed <= at {
		return nil
	}
	p.armed = at
	return p.SetTimer(at - now)
}

// post hands a function to the goroutine that waits; it returns false when that has ended.
func (p *poller) post(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.posted = append(p.posted, f); len(p.posted) == 1 {
		p.Wake()
	}
	return true
}

// take gives what was posted. last: post returns false from now on.
func (p *poller) take(last bool) (posted []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	posted, p.posted, p.closed = p.posted, nil, last
	return posted
}

// keepBeating begins the beats of all connections, where one that has become ready needs them. All share one timer, of
// the shortest interval that any needs.
func (l *loop) keepBeating(k *link) {
	needs, ok := k.protocol.(store.Beater)
	if !ok {
		return
	}
	interval := needs.Interval()
	if l.beat == 0 {
		l.after(interval, l.beatAll)
		l.beat = interval
	}
	l.beat = min(l.beat, interval)
}

func (l *loop) beatAll() {
	for _, k := range l.links {
		if k == nil || k.connecting {
			continue
		}
		if needs, ok := k.protocol.(store.Beater); ok && k.protocol.Ready() {
			if needs.Beat(); len(k.protocol.Output()) > 0 {
				l.markDirty(k)
			}
		}
	}
	l.after(l.beat, l.beatAll)
}

// releaseInterval is half of how long output may wait. All connections share one timer for it.
const releaseInterval = 250 * time.Millisecond

// flush writes until the output is empty or the socket takes no more, unless the output waits for more.
func (l *loop) flush(k *link) {
	if k.dead || !k.protocol.Waits() {
		l.write(k)
		return
	}
	if k.waits == 0 {
		k.waits = l.releases
	}
	if !k.listed {
		if len(l.waiting) == 0 {
			l.after(releaseInterval, l.release)
		}
		k.listed = true
		l.waiting = append(l.waiting, k)
	}
}

// release writes what has waited since the release before this one.
func (l *loop) release() {
	l.releases++
	still := l.waiting[:0]
	for _, k := range l.waiting {
		if k.dead || k.waits == 0 {
			k.listed = false
		} else if k.waits == l.releases-1 {
			still = append(still, k)
		} else {
			k.listed = false
			l.write(k)
		}
	}
	clear(l.waiting[len(still):])
	if l.waiting = still; len(still) > 0 {
		l.after(releaseInterval, l.release)
	}
}
