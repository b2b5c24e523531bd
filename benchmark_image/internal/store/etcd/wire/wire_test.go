package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
)

func decode[M proto.Message](t *testing.T, encoded []byte, m M) M {
	t.Helper()
	assert.OK(t, proto.Unmarshal(encoded, m))
	return m
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	return assert.Got(proto.Marshal(m))(t)
}

func TestRequestsAreThoseOfTheAPI(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 20_000} {
		key, value := bytes.Repeat([]byte("k"), size), bytes.Repeat([]byte("v"), size)
		head, rest := value[:size/3], value[size/3:]
		put := decode(t, append(AppendPutHead(nil, key, head, len(rest)), rest...), &etcdserverpb.PutRequest{})
		whole := &etcdserverpb.PutRequest{Key: key, Value: value}
		assert.That(t, proto.Equal(put, whole), "%d bytes: put %v", size, put)
		txn := decode(t, append(AppendRewriteHead(nil, key, head, len(rest)), rest...), &etcdserverpb.TxnRequest{})
		wanted := &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{{
				Result: etcdserverpb.Compare_GREATER, Target: etcdserverpb.Compare_MOD, Key: key,
				TargetUnion: &etcdserverpb.Compare_ModRevision{},
			}},
			Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: whole}}},
		}
		assert.That(t, proto.Equal(txn, wanted), "%d bytes: txn %v", size, txn)
		login := decode(t, AppendAuthenticate(nil, string(key), string(value)), &etcdserverpb.AuthenticateRequest{})
		assert.That(t, login.Name == string(key) && login.Password == string(value), "%d bytes: login %v", size, login)
		for flags := range 8 {
			s := store.Request{Key: key, End: value, Limit: int64(size), Serializable: flags&1 > 0, KeysOnly: flags&2 > 0,
				CountOnly: flags&4 > 0}
			got := decode(t, AppendRange(nil, &s), &etcdserverpb.RangeRequest{})
			want := &etcdserverpb.RangeRequest{Key: key, RangeEnd: value, Limit: s.Limit, Serializable: s.Serializable,
				KeysOnly: s.KeysOnly, CountOnly: s.CountOnly}
			assert.That(t, proto.Equal(got, want), "%+v: range %v", s, got)
		}
	}
}

// read feeds an answer in pieces of the given size.
func read(r *Reader, call Call, encoded []byte, piece int) error {
	r.Reset(call)
	for len(encoded) > 0 {
		n := min(piece, len(encoded))
		if err := r.Feed(encoded[:n]); err != nil {
			return err
		}
		encoded = encoded[n:]
	}
	return r.End()
}

// visited is what a visitor saw.
type visited []string

func (v *visited) Visit(key, value []byte, revision int64) {
	*v = append(*v, string(key), string(value), fmt.Sprint(revision))
}

func TestAnswersInPieces(t *testing.T) {
	header := &etcdserverpb.ResponseHeader{ClusterId: math.MaxUint64, MemberId: math.MaxUint64 - 1, Revision: 1 << 40,
		RaftTerm: 3}
	value := bytes.Repeat([]byte("x"), 300)
	var kvs []*mvccpb.KeyValue
	for i := range int64(3) {
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte("k"), CreateRevision: 5, ModRevision: i << 40, Version: 9,
			Value: value, Lease: -1})
	}
	for _, c := range []struct {
		call    Call
		message proto.Message
		want    store.Answer // without the header
		members []Member
		token   string
	}{
		{Put, &etcdserverpb.PutResponse{Header: header, PrevKv: kvs[0]}, store.Answer{}, nil, ""},
		{Range, &etcdserverpb.RangeResponse{Header: header, Kvs: kvs, More: true, Count: 200},
			store.Answer{Keys: 3, Count: 200, More: true}, nil, ""},
		{Range, &etcdserverpb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{{}, {Key: []byte("k")}}, Count: 2},
			store.Answer{Keys: 2, Count: 2}, nil, ""},
		{Range, &etcdserverpb.RangeResponse{Header: header}, store.Answer{}, nil, ""},
		{Txn, &etcdserverpb.TxnResponse{Header: header, Succeeded: true, Responses: []*etcdserverpb.ResponseOp{{}}},
			store.Answer{Succeeded: true}, nil, ""},
		{Txn, &etcdserverpb.TxnResponse{Header: header}, store.Answer{}, nil, ""},
		{Status, &etcdserverpb.StatusResponse{Header: header, Version: "3.7.3", Leader: math.MaxUint64,
			Errors: []string{"e"}}, store.Answer{Leader: math.MaxUint64}, nil, ""},
		{MemberList, &etcdserverpb.MemberListResponse{Header: header, Members: []*etcdserverpb.Member{
			{ID: 1 << 63, Name: "a", PeerURLs: []string{"http://p:1"}, ClientURLs: []string{"http://c:1", "https://d:2"}},
			{ID: 7, Name: "b", IsLearner: true},
		}}, store.Answer{}, []Member{{1 << 63, "a", []string{"http://c:1", "https://d:2"}}, {7, "b", nil}}, ""},
		{Authenticate, &etcdserverpb.AuthenticateResponse{Header: header, Token: "abc.5"}, store.Answer{}, nil, "abc.5"},
		{Authenticate, &etcdserverpb.AuthenticateResponse{Header: header}, store.Answer{}, nil, ""},
	} {
		if c.call != Authenticate {
			c.want.Member, c.want.Revision, c.want.Term = header.MemberId, header.Revision, header.RaftTerm
		}
		encoded := encode(t, c.message)
		var r Reader
		for piece := 1; piece <= len(encoded); piece++ {
			var seen, want visited
			if c.call == Range {
				r.Visitor = &seen
			}
			err := read(&r, c.call, encoded, piece)
			assert.Must(t, err == nil, "%v in pieces of %d bytes: %v", c.message, piece, err)
			if found, ok := c.message.(*etcdserverpb.RangeResponse); ok {
				for _, kv := range found.Kvs {
					want.Visit(kv.Key, kv.Value, kv.ModRevision)
				}
			}
			assert.Must(t, r.Answer == c.want && slices.Equal(seen, want) && reflect.DeepEqual(r.Members, c.members) &&
				r.Token == c.token, "%v in pieces of %d bytes: %+v, keys and values %q", c.message, piece, r, seen)
		}
		for short := 1; short < len(encoded); short++ {
			var r Reader
			// What is cut off after a field looks complete to every reader.
			broken := proto.Unmarshal(encoded[:short], c.message.ProtoReflect().New().Interface())
			err := read(&r, c.call, encoded[:short], short)
			assert.That(t, (err != nil) == (broken != nil), "%v cut off after %d bytes: %v", c.message, short, err)
		}
	}
	var r Reader
	r.Reset(MemberList)
	problem := r.Feed([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 1})
	assert.That(t, errors.Is(problem, ErrLength), "an answer that is too long: %v", problem)
}

