package etcd

import (
	"context"
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
			c, err := newConnection(member)
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
			if leader, _ := askForLeader(ctx, probes); leader != "" {
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
		return
	}
	var to []*connection
	for _, c := range t.connections {
		if c.member == member {
			to = append(to, c)
		}
	}
	for len(to) < t.options.Conns {
		c, err := newConnection(member)
		if err != nil {
			return
		}
		t.connections = append(t.connections, c)
		to = append(to, c)
	}
	ctx, cancel := context.WithTimeout(ctx, t.options.DialTimeout)
	defer cancel()
	if len(waitAll(ctx, to)) > 0 {
		return
	}
	t.current.Store(&to)
	t.changes = append(t.changes, LeaderChange{At: time.Now(), Leader: member})
}
