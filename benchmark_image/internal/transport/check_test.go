package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// exchange is one client's requests and their answers on a connection without a network.
type exchange struct {
	client          client
	conn            store.Conn
	stream          uint32
	message, frames []byte
	scratch         []byte
	answer          store.Answer
	failure         *store.Failure
}

func newExchange(t testing.TB, r *load.Request) *exchange {
	e := &exchange{conn: etcd.Protocol{}.NewConn("m:1"),
		client: client{drive: &drive{run: load.NewRun(load.Options{})}, current: r}}
	e.client.job.call = etcd.Protocol{}.NewCall(e)
	if err := e.conn.Feed([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil { // SETTINGS
		t.Fatal(err)
	}
	return e
}

// Finished implements store.Owner.
func (e *exchange) Finished(answer *store.Answer, failure *store.Failure) {
	if e.failure = failure; failure == nil {
		e.answer = *answer
	}
}

// judge sends the request, lets the encoded message answer it, which comes in pieces of the given size, and gives what
// is wrong with the answer. The second error is that of an answer that cannot be read.
func (e *exchange) judge(encoded []byte, piece int) (wrong, broken error) {
	e.failure = nil
	if !e.conn.Start(e.client.job.call, e.client.request(), &e.scratch) {
		return nil, errors.New("the connection takes no request")
	}
	e.conn.Wrote(len(e.conn.Output()))
	e.message = append(binary.BigEndian.AppendUint32(append(e.message[:0], 0), uint32(len(encoded))), encoded...)
	e.frames = etcdtest.AppendAnswer(e.frames[:0], 2*e.stream+1, e.stream == 0, e.message, piece)
	e.stream++
	if err := e.conn.Feed(e.frames); err != nil {
		return nil, err
	}
	if e.failure != nil {
		return nil, errors.New(e.failure.Text)
	}
	if e.conn.Active() > 0 {
		return nil, errors.New("the request is still under way")
	}
	return e.client.judge(&e.answer), nil
}

// spans reads of three keys that puts of the same values wrote; written is the answer that holds them.
func spans(t testing.TB, valSize int) (reads *load.Reads, written []byte) {
	values := keys.NewValues(valSize, 1)
	reads = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 1), SpanKeys: 3, Space: 62, Verify: values,
		Complete: true}
	answer := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 1 << 60, Revision: 9}, Count: 3}
	for i, key := range []string{"0", "1", "2"} {
		answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: values.At(uint64(i))})
	}
	written, err := proto.Marshal(answer)
	must(t, err)
	return reads, written
}

// FuzzJudge holds that an answer is judged as protobuf's own reader has it, in whatever pieces it comes.
func FuzzJudge(f *testing.F) {
	reads, written := spans(f, 2)
	f.Add(written, uint8(5))
	f.Add([]byte{0x20, 0x03}, uint8(1))
	f.Fuzz(func(t *testing.T, encoded []byte, piece uint8) {
		var r load.Request
		reads.Target(&r)
		wrong, broken := newExchange(t, &r).judge(encoded, int(piece)+1)
		var reference etcdserverpb.RangeResponse
		if broken != nil || proto.Unmarshal(encoded, &reference) != nil {
			return
		}
		reads.Target(&r)
		var want error
		for _, kv := range reference.Kvs {
			if want = r.Check(kv.Key, kv.Value, kv.ModRevision); want != nil {
				break
			}
		}
		if want == nil {
			want = r.CheckCounts(int64(len(reference.Kvs)), reference.Count, reference.More)
		}
		if want == nil {
			want = load.NewRun(load.Options{}).CheckRevision(&r, reference.GetHeader().GetRevision(), 0, true)
		}
		if fmt.Sprint(wrong) != fmt.Sprint(want) {
			t.Errorf("%v is judged %v, want %v", &reference, wrong, want)
		}
		if string(encoded) == string(written) && wrong != nil {
			t.Errorf("the right answer is judged %v", wrong)
		}
	})
}
