package zookeeper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/zookeeper/jute"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
)

// owner keeps the outcomes of a call.
type owner struct {
	answers  []store.Answer
	failures []store.Failure
	again    func()
}

func (o *owner) Finished(answer *store.Answer, failure *store.Failure) {
	if failure != nil {
		o.failures = append(o.failures, *failure)
	} else {
		o.answers = append(o.answers, *answer)
	}
	if o.again != nil {
		o.again()
	}
}

// client is a connection without a network, and a call on it.
type client struct {
	t        testing.TB
	protocol *Protocol
	conn     store.Conn
	owner    owner
	call     store.Call
	scratch  []byte
}

func newClient(t testing.TB, p *Protocol) *client {
	c := &client{t: t, protocol: p, conn: p.NewConn("m:1")}
	c.call = p.NewCall(&c.owner)
	assert.That(t, !c.conn.Ready(), "a connection is ready before it has a session")
	c.conn.Wrote(len(c.conn.Output()))
	c.feed(zookeepertest.Opened(6000))
	assert.Must(t, c.conn.Ready(), "a connection with a session is not ready")
	return c
}

func (c *client) feed(b []byte) {
	c.t.Helper()
	assert.OK(c.t, c.conn.Feed(b))
}

func (c *client) start(call store.Call, r *store.Request) {
	c.t.Helper()
	assert.Must(c.t, c.conn.Start(call, r, &c.scratch), "the connection takes no request")
}

// requests takes all output.
func (c *client) requests() (all []*zookeepertest.Request) {
	c.t.Helper()
	var out bytes.Buffer
	for len(c.conn.Output()) > 0 {
		n, _ := out.Write(c.conn.Output())
		c.conn.Wrote(n)
	}
	for out.Len() > 0 {
		r := assert.Got(zookeepertest.ReadRequest(&out))(c.t)
		all = append(all, r)
	}
	return all
}

// types are those of requests, as text.
func types(requests []*zookeepertest.Request) string {
	var all []string
	for _, r := range requests {
		all = append(all, fmt.Sprint(r.Type))
	}
	return strings.Join(all, " ")
}

const (
	zxid     = 3<<32 | 7
	noNode   = zookeepertest.NoNode
	nodeHere = zookeepertest.NodeExists
)

func (c *client) refuse(r *zookeepertest.Request, code int32) {
	c.t.Helper()
	c.feed(zookeepertest.Answer(r.Xid, zxid, code, nil))
}

func TestAPutIsACreateOrASet(t *testing.T) {
	c := newClient(t, New(""))
	put := func(key string, refusals ...int32) (sent string) {
		c.start(c.call, &store.Request{Operation: store.Put, Key: []byte(key), Head: []byte("h"), Value: []byte("v")})
		for _, code := range append(refusals, 0) {
			all := c.requests()
			sent += types(all) + " "
			if code != 0 {
				c.refuse(all[0], code)
			} else {
				c.feed(all[0].Written(zxid))
			}
		}
		return strings.TrimSpace(sent)
	}
	for _, step := range []struct {
		key      string
		refusals []int32
		want     string
	}{
		{"a", nil, "1"},
		{"a", nil, "5"},                  // this run wrote it
		{"b", []int32{nodeHere}, "1 5"},  // as before, but it is there
		{"c", nil, "5"},                  // like the last unknown one
		{"d", []int32{noNode}, "5 1"},    // that changes
		{"e", nil, "1"},                  // and again like the last one
		{"c", nil, "5"}, {"d", nil, "5"}, // all were written
		{"e", []int32{noNode}, "5 1"}, // it was deleted
		{"f", []int32{nodeHere}, "1 5"},
	} {
		before := len(c.owner.answers)
		got := put(step.key, step.refusals...)
		assert.That(t, got == step.want, "%s: %s, want %s", step.key, got, step.want)
		want := store.Answer{Revision: zxid, Term: 3, Member: store.MemberID("m:1"), SecondTry: len(step.refusals) > 0}
		assert.That(t, len(c.owner.answers) == before+1 && c.owner.answers[before] == want, "%s: %+v, %v, want %+v",
			step.key, c.owner.answers[before:], c.owner.failures, want)
	}
	// There, and not there: another client writes and deletes.
	c.start(c.call, &store.Request{Operation: store.Put, Key: []byte("a")})
	c.refuse(c.requests()[0], noNode)
	c.refuse(c.requests()[0], nodeHere)
	assert.That(t, len(c.owner.failures) == 1 && c.owner.failures[0].Code == store.AlreadyExists &&
		!c.owner.failures[0].Unknown, "%+v", c.owner.failures)
}

