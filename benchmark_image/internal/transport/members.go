package transport

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

// statusTimeout bounds one question for a member's status.
const statusTimeout = 5 * time.Second

// inquiry asks members beside a load, over connections of its own.
type inquiry struct {
	*loop
	probes []*conn // to each member
}

func inquire(protocol store.Protocol, o *Options) (*inquiry, error) {
	l, err := newLoop(protocol, o, o.statusTime())
	if err != nil {
		return nil, err
	}
	i := &inquiry{loop: l}
	for _, member := range o.Members() {
		i.probes = append(i.probes, l.newConn(member))
	}
	if l.traits.Status == nil {
		l.connectAll(i.probes)
	}
	return i, nil
}

// statusTime bounds a question where an attempt to connect may take longer: it is as many round trips at least.
func (o *Options) statusTime() time.Duration { return max(o.slowed(statusTimeout), o.attempt()) }

const (
	// leaderPoll is how often each member is queried while the leader is looked for; an election takes about a second.
	leaderPoll = 50 * time.Millisecond
	// followPoll is the same while the load follows the leader.
	followPoll = 200 * time.Millisecond
)

// leaderGrace is how long members may take to say more than the first one that named a leader: a member that hangs must
// not hold up the others.
const leaderGrace = 500 * time.Millisecond

// deposedGrace is how long requests may wait for a member after the load has moved from it to another leader: one that
// has only lost an election answers them meanwhile, one that hangs does not.
const deposedGrace = 400 * time.Millisecond

// sighting is a member's answer to who leads.
type sighting struct {
	from   *conn
	answer store.Answer
	err    error
}

// watchStatus asks each member periodically for its status, until the end of ctx or until stop is called: by itself, so
// that one that hangs delays no other. Members without a connection are left out meanwhile, unless the protocol
// asks over connections of its own.
func watchStatus(ctx context.Context, probes []*conn, interval time.Duration) (seen <-chan sighting, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	all := make(chan sighting)
	var running sync.WaitGroup
	for _, c := range probes {
		running.Go(func() {
			for ctx.Err() == nil {
				if c.isReady.Load() || c.loop.traits.Status != nil {
					s := sighting{from: c}
					s.answer, s.err = c.status(ctx)
					select {
					case all <- s:
					case <-ctx.Done():
					}
				}
				c.loop.pause(ctx, c.loop.options.slowed(interval), nil)
			}
		})
	}
	return all, func() {
		cancel()
		running.Wait()
	}
}

// pause lets a time pass, at most until the end of ctx or until wake is closed.
func (l *loop) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := l.world.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// election is who leads, by what members have said: of two leaders, the one of the higher term does, and the other one
// does not know it yet.
type election struct {
	leader, term uint64        // leader 0: none is known
	from         *conn         // that named it
	since        time.Duration // when it was named first
	probes       int           // how many members are queried
	grace        time.Duration // leaderGrace
	members      map[uint64]*conn
}

func newElection(probes []*conn) *election {
	grace := probes[0].loop.options.slowed(leaderGrace)
	return &election{probes: len(probes), grace: grace, members: make(map[uint64]*conn)}
}

// take adds an answer that came now. Where terms are equal, or the store has none, the latest answer counts.
func (e *election) take(s sighting, now time.Duration) {
	if s.answer.Member != 0 {
		e.members[s.answer.Member] = s.from
	}
	if s.answer.Leader != 0 && s.answer.Term >= e.term {
		if e.leader != s.answer.Leader {
			e.since = now
		}
		e.leader, e.term, e.from = s.answer.Leader, s.answer.Term, s.from
	}
}

// seat tells where the leader is; false while no member has named it, or it may still be one of the members that have
// not answered yet.
func (e *election) seat(now time.Duration) (seat, bool) {
	s := seat{e.leader, e.members[e.leader], e.from}
	return s, e.leader != 0 && (s.itself != nil || len(e.members) == e.probes || now-e.since > e.grace)
}

