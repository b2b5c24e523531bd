package zookeeper

import (
	"bytes"
	"testing"

	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
)

// FuzzConn feeds malformed packets, in two pieces, and cancels calls between them. For every input, each call that is
// not cancelled has exactly one outcome, and what is read was in the input.
func FuzzConn(native *testing.F) {
	f := inputtest.F{F: native}
	good := []byte{}
	for xid := int32(1); xid <= 3; xid++ {
		good = append(good, zookeepertest.Answer(xid, zxid, nodeHere, nil)...)
	}
	good = append(good, zookeepertest.Answer(4, zxid, 0, []byte{0, 0, 0, 1, '/'})...)
	good = append(good, zookeepertest.Data(5, zxid, make([]byte, 70_000), 3)...)
	f.Add(good, uint16(20))
	f.Add(good, uint16(130))
	f.Add(zookeepertest.Answer(1, zxid, zookeepertest.SessionExpired, nil), uint16(3))
	f.Add(append(zookeepertest.Answer(-2, zxid, 0, nil), 255, 255, 255, 255), uint16(21))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		c := newClient(t, New(""))
		started, cancelled, more, read := 0, 0, 20, 0
		var got owner
		visitor := visit(func(key, value []byte, _ int64) {
			if read += len(value); string(key) != "k" {
				t.Errorf("a read of %q", key)
			}
		})
		var calls [5]store.Call
		start := func(call store.Call) bool {
			r := &store.Request{Operation: []store.Operation{store.Put, store.Transaction, store.Put, store.Get}[started%4],
				Key: []byte("k"), Value: make([]byte, started%3*10_000), Serializable: started%8 == 3}
			if started%5 == 0 {
				r.Visitor = visitor
			}
			if more <= 0 || !c.conn.Start(call, r, &c.scratch) {
				return false
			}
			more--
			started++
			return true
		}
		got.again = func() {
			start(c.protocol.NewCall(&got))
		}
		active := make(map[int]bool)
		for i := range calls {
			calls[i] = c.protocol.NewCall(&once{&got, func() { delete(active, i) }})
			active[i] = start(calls[i])
		}
		c.conn.(store.Beater).Beat()
		c.conn.(store.Beater).Beat()
		split := min(int(cut), len(b))
		err := c.conn.Feed(b[:split])
		if err == nil {
			c.conn.Wrote(min(len(c.conn.Output()), int(cut)))
			for i := range calls {
				if cut>>i&1 == 1 && active[i] {
					c.conn.Cancel(calls[i])
					cancelled++
					delete(active, i)
				}
			}
			err = c.conn.Feed(b[split:])
		}
		c.conn.Leave(err)
		c.conn.Lost("over")
		if len(got.answers)+len(got.failures)+cancelled != started || c.conn.Active() != 0 {
			t.Errorf("%d calls, %d answers, %d failures, %d cancelled, %d under way", started, len(got.answers),
				len(got.failures), cancelled, c.conn.Active())
		}
		if read > len(b) {
			t.Errorf("values of %d bytes were read from %d", read, len(b))
		}
	})
}

// once tells that a call is over before it tells the owner of all.
type once struct {
	*owner
	over func()
}

// Finished implements store.Owner.
func (o *once) Finished(answer *store.Answer, failure *store.Failure) {
	o.over()
	o.owner.Finished(answer, failure)
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
		if len(c.owner.answers) != 1 || c.owner.answers[0].Keys != 1 || seen && found != int(size) {
			t.Errorf("%+v, %+v, a value of %d bytes", c.owner.answers, c.owner.failures, found)
		}
		if held := cap(c.conn.(*conn).in); held > maxKept {
			t.Errorf("the connection holds on to %d bytes", held)
		}
	})
}