func TestManyKeysAreGuessedByTheLastOnes(t *testing.T) {
	g := &New("").existence
	const total = 4_000_000
	wrong := 0
	for i := range total {
		h := hash(fmt.Appendf(nil, "%08d", i))
		if g.exists(h) {
			wrong++
		}
		g.wrote(h, false)
	}
	assert.That(t, wrong <= 10, "of %d new keys %d were thought to exist", total, wrong)
}

// TestReads: a sync that finds no root is one, and the read decides; one that fails leaves an answer that no call waits
// for.
func TestReads(t *testing.T) {
	c, id := newClient(t, New("")), store.MemberID("m:1")
	found, absent := store.Answer{Keys: 1, Count: 1, Member: id}, store.Answer{Member: id}
	var seen []string
	visitor := visit(func(key, value []byte, revision int64) {
		seen = append(seen, fmt.Sprintf("%s=%s@%d", key, value, revision))
	})
	for i, step := range []struct {
		sent string
		code int32 // of the first answer
		want store.Answer
		seen int
	}{{"9 4", 0, found, 1}, {"4", 0, found, 2}, {"4", noNode, absent, 2}, {"9 4", noNode, found, 3},
		{"9 4", zookeepertest.Throttled, store.Answer{}, 3}} {
		c.owner = owner{}
		c.start(c.call, &store.Request{Operation: store.Get, Key: []byte("k"), Visitor: visitor,
			Serializable: step.sent == "4"})
		all := c.requests()
		last := all[len(all)-1]
		assert.Must(t, types(all) == step.sent, "step %d: it is sent as %s", i, types(all))
		if step.code != 0 {
			c.refuse(all[0], step.code)
		} else if len(all) == 2 {
			c.feed(all[0].Written(zxid))
		}
		assert.That(t, len(c.owner.answers) == 0 || len(all) != 2, "step %d: an answer before the read", i)
		if step.code == 0 || len(all) == 2 {
			c.feed(zookeepertest.Data(last.Xid, zxid, []byte("value"), 5))
		}
		if step.want.Member == 0 {
			f := c.owner.failures
			assert.That(t, len(f) == 1 && f[0].Code == store.ResourceExhausted, "step %d: %+v", i, f)
		} else if !slices.Equal(c.owner.answers, []store.Answer{step.want}) || len(c.owner.failures) > 0 {
			t.Errorf("step %d: %+v, %+v", i, c.owner.answers, c.owner.failures)
		}
		assert.That(t, len(seen) == step.seen && seen[len(seen)-1] == "k=value@5" && c.conn.Active() == 0,
			"step %d: saw %q, %d under way", i, seen, c.conn.Active())
	}
}

type visit func(key, value []byte, revision int64)

func (v visit) Visit(key, value []byte, revision int64) { v(key, value, revision) }

func TestWhatZooKeeperHasNot(t *testing.T) {
	c := newClient(t, New(""))
	for i, operation := range []store.Operation{store.Scan, store.Status, store.Locate, store.Login} {
		c.start(c.call, &store.Request{Operation: operation})
		c.feed(c.requests()[0].Written(zxid))
		f := c.owner.failures
		assert.That(t, len(f) == i+1 && f[i].Code == store.Unimplemented && !f[i].Unknown && len(c.owner.answers) == 0,
			"%+v", f)
	}
}