// settled tells whether a majority of the members has answered: whoever was elected last, one of them knows it. Where
// that does not come, because members are down or hang, those that answer decide after a grace.
func (e *election) settled(now time.Duration) bool {
	return 2*len(e.members) > e.probes || now-e.since > e.grace
}

type seat struct {
	leader uint64
	itself *conn // nil: it is not among the members that answered
	from   *conn // that named it
}

func (s seat) endpoint(ctx context.Context) (string, error) {
	if s.itself != nil {
		return s.itself.member, nil
	}
	located, err := s.from.ask(ctx, store.Request{Operation: store.Locate, Leader: s.leader},
		s.from.loop.options.statusTime())
	if err != nil {
		return "", fmt.Errorf("no leader was found: %w", err)
	}
	return located.Endpoint, nil
}

// leadingMember finds the leader over connections of its own, without waiting for members that are down.
func leadingMember(ctx context.Context, protocol store.Protocol, o *Options) (string, error) {
	i, err := inquire(protocol, o)
	if err != nil {
		return "", err
	}
	defer i.close()
	leader, err := findLeader(ctx, i.probes, true)
	if err != nil {
		return "", err
	}
	return leader.endpoint(ctx)
}

func (c *conn) status(ctx context.Context) (store.Answer, error) {
	l := c.loop
	if l.traits.Status == nil {
		return c.ask(ctx, store.Request{Operation: store.Status}, l.options.statusTime())
	}
	ctx, cancel := l.world.WithTimeout(ctx, l.options.statusTime())
	defer cancel()
	connection, err := l.world.Dial(ctx, l.dialer(c.member), c.member)
	if err != nil {
		return store.Answer{}, fmt.Errorf("%s: %w", c.member, cause(err))
	}
	defer func() {
		_ = connection.Close() // all was read
	}()
	defer context.AfterFunc(ctx, func() {
		_ = connection.SetDeadline(l.world.Wall()) // it ends what goes on, and cannot fail on a TCP connection
	})()
	answer, err := l.traits.Status(connection, c.member)
	if err != nil {
		return store.Answer{}, fmt.Errorf("%s: %w", c.member, err)
	}
	return answer, nil
}

// findLeader asks the members who leads until enough of them have answered. Unless it is patient, it gives up when each
// has answered once and none has named a leader.
func findLeader(ctx context.Context, probes []*conn, patient bool) (seat, error) {
	seen, stop := watchStatus(ctx, probes, leaderPoll)
	defer stop()
	e, heard := newElection(probes), make(map[*conn]bool)
	problem := errors.New("no member could be reached")
	l := probes[0].loop
	for {
		select {
		case <-l.refused.Done():
			return seat{}, context.Cause(l.refused)
		case <-ctx.Done():
			for _, c := range probes {
				if len(heard) == 0 && c.isReady.Load() {
					problem = fmt.Errorf("no leader was found: %s does not answer", c.member)
				}
			}
			return seat{}, problem
		case s := <-seen:
			heard[s.from] = true
			if s.err != nil {
				problem = fmt.Errorf("no leader was found: %w", s.err)
				break
			}
			if e.take(s, l.now()); s.answer.Leader == 0 {
				problem = fmt.Errorf("no leader was found: %s knows of none", s.from.member)
			}
		}
		if leader, found := e.seat(l.now()); found && e.settled(l.now()) {
			return leader, nil
		}
		unheard := func(c *conn) bool { return c.isReady.Load() && !heard[c] }
		if !patient && e.leader == 0 && !slices.ContainsFunc(probes, unheard) {
			return seat{}, problem
		}
	}
}

// follow moves the load to the member that leads, whenever that changes, until stop is called. Members that do not
// answer, and elections, show in the requests.
func (t *Transport) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		i, err := inquire(t.protocol, &t.options)
		if err != nil {
			return // the same call worked when the leader was looked for
		}
		defer i.close()
		seen, stopWatching := watchStatus(ctx, i.probes, followPoll)
		defer stopWatching()
		e, current := newElection(i.probes), uint64(0)
		var m *move // under way
		defer func() { m.end() }()
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-seen:
				if s.err == nil {
					e.take(s, i.now())
				}
			case <-m.over():
				if m.succeeded {
					current = m.to.leader
				}
				m = nil
			}
			to, found := e.seat(i.now())
			switch {
			case !found, m != nil && m.to.leader == to.leader:
			case to.leader == current && m == nil:
				t.LeaderLost = nil
			default:
				m.end()
				m = t.startMove(ctx, to)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// move is an attempt to let the load go to another leader.
type move struct {
	to        seat
	succeeded bool // valid when done is closed
	cancel    context.CancelFunc
	done      chan struct{}
}

// over is closed when the move is; nil, which never is, without a move.
func (m *move) over() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.done
}

