package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/zookeeper/jute"
)

// step is what an answer that is waited for belongs to.
type step uint8

const (
	stepPut step = iota
	stepTransaction
	stepSync // ahead of stepGet, by the same call
	stepGet
	stepRefuse // a Sync in the place of what a load cannot ask of ZooKeeper
	stepClose
)

// waiter is an answer that is waited for. Answers come in the order of the requests.
type waiter struct {
	call *call  // nil: cancelled
	end  uint64 // of the request, in bytes of output since the connection began
	xid  int32
	step step
}

// tail is a value that is sent from where it is.
type tail struct {
	before int    // bytes of conn.out that leave ahead of it
	value  []byte // what is left of it
	at     uint64 // the request that it belongs to
	copied bool   // it was cancelled since: the connection cannot go on without it
}

const (
	// largeValue is the number of bytes from which on a value is sent from where it is, and not copied: then the copy
	// costs more than a system call of its own.
	largeValue = 16 << 10
	// enoughOutput is the number of bytes waiting to be written from which on no more requests are taken.
	enoughOutput = 256 << 10
	// maxAnswer bounds an answer, in bytes: a member has jute.maxbuffer for what it takes, and that is 1 MiB.
	maxAnswer = 16 << 20
	// maxKept bounds what a connection holds on to between two answers, in bytes.
	maxKept = 64 << 10
	// beatsPerTimeout is how often in the timeout of a session the connection looks whether it has to ping. Idle ones
	// ping after two of these intervals at the latest.
	beatsPerTimeout = 6
)

// conn implements store.Conn and store.Beater.
type conn struct {
	protocol *Protocol
	id       uint64
	interval time.Duration // between two beats; 0: the session is yet to be opened
	broken   bool
	answered bool
	active   int

	xid     int32    // of the next request
	queue   []waiter // a ring, of a length that is a power of two
	first   uint64   // number of the request that is answered next
	next    uint64   // number of the next request
	pings   int      // without an answer
	talking bool     // something was sent since the last beat

	out     []byte
	tails   []tail
	copied  int    // bytes in tails that were cancelled
	queued  uint64 // bytes of output so far
	written uint64 // of these, those that were written

	in   []byte // the beginning of a packet whose rest has not been read yet, but for the hole
	size int    // of the packet with its length; 0: the length is not complete
	got  int    // bytes of it that were read
	hole int    // bytes of data that are not kept
}

func (c *conn) Ready() bool { return c.interval > 0 && !c.broken }

func (c *conn) Active() int { return c.active }

func (c *conn) Answered() bool { return c.answered }

// Closing implements store.Conn: a session ends with its connection.
func (c *conn) Closing() bool { return false }

func (c *conn) Waits() bool { return false }

func (c *conn) Interval() time.Duration { return c.interval }

func (c *conn) Beat() {
	if c.Ready() && !c.talking {
		c.pings++
		c.append(jute.AppendPing(c.out))
	}
	c.talking = false
}

// append takes the output with more at its end.
func (c *conn) append(out []byte) {
	c.queued += uint64(len(out) - len(c.out))
	c.out = out
	c.talking = true
}

func (c *conn) Output() []byte {
	if len(c.tails) == 0 {
		return c.out
	}
	if t := &c.tails[0]; t.before == 0 {
		return t.value
	}
	return c.out[:c.tails[0].before]
}

func (c *conn) Wrote(n int) {
	c.written += uint64(n)
	if len(c.tails) > 0 && c.tails[0].before == 0 {
		t := &c.tails[0]
		if t.copied {
			c.copied -= n
		}
		if t.value = t.value[n:]; len(t.value) == 0 {
			copy(c.tails, c.tails[1:])
			c.tails[len(c.tails)-1] = tail{}
			c.tails = c.tails[:len(c.tails)-1]
		}
		return
	}
	for i := range c.tails {
		c.tails[i].before -= n
	}
	if n == len(c.out) {
		c.out = c.out[:0]
		if cap(c.out) > 4*enoughOutput {
			c.out = nil
		}
		return
	}
	c.out = append(c.out[:0], c.out[n:]...)
}

func (c *conn) Leave(err error) {
	if err == nil && c.Ready() {
		c.send(jute.AppendClose(c.out, c.wait(nil, stepClose)))
		c.broken = true
	}
}

