package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// statusTimeout bounds one question for a member's status.
const statusTimeout = 5 * time.Second

// leaderPoll is how long to wait before members without a leader are asked again; an election takes
// about a second.
const leaderPoll = 50 * time.Millisecond

// findLeader asks the members until one of them says that it leads, or ctx ends. probes has one
// connection for each member; those that are not ready are left out.
func findLeader(ctx context.Context, probes []*connection) (*connection, error) {
	unreachable := fmt.Errorf("no member could be reached")
	problem := unreachable
	deadline, bounded := ctx.Deadline()
	for {
		leader, err := askForLeader(ctx, probes)
		if leader != nil {
			return leader, nil
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
			return nil, problem
		case <-timer.C:
		}
	}
}

// askForLeader asks each ready member once. It returns nil and nil when none was ready.
func askForLeader(ctx context.Context, probes []*connection) (*connection, error) {
	type reply struct {
		from   *connection
		status *etcdserverpb.StatusResponse
		err    error
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	asked := 0
	replies := make(chan reply, len(probes))
	for _, c := range probes {
		if !c.ready() {
			continue
		}
		asked++
		go func() {
			status, err := etcdserverpb.NewMaintenanceClient(c.client).Status(ctx, &etcdserverpb.StatusRequest{})
			replies <- reply{c, status, err}
		}()
	}
	var problem error
	for range asked {
		r := <-replies
		switch {
		case r.err != nil:
			problem = fmt.Errorf("no leader was found: %s", describe(r.from.member, r.err, statusTimeout))
		case r.status.Leader == 0:
			problem = fmt.Errorf("no leader was found: %s knows of none", r.from.member)
		case r.status.Header.GetMemberId() == r.status.Leader:
			return r.from, nil
		default:
			problem = fmt.Errorf("the leader (member id %x) is not among the endpoints that answered", r.status.Leader)
		}
	}
	return nil, problem
}
