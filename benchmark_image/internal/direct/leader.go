package direct

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/h2"
	"containernet-env/benchmark_image/internal/membership"
	"containernet-env/benchmark_image/internal/wire"
)

// statusTimeout bounds one question for a member's status.
const statusTimeout = 5 * time.Second

// leaderPoll is how long to wait before members without a leader are asked again; an election takes
// about a second.
const leaderPoll = 50 * time.Millisecond

// leadingMember finds the leader over connections of its own, without waiting for members that are down.
func leadingMember(ctx context.Context, members []string) (string, error) {
	l, err := newLoop(h2.Options{})
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
		leader, err := askForLeader(ctx, probes)
		if leader != nil {
			return leader.member, nil
		}
		if other := new(elsewhereError); errors.As(err, &other) {
			return other.from.advertised(ctx, other.leader)
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

// elsewhereError says that there is a leader, and that it is not among the members that answered.
type elsewhereError struct {
	from   *conn  // that knows it
	leader uint64 // its member id
}

// Error implements error.
func (*elsewhereError) Error() string { return "the leader is not among the endpoints that answered" }

// advertised is the endpoint at which the member with that id says that clients reach it.
func (c *conn) advertised(ctx context.Context, id uint64) (string, error) {
	reader, err := c.exchange(ctx, wire.MemberList, nil, statusTimeout)
	if err != nil {
		return "", fmt.Errorf("no leader was found: %w", err)
	}
	list, err := reader.Members()
	if err != nil {
		return "", fmt.Errorf("no leader was found: %s: %w", c.member, err)
	}
	leader, err := membership.Advertised(list, id)
	if errors.Is(err, membership.ErrNotListed) {
		return "", fmt.Errorf("%w of %s", err, c.member)
	}
	return leader, err
}

// askForLeader asks each ready member once. It returns nil and nil when none was ready.
func askForLeader(ctx context.Context, probes []*conn) (*conn, error) {
	type reply struct {
		from   *conn
		answer wire.Answer
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
			answer, err := c.call(ctx, wire.Status, nil, statusTimeout)
			replies <- reply{c, answer, err}
		}()
	}
	var problem error
	var elsewhere *elsewhereError
	for range asked {
		r := <-replies
		switch {
		case r.err != nil:
			problem = fmt.Errorf("no leader was found: %w", r.err)
		case r.answer.Leader == 0:
			problem = fmt.Errorf("no leader was found: %s knows of none", r.from.member)
		case r.answer.Member == r.answer.Leader:
			return r.from, nil
		default:
			elsewhere = &elsewhereError{r.from, r.answer.Leader}
		}
	}
	if elsewhere != nil {
		return nil, elsewhere
	}
	return nil, problem
}

// followPoll is how often the members are asked who leads while the load follows the leader.
const followPoll = 200 * time.Millisecond

// LeaderChanges lists the moves of the load, in order. It must not be called while Drive runs.
func (t *Transport) LeaderChanges() []membership.LeaderChange { return t.changes }

// follow moves the load to the member that leads, whenever that changes, until stop is called.
func (t *Transport) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		l, err := newLoop(h2.Options{})
		if err != nil {
			return // the same call worked when the leader was looked for
		}
		defer l.close()
		var probes []*conn
		for _, member := range t.options.Endpoints {
			probes = append(probes, l.newConn(member))
		}
		l.connectAll(probes)
		ticker := time.NewTicker(followPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			// Members that do not answer, and elections, show in the requests.
			if leader, _ := askForLeader(ctx, probes); leader != nil {
				t.moveTo(ctx, leader.member)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// moveTo lets new requests go to the member. The connections to the old one stay open: requests may be under way on
// them, and it may lead again.
func (t *Transport) moveTo(ctx context.Context, member string) {
	if (*t.current.Load())[0].member == member {
		return
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
	ctx, cancel := context.WithTimeout(ctx, t.options.DialTimeout)
	defer cancel()
	if len(waitAll(ctx, to)) > 0 {
		return
	}
	t.current.Store(&to)
	t.changes = append(t.changes, membership.LeaderChange{At: time.Now(), Leader: member})
}
