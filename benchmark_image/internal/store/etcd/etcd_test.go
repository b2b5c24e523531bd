package etcd

import (
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/etcd/wire"
)

// member answers each request at once, on a connection without a network.
type member struct {
	t               testing.TB
	conn            store.Conn
	call            store.Call
	stream          uint32
	scratch, frames []byte
	answer          store.Answer
	failure         *store.Failure
}

func newMember(t testing.TB) *member {
	m := &member{t: t, conn: Protocol{}.NewConn("m:1"), stream: 1}
	m.call = Protocol{}.NewCall(m)
	if err := m.conn.Feed([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil { // SETTINGS
		t.Fatal(err)
	}
	return m
}

// Finished implements store.Owner.
func (m *member) Finished(answer *store.Answer, failure *store.Failure) {
	if m.failure = failure; failure == nil {
		m.answer = *answer
	}
}

// exchange sends a request and answers it with a message, which has gRPC's prefix.
func (m *member) exchange(r *store.Request, message []byte) {
	assert.Must(m.t, m.conn.Start(m.call, r, &m.scratch), "the connection takes no request")
	m.conn.Wrote(len(m.conn.Output()))
	m.frames = etcdtest.AppendAnswer(m.frames[:0], m.stream, m.stream == 1, message)
	m.stream += 2
	err := m.conn.Feed(m.frames)
	if err != nil || m.failure != nil || m.conn.Active() > 0 { // an assertion allocates
		m.t.Fatal(err, m.failure)
	}
}

// putAnswer is a PutResponse with member 1<<20, revision 7 and term 3.
var putAnswer = []byte{0, 0, 0, 0, 10, 0x0a, 8, 0x10, 0x80, 0x80, 0x40, 0x18, 7, 0x20, 3}

func TestRequestsDoNotAllocate(t *testing.T) {
	key, end, value := []byte("key"), []byte("kez"), make([]byte, 300)
	for operation := store.Put; operation <= store.Status; operation++ {
		m := newMember(t)
		r := &store.Request{Operation: operation, Key: key, Value: value, End: end}
		for range 3 { // fills the table of fields, and finds the room for it
			m.exchange(r, putAnswer)
		}
		if n := testing.AllocsPerRun(1000, func() { m.exchange(r, putAnswer) }); n != 0 {
			t.Errorf("operation %d: %v allocations", operation, n)
		}
		got, want := m.answer, (store.Answer{Member: 1 << 20, Revision: 7, Term: 3})
		assert.That(t, operation != store.Put || got == want, "%+v, want %+v", got, want)
	}
}

func TestTheAddressOfALeader(t *testing.T) {
	list := []wire.Member{
		{ID: 7, Name: "a", ClientURLs: []string{"https://a:1", "unix:///a", "http://a:2", "http://a:3"}},
		{ID: 99, Name: "b", ClientURLs: []string{"https://b:1"}},
	}
	list = append(list, wire.Member{ID: 8, Name: "c", ClientURLs: []string{"http://c:1"}})
	for id, want := range map[uint64][2]string{ // without TLS, and with it
		7: {"a:2", "a:1"}, 99: {"leader b advertises no address for clients without TLS", "b:1"},
		8: {"c:1", "leader c advertises no address for clients with TLS"}, 255: {"member id ff) is not in",
			"is not in the member list"},
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