// end gives up the move, if there is one.
func (m *move) end() {
	if m != nil {
		m.cancel()
		<-m.done
	}
}

func (t *Transport) startMove(ctx context.Context, to seat) *move {
	ctx, cancel := context.WithCancel(ctx)
	m := &move{to: to, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		defer cancel()
		lookup, end := t.options.World.WithTimeout(ctx, t.options.DialTimeout)
		defer end()
		member, err := to.endpoint(lookup)
		if err != nil {
			t.loseLeader(ctx, err)
			return
		}
		m.succeeded = t.moveTo(ctx, member)
	}()
	return m
}

// moveTo lets new requests go to the member. The connections to the old one stay open: requests may be under way on
// them, and it may lead again. It returns false if the member cannot be reached.
func (t *Transport) moveTo(ctx context.Context, member string) bool {
	from := (*t.current.Load())[0]
	if from[0].member == member {
		t.LeaderLost = nil
		return true
	}
	var to, created []*conn
	for _, c := range t.connections {
		if c.member == member {
			to = append(to, c)
		}
	}
	for len(to) < t.options.Conns {
		c := t.loop.newConn(member)
		to, created = append(to, c), append(created, c)
	}
	t.connections = append(t.connections, created...)
	t.loop.connectAll(created)
	dialing, cancel := t.options.World.WithTimeout(ctx, t.options.DialTimeout)
	defer cancel()
	// Another member may have refused a connection: that does not matter here.
	if missing := waitAll(dialing, nil, to); len(missing) > 0 {
		t.loseLeader(ctx, missing[0])
		return false
	}
	for _, c := range to {
		if !c.isReady.Load() { // it was, before
			t.loseLeader(ctx, fmt.Errorf("%s: %s", member, c.failure().Text))
			return false
		}
	}
	t.LeaderLost = nil
	t.current.Store(&[][]*conn{to})
	t.LeaderChanges = append(t.LeaderChanges, LeaderChange{At: t.options.World.Wall(), Leader: member})
	t.loop.poller.post(func() { t.loop.depose(from, to) })
	return true
}

// depose lets requests that are not sent yet go to the new leader too. Those that are under way at the old one have a
// grace left.
func (l *loop) depose(from, to []*conn) {
	for _, c := range to {
		c.deposed = 0
	}
	for _, c := range from {
		c.deposed = l.now()
	}
	for c := range l.atDeposed(0) {
		if c.job.queued {
			c.job.queued = false
			c.job.conn.waiting.remove(&c.job)
			c.drive.transport.target(c.number, c.current.Number).take(&c.job)
		}
	}
	grace := l.options.slowed(deposedGrace)
	l.after(grace, func() {
		for c := range l.atDeposed(grace) {
			c.fail(&store.Failure{Code: store.Canceled, Unknown: l.withdraw(&c.job),
				Text: fmt.Sprintf("no answer within %v after the load had moved to another leader", grace)})
		}
	})
}

// atDeposed are the clients whose requests are at a member that was deposed so long ago.
func (l *loop) atDeposed(since time.Duration) iter.Seq[*client] {
	return func(yield func(*client) bool) {
		for i := 0; l.drive != nil && i < len(l.drive.clients); i++ {
			c := &l.drive.clients[i]
			if c.current != nil && c.job.conn.deposed != 0 && l.now()-c.job.conn.deposed >= since && !yield(c) {
				return
			}
		}
	}
}