// TestLargeValuesAreSentFromWhereTheyAre also cancels one half-way: its memory may be used for something else then.
func TestLargeValuesAreSentFromWhereTheyAre(t *testing.T) {
	c := newClient(t, New(""))
	value := bytes.Repeat([]byte("x"), 3*largeValue)
	calls := []store.Call{c.protocol.NewCall(&c.owner), c.protocol.NewCall(&c.owner), c.protocol.NewCall(&c.owner)}
	for i, call := range calls {
		c.start(call, &store.Request{Operation: store.Put, Key: []byte{byte('a' + i)}, Head: []byte("h"), Value: value})
	}
	var out bytes.Buffer
	take := func(n int) {
		n, _ = out.Write(c.conn.Output()[:min(n, len(c.conn.Output()))])
		c.conn.Wrote(n)
	}
	for out.Len() < 100 {
		take(7)
	}
	now := c.conn.Output()
	assert.That(t, &now[len(now)-1] == &value[len(value)-1], "a large value is not sent from where it is")
	assert.That(t, c.conn.Cancel(calls[0]) && c.conn.Cancel(calls[2]), "they may be carried out")
	own := slices.Clone(value)
	for len(c.conn.Output()) > 0 {
		take(5000)
		if out.Len() > 4*largeValue {
			copy(value[:largeValue], own) // of the second it must stay as it is
		}
	}
	for i := range calls {
		r, err := zookeepertest.ReadRequest(&out)
		assert.Must(t, err == nil, "request %d: %v", i, err)
		c.feed(r.Written(zxid))
	}
	assert.That(t, len(c.owner.answers) == 1 && c.conn.Active() == 0 && out.Len() == 0,
		"%+v, %d under way, %d bytes more", c.owner.answers, c.conn.Active(), out.Len())
}

func TestAConnectionTakesSoMuch(t *testing.T) {
	c := newClient(t, New(""))
	r := &store.Request{Operation: store.Put, Key: []byte("k"), Value: make([]byte, largeValue-1)}
	taken := 0
	for c.conn.Start(c.protocol.NewCall(&c.owner), r, &c.scratch) {
		taken++
	}
	assert.That(t, taken >= 16 && taken <= 17, "%d requests of 16 KiB were taken", taken)
	for _, r := range c.requests() {
		c.feed(r.Written(zxid))
	}
	assert.That(t, c.conn.Start(c.call, r, &c.scratch), "the connection takes no request once all was written")
}

func TestBeats(t *testing.T) {
	c := newClient(t, New(""))
	beater := c.conn.(store.Beater)
	assert.That(t, beater.Interval() == time.Second, "an interval of %v for a timeout of 6 s", beater.Interval())
	for range 5 {
		c.start(c.call, &store.Request{Operation: store.Put, Key: []byte("k")})
		c.feed(c.requests()[0].Written(zxid))
		if beater.Beat(); len(c.conn.Output()) > 0 {
			t.Error("a busy connection sends a ping")
		}
	}
	beater.Beat()
	all := c.requests()
	assert.That(t, types(all) == "11" && all[0].Xid == jute.PingXid, "an idle connection sends %q", types(all))
	pong := zookeepertest.Answer(jute.PingXid, zxid, 0, nil)
	first, second := c.conn.Feed(pong), c.conn.Feed(pong)
	assert.That(t, first == nil && second != nil, "the answer to a ping: %v, to none: %v", first, second)
}

func TestKeysAreBelowTheChroot(t *testing.T) {
	c := newClient(t, New("/a/b"))
	for operation, paths := range map[store.Operation]int{store.Put: 1, store.Transaction: 2, store.Get: 1} {
		c.start(c.call, &store.Request{Operation: operation, Key: []byte("k")})
		out := c.conn.Output()
		assert.That(t, bytes.Count(out, []byte("\x00\x00\x00\x06/a/b/k")) == paths, "operation %v: %q", operation, out)
		c.requests()
		c.conn.Cancel(c.call)
	}
}

func TestNumbersOfRequestsGoRound(t *testing.T) {
	p := New("")
	p.FirstXid = math.MaxInt32 - 1
	c := newClient(t, p)
	var got []int32
	for range 4 {
		c.start(c.call, &store.Request{Operation: store.Put, Key: []byte("k")})
		r := c.requests()[0]
		got = append(got, r.Xid)
		c.feed(r.Written(zxid))
	}
	want := []int32{math.MaxInt32 - 1, math.MaxInt32, 1, 2}
	assert.That(t, slices.Equal(got, want) && len(c.owner.answers) == 4, "%v, want %v", got, want)
}

