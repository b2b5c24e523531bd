// Package grpcref carries a load through grpc-go and etcd's generated API. It is a reference for tests: nothing of it
// is shared with what the programs use.
package grpcref

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/load"
)

// requestTimeout is the deadline of each request.
const requestTimeout = 30 * time.Second

// Transport implements load.Transport over connections to one member.
type Transport struct {
	connections []*grpc.ClientConn
}

// Open prepares the connections; they are opened by the first requests.
func Open(endpoint string, conns int) (*Transport, error) {
	t := &Transport{}
	for range conns {
		c, err := Dial(endpoint)
		if err != nil {
			t.Close()
			return nil, err
		}
		t.connections = append(t.connections, c)
	}
	return t, nil
}

// Dial prepares one connection, which takes answers of any size.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	c, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("prepare a connection to %s: %w", endpoint, err)
	}
	return c, nil
}

// Close ends all connections.
func (t *Transport) Close() {
	for _, c := range t.connections {
		// The only error is that it is closed already.
		_ = c.Close()
	}
}

// Drive implements load.Transport with one goroutine for each client.
func (t *Transport) Drive(ctx context.Context, clients int, run *load.Run) {
	var running sync.WaitGroup
	for client := range clients {
		kv := etcdserverpb.NewKVClient(t.connections[client%len(t.connections)])
		running.Go(func() {
			for request, more := run.Ask(client); more; request, more = run.Ask(client) {
				found, err := send(ctx, kv, request)
				if err != nil && ctx.Err() != nil {
					err = load.ErrAbandoned
				}
				run.Done(request, found, err)
			}
		})
	}
	running.Wait()
}

// send tries a request once. found is how many keys there are in the span of a range.
func send(ctx context.Context, kv etcdserverpb.KVClient, r *load.Request) (found int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	put := &etcdserverpb.PutRequest{Key: r.Key, Value: append(r.Head[:len(r.Head):len(r.Head)], r.Value...)}
	switch r.Kind {
	case load.Put:
		_, err := kv.Put(ctx, put)
		return 0, failure(err)
	case load.Txn:
		answer, err := kv.Txn(ctx, &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{{
				Result: etcdserverpb.Compare_GREATER, Target: etcdserverpb.Compare_MOD, Key: r.Key,
				TargetUnion: &etcdserverpb.Compare_ModRevision{},
			}},
			Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}},
		})
		if err == nil && !answer.Succeeded {
			return 0, load.ErrCompareFailed
		}
		return 0, failure(err)
	}
	answer, err := kv.Range(ctx, &etcdserverpb.RangeRequest{
		Key: r.Key, RangeEnd: r.End, Limit: r.Limit, Serializable: r.Serializable, KeysOnly: r.KeysOnly,
		CountOnly: r.CountOnly,
	})
	if err != nil {
		return 0, failure(err)
	}
	return answer.Count, r.CheckCounts(int64(len(answer.Kvs)), answer.Count, answer.More)
}

func failure(err error) error {
	if err == nil {
		return nil
	}
	return &load.CallError{Code: load.Code(status.Code(err)), Unknown: true, Text: err.Error()}
}
