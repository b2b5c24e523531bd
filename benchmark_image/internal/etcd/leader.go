package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"containernet-env/benchmark_image/internal/membership"
)

// statusTimeout bounds one question for a member's status.
const statusTimeout = 5 * time.Second

// leaderPoll is how long to wait before members without a leader are asked again; an election takes
// about a second.
const leaderPoll = 50 * time.Millisecond

// findLeader asks the members until the leader's endpoint is known, or ctx ends. probes has one connection
// for each member; those that are not ready are left out.
func findLeader(ctx context.Context, probes []*connection) (string, error) {
	unreachable := fmt.Errorf("no member could be reached")
	problem := unreachable
	deadline, bounded := ctx.Deadline()
	for {
		leader, err := askForLeader(ctx, probes)
		if leader != "" {
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
			return "", problem
		case <-timer.C:
		}
	}
}

// askForLeader asks each ready member once; it returns the leader's endpoint, and "" with nil when no
// member was ready. A leader that is not among the members asked is looked up in the cluster's own list.
func askForLeader(ctx context.Context, probes []*connection) (string, error) {
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
	var follower reply
	for range asked {
		r := <-replies
		switch {
		case r.err != nil:
			problem = fmt.Errorf("no leader was found: %s", describe(r.from.member, r.err, statusTimeout))
		case r.status.Leader == 0:
			problem = fmt.Errorf("no leader was found: %s knows of none", r.from.member)
		case r.status.Header.GetMemberId() == r.status.Leader:
			return r.from.member, nil
		default:
			follower = r
		}
	}
	if follower.status != nil {
		leader, err := advertised(ctx, follower.from, follower.status.Leader)
		if err != nil {
			return "", &elsewhereError{err}
		}
		return leader, nil
	}
	return "", problem
}

// elsewhereError is why a leader that there is, not among the members asked, is not found.
type elsewhereError struct{ error }

// advertised is the endpoint at which the member with that id says that clients reach it.
func advertised(ctx context.Context, c *connection, id uint64) (string, error) {
	list, err := etcdserverpb.NewClusterClient(c.client).MemberList(ctx, &etcdserverpb.MemberListRequest{})
	if err != nil {
		return "", fmt.Errorf("no leader was found: %s", describe(c.member, err, statusTimeout))
	}
	var known []membership.Member
	for _, m := range list.Members {
		known = append(known, membership.Member{ID: m.ID, Name: m.Name, ClientURLs: m.ClientURLs})
	}
	leader, err := membership.Advertised(known, id)
	if errors.Is(err, membership.ErrNotListed) {
		return "", fmt.Errorf("%w of %s", err, c.member)
	}
	return leader, err
}
