package zookeeper

import (
	"testing"

	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/zookeeper/jute"
)

func TestRequestsDoNotAllocate(t *testing.T) {
	for name, r := range steadyRequests() {
		c := newClient(t, New(""))
		exchange := c.exchanges(r)
		for range 20 {
			exchange()
		}
		if n := testing.AllocsPerRun(1000, exchange); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func steadyRequests() map[string]*store.Request {
	key, small, large := []byte("key"), make([]byte, 300), make([]byte, 100_000)
	visitor := visit(func([]byte, []byte, int64) {})
	return map[string]*store.Request{
		"put": {Operation: store.Put, Key: key, Head: small[:20], Value: small}, "large put": {Operation: store.Put, Key: key,
			Value: large},
		"txn": {Operation: store.Transaction, Key: key, Value: small}, "sync+read": {Operation: store.Get, Key: key},
		"read": {Operation: store.Get, Key: key, Serializable: true, Visitor: visitor},
	}
}

// exchanges gives a function that sends a request and answers it.
func (c *client) exchanges(r *store.Request) func() {
	discard := &count{}
	c.owner.answers = make([]store.Answer, 0, 1)
	var frames []byte
	return func() {
		c.owner.answers = c.owner.answers[:0]
		c.start(c.call, r)
		for c.conn.Active() > 0 {
			for len(c.conn.Output()) > 0 {
				c.conn.Wrote(discard.take(c.conn.Output()))
			}
			frames = c.conn.(*conn).reply(frames[:0])
			if err := c.conn.Feed(frames); err != nil || len(c.owner.failures) > 0 {
				c.t.Fatal(err, c.owner.failures)
			}
		}
	}
}

type count struct{ n int }

func (c *count) take(b []byte) int { c.n += len(b); return len(b) }

// reply appends good answers to all that the connection waits for.
func (c *conn) reply(b []byte) []byte {
	var stat [jute.StatSize]byte
	for at := c.first; at < c.next; at++ {
		w := c.waiter(at)
		body := stat[:]
		switch {
		case w.step == stepSync || w.step == stepPut && w.call.operation == jute.Create:
			body = []byte{0, 0, 0, 1, '/'}
		case w.step == stepTransaction:
			body = multiAnswer
		case w.step == stepGet:
			body = dataAnswer
		}
		b = append(b, 0, 0, 0, byte(jute.HeaderSize+len(body)), byte(w.xid>>24), byte(w.xid>>16), byte(w.xid>>8), byte(w.xid))
		b = append(append(b, make([]byte, 12)...), body...)
	}
	return b
}

var (
	dataAnswer  = append([]byte{0, 0, 0, 0}, make([]byte, jute.StatSize)...)
	multiAnswer = append(append([]byte{0, 0, 0, 13, 0, 255, 255, 255, 255, 0, 0, 0, 5, 0, 255, 255, 255, 255},
		make([]byte, jute.StatSize)...), 255, 255, 255, 255, 1, 255, 255, 255, 255)
)
