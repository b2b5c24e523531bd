//go:build plumbing

package client

import (
	"context"
	"math"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
)

// throughGRPC carries a load through grpc-go and etcd's generated API: nothing of it is shared with the
// programs' own client.
type throughGRPC []*grpc.ClientConn

// dialGRPC prepares a connection, which takes answers of any size.
func dialGRPC(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	assert.OK(t, err)
	t.Cleanup(func() { _ = c.Close() }) // the only error is that it is closed already
	return c
}

// Drive implements load.Transport with one goroutine for each client.
func (t throughGRPC) Drive(ctx context.Context, clients int, run *load.Run) {
	var running sync.WaitGroup
	for client := range clients {
		kv := etcdserverpb.NewKVClient(t[client%len(t)])
		running.Go(func() {
			for request, more := run.Ask(client); more; request, more = run.Ask(client) {
				found, err := sendGRPC(ctx, kv, request)
				if err != nil && ctx.Err() != nil {
					err = load.ErrAbandoned
				}
				run.Done(request, found, err)
			}
		})
	}
	running.Wait()
}

// sendGRPC tries a request once. found is how many keys there are in the span of a range.
func sendGRPC(ctx context.Context, kv etcdserverpb.KVClient, r *load.Request) (found int64, err error) {
	put := &etcdserverpb.PutRequest{Key: r.Key, Value: append(r.Head[:len(r.Head):len(r.Head)], r.Value...)}
	switch r.Kind {
	case load.Put:
		_, err := kv.Put(ctx, put)
		return 0, failureOfGRPC(err)
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
		return 0, failureOfGRPC(err)
	}
	answer, err := kv.Range(ctx, &etcdserverpb.RangeRequest{
		Key: r.Key, RangeEnd: r.End, Limit: r.Limit, Serializable: r.Serializable, KeysOnly: r.KeysOnly,
		CountOnly: r.CountOnly,
	})
	if err != nil {
		return 0, failureOfGRPC(err)
	}
	return answer.Count, r.CheckCounts(int64(len(answer.Kvs)), answer.Count, answer.More)
}

func failureOfGRPC(err error) error {
	if err == nil {
		return nil
	}
	return &store.Failure{Code: store.Code(status.Code(err)), Unknown: true, Text: err.Error()}
}
