package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/membership"
)

// followPoll is how often the members are asked who leads while the load follows the leader.
const followPoll = 200 * time.Millisecond

// LeaderChange is a move of the load to another member.
type LeaderChange = membership.LeaderChange

// LeaderChanges lists the moves of the load, in order. It must not be called while Drive runs.
func (t *Transport) LeaderChanges() []LeaderChange { return t.changes }

// follow moves the load to the member that leads, whenever that changes, until stop is called.
func (t *Transport) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		probes := make([]*connection, 0, len(t.options.Endpoints))
		for _, member := range t.options.Endpoints {
			c, err := newConnection(member, statusTimeout)
			if err != nil {
				continue // the same call worked when the leader was looked for
			}
			defer c.close()
			probes = append(probes, c)
		}
		ticker := time.NewTicker(followPoll)
		defer ticker.Stop()
		for {
			for _, c := range probes {
				c.client.Connect()
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			// Members that do not answer, and elections, show in the requests.
			leader, err := askForLeader(ctx, probes)
			if elsewhere := new(elsewhereError); errors.As(err, &elsewhere) {
				t.lost(ctx, err)
			} else if leader != "" {
				t.moveTo(ctx, leader)
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
		t.astray = nil
		return
	}
	var to []*connection
	for _, c := range t.connections {
		if c.member == member {
			to = append(to, c)
		}
	}
	for len(to) < t.options.Conns {
		c, err := newConnection(member, t.options.RequestTimeout)
		if err != nil {
			t.lost(ctx, err)
			return
		}
		t.connections = append(t.connections, c)
		to = append(to, c)
	}
	dialing, cancel := context.WithTimeout(ctx, t.options.DialTimeout)
	defer cancel()
	if missing := waitAll(dialing, to); len(missing) > 0 {
		t.lost(ctx, missing[0])
		return
	}
	t.astray = nil
	t.current.Store(&to)
	t.changes = append(t.changes, LeaderChange{At: time.Now(), Leader: member})
}

// lost notes that the load does not follow the leader. The end of the load is no reason.
func (t *Transport) lost(ctx context.Context, err error) {
	if ctx.Err() == nil {
		t.astray = err
	}
}

// Astray says why requests go to another member than the leader, although they should follow it; nil if they do not. It
// must not be called while Drive runs.
func (t *Transport) Astray() error { return t.astray }
