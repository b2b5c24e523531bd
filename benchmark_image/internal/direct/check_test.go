package direct

import (
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
)

// judge reads an answer as the loop does, in pieces of the given size, and gives what is wrong with it. The second error is
// that of an answer that cannot be read.
func judge(c *client, encoded []byte, piece int, array []byte) (wrong, broken error) {
	kind, _, _ := c.encode(array)
	reader := &c.job.stream.Reader
	reader.Reset(kind)
	for len(encoded) > 0 {
		n := min(piece, len(encoded))
		if err := reader.Feed(encoded[:n]); err != nil {
			return nil, err
		}
		encoded = encoded[n:]
	}
	if err := reader.End(); err != nil {
		return nil, err
	}
	return c.judge(), nil
}

// spans reads of three keys that puts of the same values wrote; written is the answer that holds them.
func spans(t testing.TB, valSize int) (reads *load.Reads, written []byte) {
	values := keys.NewValues(valSize, 1)
	reads = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 1), SpanKeys: 3, Space: 62, Verify: values, Complete: true}
	answer := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 1 << 60, Revision: 9}, Count: 3}
	for i, key := range []string{"0", "1", "2"} {
		answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: values.At(uint64(i))})
	}
	written, err := proto.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return reads, written
}

func TestCheckingASpanDoesNotAllocate(t *testing.T) {
	reads, written := spans(t, 1000)
	var r load.Request
	c := &client{request: &r}
	array := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(1000, func() {
		reads.Target(&r)
		if wrong, broken := judge(c, written, 700, array); wrong != nil || broken != nil {
			t.Fatal(wrong, broken)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzJudge holds that an answer is judged as protobuf's own reader has it, in whatever pieces it comes.
func FuzzJudge(f *testing.F) {
	reads, written := spans(f, 2)
	f.Add(written, uint8(5))
	f.Add([]byte{0x20, 0x03}, uint8(1))
	f.Fuzz(func(t *testing.T, encoded []byte, piece uint8) {
		var r load.Request
		reads.Target(&r)
		wrong, broken := judge(&client{request: &r}, encoded, int(piece)+1, nil)
		var reference etcdserverpb.RangeResponse
		if broken != nil || proto.Unmarshal(encoded, &reference) != nil {
			return
		}
		reads.Target(&r)
		var want error
		for _, kv := range reference.Kvs {
			if want = r.Check(kv.Key, kv.Value); want != nil {
				break
			}
		}
		if want == nil {
			want = r.CheckCounts(int64(len(reference.Kvs)), reference.Count, reference.More)
		}
		if fmt.Sprint(wrong) != fmt.Sprint(want) {
			t.Errorf("%v is judged %v, want %v", &reference, wrong, want)
		}
		if string(encoded) == string(written) && wrong != nil {
			t.Errorf("the right answer is judged %v", wrong)
		}
	})
}
