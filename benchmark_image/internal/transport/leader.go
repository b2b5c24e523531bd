package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

// statusTimeout bounds one question for a member's status.
const statusTimeout = 5 * time.Second

// leaderPoll is how long to wait before members without a leader are asked again; an election takes
// about a second.
const leaderPoll = 50 * time.Millisecond

// leadingMember finds the leader over connections of its own, without waiting for members that are down.
func leadingMember(ctx context.Context, protocol store.Protocol, members []string, permit Permit) (string, error) {
	l, err := newLoop(protocol, statusTimeout, permit)
	if err != nil {
		return "", err
	}
	defer l.close()
	var probes []*conn
	for _, member := range members {
		probes = append(probes, l.newConn(member))
	}
	l.connectAll(probes)
	unreachable := errors.New("no member could be reached")
	problem := unreachable
	deadline, bounded := ctx.Deadline()
	for {
		leader, other, err := askForLeader(ctx, probes)
		if leader != nil {
			return leader.member, nil
		}
		if other != nil {
			return other.endpoint(ctx)
		}
		// A question that the end of ctx cut off tells less than the answers before it.
		cutOff := bounded && !time.Now().Before(deadline)
		if err != nil && (!cutOff || problem == unreachable) {
			problem = err
		}
		timer := time.NewTimer(leaderPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", problem
		case <-timer.C:
		}
	}
}

// elsewhere is a leader that is not among the members that answered.
type elsewhere struct {
	from   *conn  // that knows it
	member uint64 // as Status names it
}

// endpoint is where clients reach it.
func (e *elsewhere) endpoint(ctx context.Context) (string, error) {
	located, err := e.from.ask(ctx, store.Request{Operation: store.Locate, Leader: e.member}, statusTimeout)
	if err != nil {
		return "", fmt.Errorf("no leader was found: %w", err)
	}
	endpoint, err := located.job.call.Endpoint()
	if err != nil {
		return "", fmt.Errorf("no leader was found: %s: %w", e.from.member, err)
	}
	return endpoint, nil
}

// askForLeader asks each ready member once, and returns the leader or where it must be. All results are zero when none was ready.
func askForLeader(ctx context.Context, probes []*conn) (leader *conn, other *elsewhere, problem error) {
	type reply struct {
		from   *conn
		answer store.Answer
		err    error
	}
	asked := 0
	replies := make(chan reply, len(probes))
	for _, c := range probes {
		if !c.isReady.Load() {
			continue
		}
		asked++
		go func() {
			r := reply{from: c}
			var status *single
			if status, r.err = c.ask(ctx, store.Request{Operation: store.Status}, statusTimeout); r.err == nil {
				r.answer = status.answer
			}
			replies <- r
		}()
	}
	for range asked {
		r := <-replies
		switch {
		case r.err != nil:
			problem = fmt.Errorf("no leader was found: %w", r.err)
		case r.answer.Leader == 0:
			problem = fmt.Errorf("no leader was found: %s knows of none", r.from.member)
		case r.answer.Member == r.answer.Leader:
			return r.from, nil, nil
		default:
			other = &elsewhere{r.from, r.answer.Leader}
		}
	}
	return nil, other, problem
}

// followPoll is how often the members are asked who leads while the load follows the leader.
const followPoll = 200 * time.Millisecond

// LeaderChanges lists the moves of the load, in order. It must not be called while Drive runs.
func (t *Transport) LeaderChanges() []LeaderChange { return t.changes }

// follow moves the load to the member that leads, whenever that changes, until stop is called.
func (t *Transport) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		l, err := newLoop(t.protocol, statusTimeout, t.options.Permit)
		if err != nil {
			return // the same call worked when the leader was looked for
		}
		defer l.close()
		var probes []*conn
		for _, member := range t.options.Endpoints {
			probes = append(probes, l.newConn(member))
		}
		l.connectAll(probes)
		found := uint64(0) // a leader elsewhere that the load goes to
		ticker := time.NewTicker(followPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			// Members that do not answer, and elections, show in the requests.
			leader, other, _ := askForLeader(ctx, probes)
			switch {
			case leader != nil:
				found = 0
				t.moveTo(ctx, leader.member)
			case other != nil && other.member != found:
				if t.moveElsewhere(ctx, other) {
					found = other.member
				}
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// moveElsewhere lets new requests go to a leader that is not among the endpoints. It returns false if that did not succeed.
func (t *Transport) moveElsewhere(ctx context.Context, to *elsewhere) bool {
	lookup, cancel := context.WithTimeout(ctx, t.options.DialTimeout)
	defer cancel()
	member, err := to.endpoint(lookup)
	if err == nil {
		return t.moveTo(ctx, member)
	}
	t.loseLeader(ctx, err)
	return false
}

// moveTo lets new requests go to the member. The connections to the old one stay open: requests may be under way on
// them, and it may lead again. It returns false if the member cannot be reached.
func (t *Transport) moveTo(ctx context.Context, member string) bool {
	if (*t.current.Load())[0].member == member {
		t.leaderLost = nil
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
	dialing, cancel := context.WithTimeout(ctx, t.options.DialTimeout)
	defer cancel()
	if missing := waitAll(dialing, to); len(missing) > 0 {
		t.loseLeader(ctx, missing[0])
		return false
	}
	for _, c := range to {
		if !c.isReady.Load() { // it was, before
			t.loseLeader(ctx, fmt.Errorf("%s: %s", member, c.failure().Text))
			return false
		}
	}
	t.leaderLost = nil
	t.current.Store(&to)
	t.changes = append(t.changes, LeaderChange{At: time.Now(), Leader: member})
	return true
}

// loseLeader notes that the load does not follow the leader. The end of the load is no reason.
func (t *Transport) loseLeader(ctx context.Context, err error) {
	if ctx.Err() == nil {
		t.leaderLost = err
	}
}

// LeaderLost says why requests go to another member than the leader, although they should follow it; nil if they do not. It
// must not be called while Drive runs.
func (t *Transport) LeaderLost() error { return t.leaderLost }
