// Package etcd carries a load to the members of an etcd cluster, through grpc-go. Unlike etcd's own client
// library it tries each request once, on the connection that the load chose for it.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/membership"
)

// Options says which connections to open.
type Options = membership.Options

// Transport holds open connections; it implements load.Transport.
type Transport struct {
	options     Options
	connections []*connection                 // all that were opened
	current     atomic.Pointer[[]*connection] // those that requests go to
	rotate      bool                          // requests go round the connections instead of staying on their client's

	leader      string
	changes     []LeaderChange
	astray      error // why the load is not at the leader
	unreachable []error
	downSince   atomic.Int64 // when no connection was ready any more, ns since opened; 0: one is
	opened      time.Time
}

// Open opens the connections: number j leads to member j mod n. Fewer connections than members would
// make the figures depend on which members were left out, so one for each is opened then, and requests
// rotate over them. It waits until all are ready, at most for the dial timeout; members that are not by
// then are listed by Unreachable. It is an error if none is, or if the leader is asked for and not found.
func Open(ctx context.Context, options Options) (*Transport, error) {
	t := &Transport{options: options, opened: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, options.DialTimeout)
	defer cancel()
	err := t.open(ctx)
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Transport) open(ctx context.Context) error {
	members := t.options.Endpoints
	if t.options.TargetLeader {
		leader, err := leadingMember(ctx, members)
		if err != nil {
			return err
		}
		t.leader, members = leader, []string{leader}
	}
	t.rotate = t.options.Conns < len(members)
	for j := range max(t.options.Conns, len(members)) {
		c, err := newConnection(members[j%len(members)], t.options.RequestTimeout)
		if err != nil {
			return err
		}
		t.connections = append(t.connections, c)
	}
	current := t.connections
	t.current.Store(&current)
	t.unreachable = waitAll(ctx, t.connections)
	if len(t.unreachable) == len(members) {
		return fmt.Errorf("no member could be reached within %v: %w", t.options.DialTimeout, errors.Join(t.unreachable...))
	}
	if t.leader == "" {
		// Only for the report: a cluster without a leader still answers serializable reads.
		t.leader, _ = askForLeader(ctx, t.connections[:len(members)])
	}
	return nil
}

// leadingMember finds the leader over connections of its own, without waiting for members that are down. It need not
// be one of the members asked: they tell where it is.
func leadingMember(ctx context.Context, members []string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	var probes []*connection
	for _, member := range members {
		c, err := newConnection(member, statusTimeout)
		if err != nil {
			return "", err
		}
		defer c.close()
		probes = append(probes, c)
		waiting.Go(func() {
			// A member that cannot be reached shows when the leader is not found.
			_ = c.wait(ctx)
		})
	}
	return findLeader(ctx, probes)
}

// waitAll waits for all connections at once and returns one error for each member that failed.
func waitAll(ctx context.Context, connections []*connection) []error {
	failures := make([]error, len(connections))
	var waiting sync.WaitGroup
	for i, c := range connections {
		waiting.Go(func() { failures[i] = c.wait(ctx) })
	}
	waiting.Wait()
	var byMember []error
	seen := make(map[string]bool)
	for i, err := range failures {
		if member := connections[i].member; err != nil && !seen[member] {
			seen[member] = true
			byMember = append(byMember, err)
		}
	}
	return byMember
}

// Connections is the number of TCP connections that requests go to.
func (t *Transport) Connections() int { return len(*t.current.Load()) }

// Leader is the member that led when the connections were opened; empty if that is not known.
func (t *Transport) Leader() string { return t.leader }

// Unreachable has one error for each member that had a connection not ready when the load started.
func (t *Transport) Unreachable() []error { return t.unreachable }

// Close ends all connections.
func (t *Transport) Close() {
	for _, c := range t.connections {
		c.close()
	}
}

// Drive implements load.Transport with one goroutine for each client.
func (t *Transport) Drive(ctx context.Context, clients int, run *load.Run) {
	if t.options.TargetLeader {
		defer t.follow(ctx)()
	}
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() { t.drive(ctx, client, run) })
	}
	running.Wait()
}