// FuzzReader holds that pieces make no difference, and that what protobuf's own reader accepts is accepted
// with the same figures.
func FuzzReader(native *testing.F) {
	f := inputtest.F{F: native}
	f.Add(encode(f, &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: 9}, Kvs: []*mvccpb.KeyValue{{Key: []byte("k"),
			Value: []byte("v")}}, Count: 1,
	}), uint64(1))
	f.Add([]byte{0x0a, 0x02, 0x18, 0x80}, uint64(2))
	f.Fuzz(func(t *testing.T, encoded []byte, seed uint64) {
		var seenWhole, seenPieces visited
		whole, pieces := Reader{Visitor: &seenWhole}, Reader{Visitor: &seenPieces}
		wholeErr := read(&whole, Range, encoded, max(len(encoded), 1))
		random := rand.New(rand.NewPCG(seed, 0))
		pieces.Reset(Range)
		var err error
		for rest := encoded; len(rest) > 0 && err == nil; {
			n := random.IntN(len(rest)) + 1
			err = pieces.Feed(rest[:n])
			rest = rest[n:]
		}
		if err == nil {
			err = pieces.End()
		}
		assert.Must(t, (err == nil) == (wholeErr == nil), "in one piece: %v, in pieces: %v", wholeErr, err)
		if err != nil {
			return
		}
		assert.Must(t, whole.Answer == pieces.Answer && slices.Equal(seenWhole, seenPieces),
			"in one piece: %+v %q, in pieces: %+v %q", whole.Answer, seenWhole, pieces.Answer, seenPieces)
		var message etcdserverpb.RangeResponse
		if proto.Unmarshal(encoded, &message) != nil {
			return
		}
		var want visited
		for _, kv := range message.Kvs {
			want.Visit(kv.Key, kv.Value, kv.ModRevision)
		}
		assert.Must(t, slices.Equal(seenWhole, want), "%v: keys and values %q", &message, seenWhole)
		assert.Must(t, message.Count == whole.Answer.Count && int64(len(message.Kvs)) == whole.Answer.Keys &&
			message.More == whole.Answer.More && message.GetHeader().GetRevision() == whole.Answer.Revision,
			"%v read as %+v", &message, whole.Answer)
	})
}

type ignore struct{}

func (ignore) Visit(_, _ []byte, _ int64) {}

func TestReadingDoesNotAllocate(t *testing.T) {
	var kvs []*mvccpb.KeyValue
	for i := range 100 {
		kvs = append(kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "key%d", i), Value: make([]byte, 10*i)})
	}
	encoded := encode(t, &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{MemberId: 1 << 60, Revision: 9}, Kvs: kvs, More: true, Count: 1000,
	})
	r := Reader{Visitor: ignore{}}
	if n := testing.AllocsPerRun(100, func() {
		if err := read(&r, Range, encoded, 7); err != nil {
			t.Error(err) // an assertion allocates
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
