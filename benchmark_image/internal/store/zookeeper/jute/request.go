// Package jute writes the few requests of ZooKeeper's wire protocol that a load consists of, and reads from the answers
// what a load has to know. Numbers are those of ZooKeeper's zookeeper.jute and ZooDefs.java: integers are big-endian,
// and a text or a buffer has its length in front.
package jute

import "encoding/binary"

// Operation is the type of a request.
type Operation int32

const (
	Create       Operation = 1
	GetData      Operation = 4
	SetData      Operation = 5
	Sync         Operation = 9
	ping         Operation = 11
	check        Operation = 13
	multi        Operation = 14
	closeSession Operation = -11

	// SetIfExists is a multi of two: a check that the znode exists, and SetData.
	SetIfExists = multi
)

// PingXid is the number of every ping and of its answer.
const PingXid = -2

// anyVersion lets a write or a check be for whatever version the znode has.
const anyVersion = -1

// all permits everything to everybody: a list of one entry.
var all = appendText(appendText(append32(append32(nil, 1), 31), "world"), "anyone")

// end of a multi: the header behind its last part.
var end = append32(append(append32(nil, -1), 1), -1)

// Ends of requests, behind the data that they write.
var (
	endOfCreate = append32(all, 0) // a znode that stays, without a number
	endOfSet    = append32(nil, anyVersion)
	endOfMulti  = append(append32(nil, anyVersion), end...)
)

// AppendConnect appends the packet that opens a new session, which is to end when the member has heard nothing for
// timeout, in ms.
func AppendConnect(b []byte, timeout int32) []byte {
	const password = 16
	start := len(b)
	b = append32(append64(append32(begin(b), 0), 0), timeout) // protocol version and the last zxid that was seen
	b = append32(append64(b, 0), password)
	b = append(b, make([]byte, password)...)
	return finish(append(b, 0), start, 0) // not read-only
}

func AppendPing(b []byte) []byte { return finish(header(b, PingXid, ping), len(b), 0) }

// AppendClose appends the request that ends the session.
func AppendClose(b []byte, xid int32) []byte { return finish(header(b, xid, closeSession), len(b), 0) }

// AppendSync appends a request that is answered once the member has all that the leader had committed when it got it.
func AppendSync(b []byte, xid int32) []byte {
	return finish(appendText(header(b, xid, Sync), "/"), len(b), 0)
}

// AppendGet appends a request for the data of a key's znode below chroot, without a watch.
func AppendGet(b []byte, xid int32, chroot string, key []byte) []byte {
	return finish(append(appendPath(header(b, xid, GetData), chroot, key), 0), len(b), 0)
}

// AppendWrite appends a Create, SetData or SetIfExists of a key below chroot, up to where its data begins, of which
// there are size bytes: these must follow, and then AppendWriteEnd.
func AppendWrite(b []byte, xid int32, operation Operation, chroot string, key []byte, size int) []byte {
	start := len(b)
	b = header(b, xid, operation)
	if operation == SetIfExists {
		b = append32(appendPath(part(b, check), chroot, key), anyVersion)
		b = part(b, SetData)
	}
	b = append32(appendPath(b, chroot, key), int32(size))
	return finish(b, start, size+len(endOf(operation)))
}

// AppendWriteEnd appends what follows the data of an AppendWrite.
func AppendWriteEnd(b []byte, operation Operation) []byte { return append(b, endOf(operation)...) }

func endOf(operation Operation) []byte {
	switch operation {
	case Create:
		return endOfCreate
	case SetIfExists:
		return endOfMulti
	}
	return endOfSet
}

// part appends the header of a part of a multi.
func part(b []byte, operation Operation) []byte {
	return append32(append(append32(b, int32(operation)), 0), -1)
}

// header appends the length of a packet, which finish fills in, and the header of a request.
func header(b []byte, xid int32, operation Operation) []byte {
	return append32(append32(begin(b), xid), int32(operation))
}

func begin(b []byte) []byte { return append(b, 0, 0, 0, 0) }

// finish fills in the length of the packet that begins at start, of which the last rest bytes are yet to follow.
func finish(b []byte, start, rest int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4+rest))
	return b
}

func append32(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }
func append64(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func appendText(b []byte, text string) []byte { return append(append32(b, int32(len(text))), text...) }

// reserved is the one name below the root that is ZooKeeper's own.
const reserved = "zookeeper"

// plain has the bytes that stand for themselves in the name of a znode: printable ASCII without the slash, which
// separates names, and without the percent sign. ZooKeeper refuses control characters, and some of what is beyond ASCII
// (PathUtils.validatePath).
var plain = func() (set [256]bool) {
	for c := ' '; c <= '~'; c++ {
		set[c] = c != '/' && c != '%'
	}
	return set
}()

// appendPath appends the path of a key's znode, with its length in front: the path of the znode that all of them are
// below (nothing for the root), a slash and the key, of which every byte that is not plain is a percent sign and two
// hexadecimal digits. Of the keys '.', '..' and 'zookeeper' the first byte is escaped too: these names have a meaning
// of their own.
func appendPath(b []byte, chroot string, key []byte) []byte {
	start := len(b)
	b = append(append(append(b, 0, 0, 0, 0), chroot...), '/')
	const digits = "0123456789ABCDEF"
	special := string(key) == "." || string(key) == ".." || string(key) == reserved
	for _, c := range key {
		if plain[c] && !special {
			b = append(b, c)
			continue
		}
		b = append(b, '%', digits[c>>4], digits[c&15])
		special = false
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}
