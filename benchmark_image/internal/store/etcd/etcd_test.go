package etcd

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/etcd/wire"
)

// outcome keeps that of a call.
type outcome struct {
	answer  store.Answer
	failure *store.Failure
}

func (o *outcome) Finished(answer *store.Answer, failure *store.Failure) {
	if o.failure = failure; failure == nil {
		o.answer = *answer
	}
}

func TestRequestsDoNotAllocate(t *testing.T) {
	// A PutResponse with member 1<<20, revision 7 and term 3, after gRPC's prefix.
	answer := []byte{0, 0, 0, 0, 10, 0x0a, 8, 0x10, 0x80, 0x80, 0x40, 0x18, 7, 0x20, 3}
	for operation := store.Put; operation <= store.Status; operation++ {
		var got outcome
		var scratch []byte
		var frames bytes.Buffer
		member := etcdtest.NewRaw(&frames, nil)
		conn, call, stream := Protocol{}.NewConn("m:1"), Protocol{}.NewCall(&got), uint32(1)
		assert.OK(t, conn.Feed([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})) // SETTINGS
		r := &store.Request{Operation: operation, Key: []byte("key"), Value: make([]byte, 300), End: []byte("kez")}
		exchange := func() {
			started := conn.Start(call, r, &scratch)
			conn.Wrote(len(conn.Output()))
			frames.Reset()
			err := errors.Join(member.AnswerWith(stream, answer), conn.Feed(frames.Bytes()))
			stream += 2
			if !started || err != nil || got.failure != nil || conn.Active() > 0 { // an assertion allocates
				t.Fatal(err, got.failure)
			}
		}
		for range 3 { // fills the table of fields, and finds the room for it
			exchange()
		}
		n := testing.AllocsPerRun(1000, exchange)
		assert.That(t, n == 0, "operation %d: %v allocations", operation, n)
		want := store.Answer{Member: 1 << 20, Revision: 7, Term: 3}
		assert.That(t, operation != store.Put || got.answer == want, "%+v, want %+v", got.answer, want)
	}
}

func TestTheAddressOfALeader(t *testing.T) {
	list := []wire.Member{
		{ID: 7, Name: "a", ClientURLs: []string{"https://a:1", "unix:///a", "http://a:2", "http://a:3"}},
		{ID: 99, Name: "b", ClientURLs: []string{"https://b:1"}},
		{ID: 8, Name: "c", ClientURLs: []string{"http://c:1"}},
	}
	for id, want := range map[uint64][2]string{ // without TLS, and with it
		7: {"a:2", "a:1"}, 99: {"leader b advertises no address for clients without TLS", "b:1"},
		8:   {"c:1", "leader c advertises no address for clients with TLS"},
		255: {"member id ff) is not in", "is not in the member list"},
	} {
		for i, secure := range []bool{false, true} {
			endpoint, err := advertised(list, id, secure)
			if got := endpoint; err != nil && !strings.Contains(err.Error(), want[i]) || err == nil && got != want[i] {
				t.Errorf("member %d, TLS %v: %q, %v", id, secure, got, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		code store.Code
		text string
		want bool
	}{
		{3, "etcdserver: key is not provided", true},
		{7, "etcdserver: permission denied", true},
		{8, "etcdserver: too many requests", true},
		{8, "etcdserver: mvcc: database space exceeded", false}, // also when the put was applied
		{11, "etcdserver: mvcc: required revision has been compacted", true},
		{4, "context deadline exceeded", false},
		{10, "", false},
		{14, "etcdserver: request timed out", false},
		{14, "etcdserver: leader changed", false},
		{2, "etcdserver: too many requests", false},
		{store.Check, "", false},
		{200, "", false},
	} {
		got := refused(c.code, c.text)
		assert.That(t, got == c.want, "%v: %s: %v, want %v", c.code, c.text, got, c.want)
	}
}