func (t *Transport) drive(ctx context.Context, client int, run *load.Run) {
	var a answer
	var member peer.Peer // is set once a request has a stream, on which it may reach the member
	options := append([]grpc.CallOption{grpc.Peer(&member)}, callOptions...)
	for {
		request, more := run.Next(client)
		if !more {
			return
		}
		connections := *t.current.Load()
		c := connections[client%len(connections)]
		if t.rotate {
			c = connections[request.Number%len(connections)]
		}
		a.request, member.Addr = request, nil
		err := t.send(ctx, c, request, &a, options)
		if err == nil {
			run.Done(request, a.count, a.wrong)
			continue
		}
		if ctx.Err() != nil {
			cut := load.ErrNotSent
			if member.Addr != nil {
				cut = load.ErrAbandoned
			}
			run.Done(request, 0, cut)
			return
		}
		run.Done(request, 0, &load.CallError{
			Code:    load.Code(status.Code(err)),
			Unknown: member.Addr != nil && !refused(err),
			Text:    describe(c.member, err, t.options.RequestTimeout),
		})
		if status.Code(err) == codes.Unavailable && !c.ready() {
			t.pause(ctx, c, run)
		}
	}
}

// ofReset begins the text that grpc-go gives a call whose stream the member reset. It makes a code of RST_STREAM's, which
// looks like one from the member.
const ofReset = "stream terminated by RST_STREAM"

// refused tells whether the member said that it did not carry out the request.
func refused(err error) bool {
	s := status.Convert(err)
	return load.Refused(load.Code(s.Code()), s.Message()) && !strings.HasPrefix(s.Message(), ofReset)
}

// callOptions is shared by all calls, so that none allocates its own.
var callOptions = []grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.StaticMethod()}

var methods = [load.Kinds]string{
	load.Put:   etcdserverpb.KV_Put_FullMethodName,
	load.Range: etcdserverpb.KV_Range_FullMethodName,
	load.Txn:   etcdserverpb.KV_Txn_FullMethodName,
}

// send tries the request once.
func (t *Transport) send(ctx context.Context, c *connection, request *load.Request, a *answer, options []grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, t.options.RequestTimeout)
	defer cancel()
	return c.client.Invoke(ctx, methods[request.Kind], request, a, options...)
}

// Requests on a lost connection fail at once. Clients of a lost member pause while others carry on, else
// they would use up the requests that are left within moments; where no member is left, the pause only
// keeps the clients from burning the processor.
const (
	pauseWhileOthersWork = 100 * time.Millisecond
	pauseWhileNoneWorks  = time.Millisecond
)

// pause waits until c is ready, at most for the pause that fits; it ends the run when no connection has
// been ready for as long as it may take to open one.
func (t *Transport) pause(ctx context.Context, c *connection, run *load.Run) {
	limit := pauseWhileOthersWork
	if t.anyReady() {
		t.downSince.Store(0)
		if t.rotate {
			return
		}
	} else {
		limit = pauseWhileNoneWorks
		now := int64(time.Since(t.opened))
		if !t.downSince.CompareAndSwap(0, now) && time.Duration(now-t.downSince.Load()) > t.options.DialTimeout {
			run.Stop(fmt.Sprintf("no member could be reached for %v", t.options.DialTimeout))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Not ready in time is what the next request will report.
	_ = c.wait(ctx)
}

func (t *Transport) anyReady() bool {
	for _, c := range *t.current.Load() {
		if c.client.GetState() == connectivity.Ready {
			return true
		}
	}
	return false
}

// localAddress is the client's side of a connection in an error text; its port differs each time.
var localAddress = regexp.MustCompile(`\S+:\d+->`)

// maxErrorText bounds the length of one error text in a report, in bytes.
const maxErrorText = 300

// clean makes error texts of the same cause the same.
func clean(text string) string {
	text = localAddress.ReplaceAllString(text, "")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	return text
}

// describe gives a gRPC error in one line that names the member.
func describe(member string, err error, timeout time.Duration) string {
	s := status.Convert(err)
	text := s.Message()
	if s.Code() == codes.DeadlineExceeded {
		text = fmt.Sprintf("no answer within %v", timeout)
	}
	return fmt.Sprintf("%s: %v: %s", member, s.Code(), clean(text))
}
