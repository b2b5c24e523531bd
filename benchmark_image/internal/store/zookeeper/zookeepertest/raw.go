package zookeepertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
)

// Request is what a member reads of a request.
type Request struct {
	Xid, Type int32
	body      []byte
}

// Types of requests.
const (
	create       = 1
	getData      = 4
	setData      = 5
	syncData     = 9
	ping         = 11
	check        = 13
	multi        = 14
	closeSession = -11
)

// Closes tells whether it ends the session.
func (r *Request) Closes() bool { return r.Type == closeSession }

// write is the key and the value of a create or a set; no value: it is neither.
func (r *Request) write() (key string, value []byte) {
	if r.Type != create && r.Type != setData {
		return "", nil
	}
	read := &reader{b: r.body}
	return strings.TrimPrefix(read.text(), "/"), read.buffer()
}

// ReadPacket reads a packet without its length.
func ReadPacket(c io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > 1<<20-1 { // jute.maxbuffer
		return nil, errors.New("a packet that is too large")
	}
	packet := make([]byte, n)
	_, err := io.ReadFull(c, packet)
	return packet, err
}

// ReadRequest reads a request.
func ReadRequest(c io.Reader) (*Request, error) {
	packet, err := ReadPacket(c)
	if err != nil {
		return nil, err
	}
	r := &reader{b: packet}
	request := &Request{Xid: r.int32(), Type: r.int32()}
	request.body = r.b
	return request, nil
}

// Packet gives a packet with its length.
func Packet(content ...[]byte) []byte {
	b := make([]byte, 4)
	for _, part := range content {
		b = append(b, part...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Opened is the answer to the opening of a session with a timeout in ms.
func Opened(timeout int32) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(timeout))
	b = binary.BigEndian.AppendUint64(b, 0x1234)
	b = binary.BigEndian.AppendUint32(b, 16)
	return Packet(b, make([]byte, 16), []byte{0})
}

// Answer is an answer with a body.
func Answer(xid int32, zxid int64, code int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(xid))
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	return Packet(binary.BigEndian.AppendUint32(b, uint32(code)), body)
}

// Written is the good answer to a request to create, set or sync. Znodes keep nothing.
func (r *Request) Written(zxid int64) []byte {
	if r.Type == setData {
		return Answer(r.Xid, zxid, 0, stat(zxid, 0))
	}
	read := &reader{b: r.body}
	return Answer(r.Xid, zxid, 0, text(read.text()))
}

// Greet takes the opening of a session and answers it.
func Greet(c net.Conn) error {
	if _, err := ReadPacket(c); err != nil {
		return err
	}
	_, err := c.Write(Opened(6000))
	return err
}

// RawRequests serves each request of a session with a function, until it says that this was enough.
func RawRequests(serve func(c net.Conn, r *Request) bool) func(net.Conn) {
	return func(c net.Conn) {
		err := Greet(c)
		for err == nil {
			var r *Request
			if r, err = ReadRequest(c); err == nil && !serve(c, r) {
				return
			}
		}
	}
}

// reader reads the fields of a request.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int32() int32   { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) buffer() []byte { return slices.Clone(r.take(int(r.int32()))) }
func (r *reader) text() string   { return string(r.take(int(r.int32()))) }

// header reads that of a part of a transaction.
func (r *reader) header(kind int32) {
	if got, rest := r.int32(), r.take(5); got != kind || rest[0] != 0 {
		panic(fmt.Sprintf("a part of type %d", got))
	}
}

func text(s string) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...) }

// stat is that of a znode with so much data.
func stat(mzxid int64, length int) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 8), uint64(mzxid))
	b = append(b, make([]byte, 36)...)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return append(b, make([]byte, 12)...)
}

// Data is the good answer to a read.
func Data(xid int32, zxid int64, data []byte, mzxid int64) []byte {
	return Answer(xid, zxid, 0, append(text(string(data)), stat(mzxid, len(data))...))
}
