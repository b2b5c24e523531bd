package store_test

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/store/zookeeper"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
)

// calls are what a connection carries out.
type calls struct {
	t          *testing.T
	conn       store.Conn
	operations []store.Operation
	scratch    []byte

	begun, outcomes, cancelled, read int
}

// call is one after the other of them.
type call struct {
	*calls
	room   store.Call
	active bool
}

// start begins one, with a value that has no room in the windows of a connection at times.
func (c *call) start() {
	n := c.begun
	if c.active || n >= 50 {
		return
	}
	c.active = true
	c.active = c.conn.Start(c.room, &store.Request{Operation: c.operations[n%len(c.operations)], Key: []byte("k"),
		Value: make([]byte, n%7*10_000), Serializable: n%8 == 7, Visitor: c}, &c.scratch)
	if c.active {
		c.begun++
	}
}

func (c *call) Finished(answer *store.Answer, failure *store.Failure) {
	assert.That(c.t, c.active && (failure != nil || answer != nil), "a call that is not active ends, or with nothing")
	c.active = false
	c.outcomes++
	c.start()
}

func (c *call) Visit(_, value []byte, _ int64) { c.read += len(value) }

// fuzzConn has a connection carry requests of several sizes, written in part, cancelled and lost as a script says,
// while anything comes. Each request that is not cancelled has exactly one outcome, and what is read was in the input.
func fuzzConn(native *testing.F, protocol store.Protocol, opening []byte, operations []store.Operation,
	seeds ...[]byte) {
	f := inputtest.F{F: native}
	for i, seed := range seeds {
		f.Add(seed, []byte{byte(i), 200, 3, 30, 255, 7, 62, 1, 211})
		f.Add(slices.Repeat(seed, 2), []byte{2, 4, 6, 8, 3, 0})
		f.Add(seed, []byte{115}) // the fourth call is cancelled before anything comes
	}
	f.Fuzz(func(t *testing.T, b, script []byte) {
		all, size := &calls{t: t, conn: protocol.NewConn("m:1"), operations: operations}, len(b)
		conn := all.conn
		assert.OK(t, conn.Feed(opening))
		var each [5]*call
		for i := range each {
			each[i] = &call{calls: all}
			each[i].room = protocol.NewCall(each[i])
		}
		var err error
		for at, step := range append(script, 255, 2) {
			for _, c := range each {
				c.start()
			}
			switch c := each[int(step/4)%len(each)]; step % 4 {
			case 0, 1:
				conn.Wrote(min(len(conn.Output()), 1+int(step)*100))
			case 2:
				n := min(len(b), 1+int(step)*2)
				if at > len(script) {
					n = len(b)
				}
				err = conn.Feed(b[:n])
				b = b[n:]
			case 3:
				if beater, beats := conn.(store.Beater); beats && step < 100 {
					beater.Beat()
				} else if c.active {
					conn.Cancel(c.room)
					c.active = false
					all.cancelled++
				}
			}
			if err != nil {
				break
			}
		}
		if err == nil {
			err = conn.EOF()
		}
		conn.Leave(err)
		conn.Lost("over")
		assert.That(t, all.outcomes+all.cancelled == all.begun && conn.Active() == 0 && all.read <= size,
			"%d requests, %d outcomes, %d cancelled, %d under way; %d bytes of %d were read", all.begun, all.outcomes,
			all.cancelled, conn.Active(), all.read, size)
		begun := all.begun
		each[0].start()
		assert.That(t, all.begun == begun, "a request is started on a connection that is lost")
	})
}

var everything = []store.Operation{store.Put, store.Transaction, store.Put, store.Get}

func FuzzEtcd(f *testing.F) {
	var answers, frames bytes.Buffer
	answering, member := etcdtest.NewRaw(&answers, nil), etcdtest.NewRaw(&frames, nil)
	framer := member.Framer
	assert.OK(f, answering.Answer(1), answering.AnswerWith(3, []byte{0, 0, 0, 0, 2, 0x10, 1}),
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100_000},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}), framer.WriteWindowUpdate(0, 70_000),
		framer.WriteRSTStream(1, http2.ErrCodeRefusedStream), framer.WritePing(false, [8]byte{}),
		member.Refuse(3, "8", ""), framer.WriteGoAway(5, http2.ErrCodeNo, nil))
	fuzzConn(f, etcd.Protocol{}, []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, everything, answers.Bytes(), frames.Bytes())
}

func FuzzZooKeeper(f *testing.F) {
	const zxid = 3<<32 | 7
	answer := zookeepertest.Answer
	var good []byte
	for xid := int32(1); xid <= 3; xid++ {
		good = append(good, answer(xid, zxid, zookeepertest.NodeExists, nil)...)
	}
	throttled := append(slices.Clone(good), answer(4, zxid, zookeepertest.Throttled, nil)...) // a sync before a read
	good = append(good, answer(4, zxid, 0, []byte{0, 0, 0, 1, '/'})...)
	fuzzConn(f, zookeeper.New(""), zookeepertest.Opened(6000), everything, throttled,
		append(good, zookeepertest.Data(5, zxid, make([]byte, 70_000), 3)...),
		answer(1, zxid, zookeepertest.SessionExpired, nil), append(answer(-2, zxid, 0, nil), 255, 255, 255, 255))
}

var answersOfHTTP = [][]byte{
	[]byte("HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: 4\r\n\r\ntrue"),
	[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n02 \r\nlo\r\n0\r\nT: x\r\n\r\n"),
	[]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 ?\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
	[]byte("HTTP/1.0 500 OK\r\n\r\nleadership lost"),
}

func FuzzConsul(f *testing.F) { fuzzConn(f, consul.Protocol{}, nil, everything, answersOfHTTP...) }

func FuzzService(f *testing.F) {
	fuzzConn(f, &keyvalue.Protocol{Put: "/{key}", Get: "/{key}", Written: []int{200}, Found: []int{200},
		Absent: []int{404}}, nil, []store.Operation{store.Put, store.Get}, answersOfHTTP...)
}