func (c *conn) Start(room store.Call, r *store.Request, _ *[]byte) bool {
	if !c.Ready() || len(c.out)+c.copied >= enoughOutput {
		return false
	}
	to := room.(*call)
	to.answer = store.Answer{Member: c.id}
	to.second, to.visitor = false, nil
	c.active++
	switch r.Operation {
	case store.Put:
		to.key, to.head, to.value, to.hash = r.Key, r.Head, r.Value, hash(r.Key)
		to.operation = jute.Create
		if c.protocol.existence.exists(to.hash) {
			to.operation = jute.SetData
		}
		c.write(to, stepPut)
	case store.Transaction:
		to.key, to.head, to.value, to.hash = r.Key, r.Head, r.Value, hash(r.Key)
		to.operation = jute.SetIfExists
		c.write(to, stepTransaction)
	case store.Get:
		to.key, to.visitor = r.Key, r.Visitor
		if !r.Serializable {
			c.send(jute.AppendSync(c.out, c.wait(to, stepSync)))
		}
		c.send(jute.AppendGet(c.out, c.wait(to, stepGet), c.protocol.chroot, r.Key))
	default:
		c.send(jute.AppendSync(c.out, c.wait(to, stepRefuse)))
	}
	return true
}

func (c *conn) write(to *call, step step) {
	xid := c.wait(to, step)
	out := jute.AppendWrite(c.out, xid, to.operation, c.protocol.chroot, to.key, len(to.head)+len(to.value))
	out = append(out, to.head...)
	if len(to.value) < largeValue {
		out = append(out, to.value...)
	} else {
		c.tails = append(c.tails, tail{before: len(out), value: to.value, at: c.next - 1})
		c.queued += uint64(len(to.value))
	}
	c.send(jute.AppendWriteEnd(out, to.operation))
}

// wait adds an answer to those that are waited for, and gives the number of the request.
func (c *conn) wait(to *call, step step) (xid int32) {
	if c.next-c.first == uint64(len(c.queue)) {
		larger := make([]waiter, 2*len(c.queue))
		for at := c.first; at < c.next; at++ {
			larger[at%uint64(len(larger))] = *c.waiter(at)
		}
		c.queue = larger
	}
	xid = c.xid
	if c.xid++; c.xid <= 0 {
		c.xid = 1
	}
	if to != nil {
		to.at = c.next
	}
	w := c.waiter(c.next)
	w.call, w.xid, w.step = to, xid, step
	c.next++
	return xid
}

// send is append for the end of the last request, and notes where that is.
func (c *conn) send(out []byte) {
	c.append(out)
	c.waiter(c.next - 1).end = c.queued
}

func (c *conn) waiter(at uint64) *waiter { return &c.queue[at&uint64(len(c.queue)-1)] }

// Cancel implements store.Conn. The answer is still waited for.
func (c *conn) Cancel(room store.Call) (unknown bool) {
	to := room.(*call)
	c.waiter(to.at).call = nil
	if to.at > c.first {
		if w := c.waiter(to.at - 1); w.call == to { // the sync ahead of a read
			w.call = nil
		}
	}
	for i := range c.tails {
		if t := &c.tails[i]; t.at == to.at && !t.copied {
			t.value, t.copied = append([]byte(nil), t.value...), true // the caller may use its own for something else now
			c.copied += len(t.value)
		}
	}
	c.over(to)
	return true
}

// over ends what the connection knows of a call.
func (c *conn) over(to *call) {
	c.active--
	to.key, to.head, to.value, to.visitor = nil, nil, nil, nil
}

// Lost implements store.Conn. A request that had not been written completely did not happen.
func (c *conn) Lost(reason string) {
	c.broken = true
	for ; c.first < c.next; c.first++ {
		w := *c.waiter(c.first)
		c.waiter(c.first).call = nil
		if to := w.call; to != nil && to.at == c.first {
			c.over(to)
			to.owner.Finished(nil, &store.Failure{Code: store.Unavailable, Text: reason, Unknown: w.end <= c.written})
		}
	}
	c.tails = nil
}

func (c *conn) EOF() error {
	switch {
	case c.broken:
		return nil
	case c.interval == 0:
		return errors.New("the member closed the connection instead of opening a session: it has no quorum, or too many " +
			"connections from this address (maxClientCnxns)")
	case c.got > 0:
		return errors.New("the member closed the connection within an answer")
	}
	return errors.New("the member closed the connection, and with it the session")
}

