package etcd

import (
	"bytes"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
)

func TestRequestsReadBackAsTheirMessages(t *testing.T) {
	large := bytes.Repeat([]byte("v"), 70_000)
	for _, r := range []load.Request{
		{Kind: load.Put, Key: []byte("k"), Value: []byte("v")},
		{Kind: load.Put, Key: []byte("k"), Value: large},
		{Kind: load.Put, Key: []byte("k")},
	} {
		var got etcdserverpb.PutRequest
		decode(t, &r, &got)
		want := &etcdserverpb.PutRequest{Key: r.Key, Value: r.Value}
		if !proto.Equal(&got, want) {
			t.Errorf("got %v, want %v", &got, want)
		}
	}
	for _, value := range [][]byte{nil, []byte("v"), large} {
		var got etcdserverpb.TxnRequest
		decode(t, &load.Request{Kind: load.Txn, Key: []byte("k"), Value: value}, &got)
		put := got.Success[0].GetRequestPut()
		if compare := got.Compare[0]; compare.Target != etcdserverpb.Compare_VALUE || string(compare.Key) != "k" || !bytes.Equal(compare.GetValue(), value) ||
			string(put.Key) != "k" || !bytes.Equal(put.Value, value) {
			t.Errorf("got %v", &got)
		}
	}
	for _, r := range []load.Request{
		{Key: []byte("k")},
		{Key: []byte("k"), End: []byte("z"), Limit: 1 << 40, Serializable: true, CountOnly: true, KeysOnly: true},
		{Key: []byte{0}, End: []byte{0}, Serializable: true},
		{Key: []byte("k"), CountOnly: true},
		{Key: []byte("k"), KeysOnly: true},
	} {
		r.Kind = load.Range
		var got etcdserverpb.RangeRequest
		decode(t, &r, &got)
		want := &etcdserverpb.RangeRequest{
			Key: r.Key, RangeEnd: r.End, Limit: r.Limit,
			Serializable: r.Serializable, CountOnly: r.CountOnly, KeysOnly: r.KeysOnly,
		}
		if !proto.Equal(&got, want) {
			t.Errorf("got %v, want %v", &got, want)
		}
	}
}

func decode(t *testing.T, r *load.Request, into proto.Message) {
	t.Helper()
	data, err := codec{}.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data.Materialize(), into); err != nil {
		t.Fatal(err)
	}
	if len(into.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("%v has unknown fields", into)
	}
}

func TestAnswersGiveTheirCount(t *testing.T) {
	kv := &mvccpb.KeyValue{Key: []byte("k"), Value: bytes.Repeat([]byte{0x20}, 1000)}
	for _, c := range []struct {
		message proto.Message
		want    int64
	}{
		{&etcdserverpb.RangeResponse{}, 0},
		{&etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 4, MemberId: 1 << 63}, Kvs: []*mvccpb.KeyValue{kv, kv}, More: true, Count: 12345}, 12345},
		{&etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: 4}}, 0},
	} {
		data, err := proto.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		a := answer{count: 99}
		pieces := mem.BufferSlice{mem.SliceBuffer(data[:len(data)/2]), mem.SliceBuffer(data[len(data)/2:])}
		if err := (codec{}).Unmarshal(pieces, &a); err != nil || a.count != c.want {
			t.Errorf("count %d, error %v, want %d", a.count, err, c.want)
		}
		if len(data) > 10 {
			if err := a.read(data[:len(data)-1]); err == nil {
				t.Error("a cut answer is accepted")
			}
		}
	}
}

// FuzzAnswer holds that what protobuf's own reader accepts is read with the same figures, and judged alike.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0x20, 0x01})
	f.Add([]byte{0x0a, 0xff, 0xff})
	values := keys.NewValues(2, 1)
	reads := &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 1), SpanKeys: 3, Space: 62, Verify: values, Complete: true}
	written := &etcdserverpb.RangeResponse{Count: 3}
	for i, key := range []string{"0", "1", "2"} {
		written.Kvs = append(written.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: values.At(uint64(i))})
	}
	right, err := proto.Marshal(written)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(right)
	f.Fuzz(func(t *testing.T, data []byte) {
		var request load.Request
		reads.Target(&request)
		a := answer{request: &request}
		broken := a.read(data)
		var reference etcdserverpb.RangeResponse
		if proto.Unmarshal(data, &reference) != nil {
			return
		}
		if broken != nil || a.count != reference.Count || a.keys != int64(len(reference.Kvs)) || a.more != reference.More {
			t.Errorf("count %d, %d keys, more %v, error %v, want %v", a.count, a.keys, a.more, broken, &reference)
		}
		var again load.Request
		reads.Target(&again)
		var want error
		for _, kv := range reference.Kvs {
			if want = again.Check(kv.Key, kv.Value); want != nil {
				break
			}
		}
		if want == nil {
			want = again.CheckCounts(int64(len(reference.Kvs)), reference.Count, reference.More)
		}
		if fmt.Sprint(a.wrong) != fmt.Sprint(want) {
			t.Errorf("%v is judged %v, want %v", &reference, a.wrong, want)
		}
		if bytes.Equal(data, right) && a.wrong != nil {
			t.Errorf("the right answer is judged %v", a.wrong)
		}
	})
}
