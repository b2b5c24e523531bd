package zookeeper

import (
	"encoding/binary"
	"errors"
	"time"

	"containernet-env/benchmark_image/internal/store/zookeeper/jute"
)

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

// collect keeps the part of a packet that b has, and gives what follows. Of a large value that nobody looks at it keeps
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