func breaks(format string, arguments ...any) error {
	return fmt.Errorf("the member breaks ZooKeeper's protocol: "+format, arguments...)
}

// Feed implements store.Conn. A packet that came as a whole is read where it is.
func (c *conn) Feed(b []byte) error {
	for len(b) > 0 {
		if c.got == 0 && len(b) >= jute.LengthSize {
			size, err := sizeOf(b)
			if err != nil {
				return err
			}
			if size <= len(b) {
				if err := c.take(b[jute.LengthSize:size], 0); err != nil {
					return err
				}
				b = b[size:]
				continue
			}
		}
		var err error
		if b, err = c.collect(b); err != nil {
			return err
		}
	}
	return nil
}

// sizeOf gives the size of the packet that b begins with, and its length.
func sizeOf(b []byte) (int, error) {
	size := int32(binary.BigEndian.Uint32(b))
	if size <= 0 || size > maxAnswer {
		return 0, breaks("a packet of %d bytes", size)
	}
	return int(size) + jute.LengthSize, nil
}

// dataAt is where the data begins in the packet of an answer to a read.
const dataAt = jute.LengthSize + jute.HeaderSize + jute.LengthSize

// collect keeps the part of a packet that b has, and gives what follows. Of a large value without a visitor it keeps
// nothing.
func (c *conn) collect(b []byte) ([]byte, error) {
	if c.size == 0 {
		n := min(jute.LengthSize-c.got, len(b))
		c.in = append(c.in, b[:n]...)
		c.got += n
		if b = b[n:]; c.got < jute.LengthSize {
			return b, nil
		}
		var err error
		if c.size, err = sizeOf(c.in); err != nil {
			return nil, err
		}
		c.hole = 0
		if c.size > maxKept && c.first < c.next {
			if w := c.waiter(c.first); w.step == stepGet && (w.call == nil || w.call.visitor == nil) {
				c.hole = c.size - dataAt - jute.StatSize
			}
		}
	}
	for len(b) > 0 && c.got < c.size {
		until, keep := c.size, true
		if c.hole > 0 && c.got < dataAt+c.hole {
			until = dataAt
			if c.got >= dataAt {
				until, keep = dataAt+c.hole, false
			}
		}
		n := min(until-c.got, len(b))
		if keep {
			c.in = append(c.in, b[:n]...)
		}
		c.got += n
		b = b[n:]
	}
	if c.got < c.size {
		return b, nil
	}
	err := c.take(c.in[jute.LengthSize:], c.hole)
	c.in, c.size, c.got = c.in[:0], 0, 0
	if cap(c.in) > maxKept {
		c.in = nil
	}
	return b, err
}

// take takes a packet, of which hole bytes of the data were not kept.
func (c *conn) take(packet []byte, hole int) error {
	if c.interval == 0 {
		return c.open(packet)
	}
	h, body, err := jute.ReadHeader(packet)
	if err != nil {
		return breaks("%v", err)
	}
	if h.Xid == jute.PingXid {
		if c.pings == 0 {
			return breaks("an answer to a ping that was not sent")
		}
		c.pings--
		return nil
	}
	if c.first == c.next {
		return breaks("an answer to nothing, with xid %d", h.Xid)
	}
	w := *c.waiter(c.first)
	if h.Xid != w.xid {
		return breaks("an answer with xid %d instead of %d", h.Xid, w.xid)
	}
	code := h.Code
	if code == jute.OK {
		if code, err = read(&w, body, hole); err != nil {
			return breaks("%v", err)
		}
	}
	c.waiter(c.first).call = nil
	c.first++
	c.answered = true
	ends := code.EndsSession()
	c.broken = c.broken || ends
	if w.call != nil {
		c.answer(&w, &h, code)
	}
	if ends {
		return errors.New("the member ended the session: " + code.String())
	}
	return nil
}

// open takes the answer to the opening of the session.
func (c *conn) open(packet []byte) error {
	timeout, err := jute.ReadConnect(packet)
	if err != nil {
		return breaks("%v", err)
	}
	if timeout == 0 {
		return errors.New("the member refuses a session")
	}
	c.interval = max(time.Duration(timeout)*time.Millisecond/beatsPerTimeout, time.Millisecond)
	return nil
}