// TestBrokenAnswers says which outcome two puts have, of which one was written, when an answer breaks the protocol.
func TestBrokenAnswers(t *testing.T) {
	const xid = 1
	answer := zookeepertest.Answer
	for _, c := range []struct {
		sent []byte
		want string
	}{
		{answer(xid+1, zxid, 0, nil), "an answer with xid 2 instead of 1"},
		{answer(-1, zxid, 0, nil), "xid -1"}, // of a watch
		{[]byte{1, 0, 0, 1}, "a packet of 16777217 bytes"},
		{[]byte{0, 0, 0, 0}, "a packet of 0 bytes"},
		{[]byte{0x80, 0, 0, 0}, "a packet of -2147483648 bytes"},
		{[]byte{0, 0, 0, 1, 7}, "form"},
		{answer(xid, zxid, 0, nil), "form"},
		{answer(xid, zxid, 0, []byte{0, 0, 0, 1, '/', 'x'}), "form"},
	} {
		o := newClient(t, New(""))
		o.start(o.call, &store.Request{Operation: store.Put, Key: []byte("a")})
		o.requests()
		o.start(o.protocol.NewCall(&o.owner), &store.Request{Operation: store.Put, Key: []byte("b")})
		err := o.conn.Feed(c.sent)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want something with %q", err, c.want)
			continue
		}
		o.conn.Lost(err.Error())
		f := o.owner.failures
		assert.That(t, len(f) == 2 && f[0].Unknown && !f[1].Unknown && f[0].Code == store.Unavailable &&
			o.conn.Active() == 0 && !o.conn.Ready(), "%+v", f)
	}
}

func TestAnEndOfTheSession(t *testing.T) {
	c := newClient(t, New(""))
	c.conn.Leave(nil)
	if all := c.requests(); len(all) != 1 || !all[0].Closes() || c.conn.Start(c.call, &store.Request{}, &c.scratch) {
		t.Errorf("at the end: %q", types(all))
	}
	c = newClient(t, New(""))
	c.conn.Leave(io.ErrUnexpectedEOF)
	assert.That(t, len(c.conn.Output()) == 0, "a broken connection has something to say")
	c = newClient(t, New(""))
	c.start(c.call, &store.Request{Operation: store.Put, Key: []byte("a")})
	c.start(c.protocol.NewCall(&c.owner), &store.Request{Operation: store.Put, Key: []byte("b")})
	c.owner.again = func() {
		assert.That(t, !c.conn.Start(c.protocol.NewCall(&owner{}), &store.Request{Operation: store.Put, Key: []byte("c")},
			&c.scratch), "a request is started in a session that has ended")
	}
	err := c.conn.Feed(zookeepertest.Answer(c.requests()[0].Xid, zxid, zookeepertest.SessionExpired, nil))
	assert.Must(t, err != nil && strings.Contains(err.Error(), "session expired"), "%v", err)
	c.conn.Leave(err)
	c.conn.Lost(err.Error())
	f := c.owner.failures
	assert.That(t, len(f) == 2 && f[0].Code == store.Unavailable && !f[0].Unknown && f[1].Unknown, "%+v", f)
	refused := New("").NewConn("m:1")
	problem := refused.Feed(zookeepertest.Opened(0))
	assert.That(t, problem != nil && !refused.Ready(), "a session that is refused: %v", problem)
	err = New("").NewConn("m:1").EOF()
	assert.That(t, err != nil && strings.Contains(err.Error(), "maxClientCnxns"), "a member that closes at once: %v", err)
}

func TestStatus(t *testing.T) {
	id := store.MemberID("m:1")
	for text, want := range map[string]store.Answer{
		"Zxid: 0x300000007\nMode: leader\nNode count: 5\n":            {Member: id, Leader: id, Revision: zxid, Term: 3},
		"Zxid: 0x5\nMode: standalone\n":                               {Member: id, Leader: id, Revision: 5},
		"Zxid: 0x300000007\nMode: follower\n":                         {Member: id, Revision: zxid, Term: 3},
		"This ZooKeeper instance is not currently serving requests\n": {Member: id},
	} {
		got, err := parseStatus(text, id)
		assert.That(t, err == nil && got == want, "%q: %+v, %v", text, got, err)
	}
	for text, want := range map[string]string{
		"": `answered ""`, "srvr is not executed because it is not in the whitelist.\n": "not in the whitelist",
		"Zxid: x\nMode: leader\n": `zxid is "x"`, "Mode: king\n": "Mode: king",
	} {
		got, err := parseStatus(text, id)
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "%q: %+v, %v", text, got, err)
	}
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.ReadFull(theirs, make([]byte, 4))
		_ = theirs.Close()
	}()
	_, problem := New("").Status(ours, "m:1")
	assert.That(t, problem != nil, "a member that says nothing has a status")
}