// loseLeader notes that the load does not follow the leader. The end of the load is no reason; that the leader refuses
// connections is one all the same.
func (t *Transport) loseLeader(ctx context.Context, err error) {
	if ctx.Err() == nil || errors.As(err, new(store.RefusedError)) {
		t.LeaderLost = err
	}
}

// loginTimeout bounds a login while a load runs.
const loginTimeout = 10 * time.Second

// login lets the protocol's user log in at one of the members, over connections of its own. A member that refuses the
// user speaks for all.
func login(ctx context.Context, protocol store.Protocol, o *Options) error {
	i, err := inquire(protocol, o)
	if err != nil {
		return err
	}
	defer i.close()
	problem := errors.New("no member could be reached to log in")
	for ctx.Err() == nil {
		for _, c := range i.probes {
			if !c.isReady.Load() {
				continue
			}
			_, err := c.ask(ctx, store.Request{Operation: store.Login}, o.statusTime())
			if err == nil || !isPassing(err) {
				return err
			}
			if ctx.Err() == nil {
				problem = err
			}
		}
		i.pause(ctx, o.slowed(leaderPoll), i.refused.Done())
		if err := context.Cause(i.refused); err != nil {
			return err
		}
	}
	return problem
}

// isPassing tells whether a request that failed so may succeed at another member, or later.
func isPassing(err error) bool {
	failure, known := errors.AsType[*store.Failure](err)
	if !known {
		return false
	}
	switch failure.Code {
	case store.Unavailable, store.DeadlineExceeded, store.Canceled, store.ResourceExhausted, store.Unknown:
		return true
	}
	return false
}

// renew starts a job again behind a new login, if it was refused because the last one has expired. It keeps its
// deadline: the time that this takes is part of what the store took. false: the failure stands.
func (j *job) renew(failure *store.Failure) bool {
	l := j.conn.loop
	if !failure.LoggedOut || j.renewed {
		return false
	}
	j.renewed, j.queued = true, true
	l.await(j)
	j.conn.waiting.append(j)
	switch {
	case l.loggingIn:
	case j.login != l.logins: // there was a new login while it was under way
		j.conn.startWaiting()
	default:
		l.logIn()
	}
	return true
}

// logIn begins a login, for which all requests wait.
func (l *loop) logIn() {
	l.loggingIn = true
	go func() {
		ctx, cancel := l.world.WithTimeout(l.dialing, l.options.slowed(loginTimeout))
		defer cancel()
		err := login(ctx, l.protocol, l.options)
		l.poller.post(func() { l.loggedIn(err) })
	}()
}

// loggedIn lets the requests go on that wait for a login, or fails them with what went wrong.
func (l *loop) loggedIn(err error) {
	l.loggingIn = false
	l.logins++
	for _, k := range l.links {
		if k == nil || k.conn.link != k {
			continue
		}
		if err != nil {
			k.conn.failWaiting(&store.Failure{Code: store.Unauthenticated, Text: fmt.Sprintf("a new login failed: %v", err)})
		}
		k.conn.startWaiting()
	}
}

// checkPermissions sends samples of the requests that the load will make. Only that a member refuses the user counts:
// the load reports what else goes wrong.
func (t *Transport) checkPermissions(ctx context.Context, samples []store.Request) error {
	if !t.loop.traits.NeedsLogin && t.loop.traits.Security == nil {
		return nil // there is no user
	}
	for _, sample := range samples {
		sample.Rehearse = true
		for _, c := range t.connections {
			if !c.isReady.Load() {
				continue
			}
			_, err := c.ask(ctx, sample, t.options.statusTime())
			if f, known := errors.AsType[*store.Failure](err); known && f.Code == store.PermissionDenied {
				return fmt.Errorf("the user may not %s %q, so nothing of the load was sent: %w", name(sample), sample.Key, err)
			}
			if err == nil {
				break
			}
		}
	}
	return nil
}

func name(sample store.Request) string {
	switch sample.Operation {
	case store.Put:
		return "write"
	case store.Transaction:
		return "read and write"
	case store.Scan:
		return fmt.Sprintf("read the keys before %q from", sample.End)
	default:
		return "read"
	}
}