func TestRequestsDoNotAllocate(t *testing.T) {
	key, small := []byte("key"), make([]byte, 300)
	stat := make([]byte, jute.StatSize)
	path, data, seen := []byte{0, 0, 0, 1, '/'}, append([]byte{0, 0, 0, 0}, stat...), func([]byte, []byte, int64) {}
	multi := slices.Concat([]byte{0, 0, 0, 13, 0, 255, 255, 255, 255, 0, 0, 0, 5, 0, 255, 255, 255, 255}, stat,
		[]byte{255, 255, 255, 255, 1, 255, 255, 255, 255})
	for name, load := range map[string]struct {
		request store.Request
		answers [][]byte
	}{
		"put":       {store.Request{Operation: store.Put, Key: key, Head: small[:20], Value: small}, [][]byte{stat}},
		"large put": {store.Request{Operation: store.Put, Key: key, Value: make([]byte, 100_000)}, [][]byte{stat}},
		"txn":       {store.Request{Operation: store.Transaction, Key: key, Value: small}, [][]byte{multi}},
		"sync+read": {store.Request{Operation: store.Get, Key: key}, [][]byte{path, data}},
		"read": {store.Request{Operation: store.Get, Key: key, Serializable: true, Visitor: visit(seen)},
			[][]byte{data}},
	} {
		c := newClient(t, New(""))
		c.start(c.call, &store.Request{Operation: store.Put, Key: key}) // from now on the key exists
		c.feed(c.requests()[0].Written(zxid))
		c.owner.answers = make([]store.Answer, 0, 1)
		var frames []byte
		xid := uint32(1)
		exchange := func() {
			c.owner.answers = c.owner.answers[:0]
			started := c.conn.Start(c.call, &load.request, &c.scratch)
			for len(c.conn.Output()) > 0 {
				c.conn.Wrote(len(c.conn.Output()))
			}
			frames = frames[:0]
			for _, body := range load.answers {
				xid++
				frames = binary.BigEndian.AppendUint32(append(frames, 0, 0, 0, byte(jute.HeaderSize+len(body))), xid)
				frames = append(append(frames, make([]byte, jute.HeaderSize-4)...), body...)
			}
			err := c.conn.Feed(frames)
			if !started || err != nil || c.conn.Active() > 0 || len(c.owner.failures) != 0 { // an assertion allocates
				t.Fatal(name, err, c.owner.failures)
			}
		}
		for range 20 {
			exchange()
		}
		n := testing.AllocsPerRun(1000, exchange)
		assert.That(t, n == 0, "%s: %v allocations", name, n)
	}
}

// FuzzPieces feeds good answers in pieces: what is made of them does not depend on where they are cut.
func FuzzPieces(native *testing.F) {
	f := inputtest.F{F: native}
	f.Add(uint32(5), uint32(70_000), true)
	f.Add(uint32(100_000), uint32(90_000), false)
	f.Fuzz(func(t *testing.T, cut, size uint32, seen bool) {
		size %= 200_000
		value := bytes.Repeat([]byte("v"), int(size))
		c := newClient(t, New(""))
		found := -1
		r := &store.Request{Operation: store.Get, Key: []byte("k")}
		if seen {
			r.Visitor = visit(func(_, value []byte, _ int64) { found = len(value) })
		}
		c.start(c.call, r)
		all := c.requests()
		b := append(all[0].Written(zxid), zookeepertest.Data(all[1].Xid, zxid, value, 3)...)
		cut %= uint32(len(b))
		c.feed(b[:cut])
		piece := max(1+int(cut)%70_001, len(b)/100)
		for b = b[cut:]; len(b) > 0; {
			n := min(len(b), piece)
			c.feed(b[:n])
			b = b[n:]
		}
		assert.That(t, len(c.owner.answers) == 1 && c.owner.answers[0].Keys == 1 && (!seen || found == int(size)),
			"%+v, %+v, a value of %d bytes", c.owner.answers, c.owner.failures, found)
		held := cap(c.conn.(*conn).in)
		assert.That(t, held <= maxKept, "the connection holds on to %d bytes", held)
	})
}
