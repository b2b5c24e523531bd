// Package stamp knows when each frame came to a TAP.
//
// A small BPF program is attached to the TAP. The kernel runs it for each frame that the host sends, on the sender's
// thread, right before the frame enters the TAP's queue. It writes a stamp into a ring that this process has mapped:
// the time (CLOCK_MONOTONIC), the frame's length and a hash of its first bytes. The data thread reads a frame from the
// TAP and takes its stamp from the ring, without a system call.
//
// program.go is the program and what both need of the kernel, this file the ring and how a frame finds its stamp.
package stamp

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
)

// The ring is the one value of a BPF array map: two counters, each in a cache line pair of its own, and the stamps.
const (
	ringBits    = 14
	ringStamps  = 1 << ringBits
	nextOffset  = 0   // uint64: how many stamps the program has begun
	readOffset  = 128 // uint64: how many of them are not needed any more; the only thing that this process writes
	firstOffset = 256 // stamps
	stampBytes  = 16
	ringBytes   = firstOffset + ringStamps*stampBytes
)

// MaxLimit is the most unread stamps that a program may allow. The rest of the ring is room for those of cores that run
// it at the same time.
const MaxLimit = ringStamps - 4096

// entry is one stamp. The mark is written last, so an entry whose mark has the right lap is complete.
type entry struct {
	atNS int64
	mark uint64 // hash of the frame (32 bits), its length (16), lap of the ring (16)
}

// Parts of a mark.
const (
	lapBits    = uint64(1)<<16 - 1
	lengthBits = lapBits << 16
	hashBits   = uint64(0xffffffff) << 32
)

// A hash is of the first hashedBytes of a frame, which hold all headers of TCP over IPv4. A shorter frame is padded
// with zeros. hashFactor is odd, so a step loses nothing (2^64 divided by the golden ratio).
const (
	hashedBytes = 64
	hashFactor  = 0x9e3779b97f4a7c15
)

const (
	// window: a stamp that so many frames have overtaken is given up, and kept aside for its frame. Each core that sends
	// through a TAP at the same moment overtakes a frame between its stamp and the TAP's queue once, or more often while
	// a hypervisor stops the core of that frame.
	window = 64
	// asideMost: so many stamps that were given up are kept, of which each core is in the middle of one at most.
	asideMost = 64
	// lostNS: a stamp that is older than this when the TAP's queue is empty has no frame. From the stamp to the queue a
	// frame takes microseconds, unless a hypervisor stops the core: then up to some 100 ms.
	lostNS = int64(1e9)
)

// Ring holds the stamps of one TAP. The program adds some, Take finds them; all methods but Put belong to one thread.
//
// The program admits a frame only while fewer than limit stamps are unread, and drops it otherwise. The limit is below
// the length of the TAP's own queue, so a stamp is followed by its frame, and none is overwritten before it is read.
// Nearly always the stamp of the next frame is the oldest one in the ring. The exceptions:
//
//   - Frames that several cores send at the same moment may be queued in another order than they were stamped. Take
//     looks further then, and last among the stamps that were given up.
//   - A core that is stopped inside the program while ringStamps other frames are stamped writes into the place of
//     another stamp, which may have the wrong time then. At 500,000 frames/s that is a stop of 33 ms between two
//     instructions.
//   - The kernel can drop a frame after its stamp when it is out of memory. Such a stamp is passed over, and given up.
//   - Frames with the same first bytes and length (or, one in 2^32, the same hash) look the same: they take
//     their stamps in order. That is wrong only together with one of the other exceptions, and then by the time between
//     them.
type Ring struct {
	memory []byte
	next   *uint64
	read   *uint64
	first  *[ringStamps]entry
	limit  uint64

	oldest   uint64 // the oldest stamp that was neither taken nor given up
	taken    uint64 // bit i: stamp oldest+i was taken; bit 0 is never set
	released uint64 // what *read is
	given    uint64 // how many were given up and not taken since
	aside    [asideMost]asideStamp
	asides   uint64 // how many were ever put aside

	program *ebpf.Program // nil: none
}

// asideStamp is a stamp that was given up, whose frame may still come.
type asideStamp struct {
	entry           // mark 0: it was not complete
	position uint64 // in the ring
	some     bool
}

// NewInMemory makes a ring that no program writes to, only Put.
func NewInMemory(limit int) *Ring {
	words := make([]uint64, ringBytes/8)
	return newRing(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), ringBytes), limit)
}

// newRing reads a ring that is in memory, which must be aligned to 8 bytes and all zero.
func newRing(memory []byte, limit int) *Ring {
	if limit < 1 || limit > MaxLimit || len(memory) < ringBytes {
		panic("stamp: wrong size of a ring")
	}
	return &Ring{
		memory: memory,
		next:   (*uint64)(unsafe.Pointer(&memory[nextOffset])),
		read:   (*uint64)(unsafe.Pointer(&memory[readOffset])),
		first:  (*[ringStamps]entry)(unsafe.Pointer(&memory[firstOffset])),
		limit:  uint64(limit),
	}
}

// Take returns when a frame that was just read from the TAP came to it, and removes its stamp. false: the ring has no
// stamp of such a frame. truncated: the frame filled the buffer that it was read into, so it may have been longer.
func (r *Ring) Take(frame []byte, truncated bool) (atNS int64, ok bool) {
	content := contentOf(frame)
	if e := r.at(r.oldest); atomic.LoadUint64(&e.mark) == content|lapOf(r.oldest) {
		atNS = e.atNS
		r.taken |= 1
		r.settle()
		return atNS, true
	}
	compared := hashBits | lengthBits
	if truncated {
		compared = hashBits
	}
	atNS, ok = r.take(content, compared)
	if !ok && isTagged(frame) {
		atNS, ok = r.take(contentOf(untag(frame)), compared)
	}
	if !ok && r.complete(r.oldest) {
		// Every frame has had a stamp, so it is another one now. Its stamp is likely the oldest, and must not stay for
		// ever.
		r.giveUp(r.oldest + 1)
	}
	return atNS, ok
}

// take is Take for a content, of which the compared bits must be equal.
func (r *Ring) take(content, compared uint64) (atNS int64, ok bool) {
	position, ok := r.search(content, compared)
	if !ok {
		return r.takeAside(content, compared)
	}
	atNS = r.at(position).atNS
	if position-r.oldest >= window {
		r.giveUp(position - window + 1)
	}
	r.taken |= 1 << (position - r.oldest)
	r.settle()
	return atNS, true
}

// takeAside takes a stamp that was given up.
func (r *Ring) takeAside(content, compared uint64) (atNS int64, ok bool) {
	for i := range r.aside {
		s := &r.aside[i]
		if s.some && s.mark == 0 && r.complete(s.position) {
			s.mark, s.atNS = atomic.LoadUint64(&r.at(s.position).mark), r.at(s.position).atNS
		}
		if s.some && s.mark != 0 && (s.mark^content)&compared == 0 {
			s.some = false
			r.given--
			return s.atNS, true
		}
	}
	return 0, false
}

// Release lets the program reuse what was taken. Call it after each batch of frames. drained: the TAP's queue was empty
// at nowNS.
func (r *Ring) Release(nowNS int64, drained bool) {
	for drained && r.complete(r.oldest) && r.at(r.oldest).atNS < nowNS-lostNS {
		r.giveUp(r.oldest + 1)
	}
	if r.released != r.oldest {
		r.released = r.oldest
		atomic.StoreUint64(r.read, r.oldest)
	}
}

// GivenUp is how many stamps turned out to have no frame.
func (r *Ring) GivenUp() uint64 { return r.given }

// Unread is how many stamps may not be overwritten yet.
func (r *Ring) Unread() uint64 { return atomic.LoadUint64(r.next) - atomic.LoadUint64(r.read) }

// Put does what the program does: it stamps a frame, or refuses it when the limit is reached. For simulation and tests.
func (r *Ring) Put(frame []byte, atNS int64) (admitted bool) {
	if r.Unread() >= r.limit {
		return false
	}
	r.write(r.reserve(), frame, atNS)
	return true
}

func (r *Ring) reserve() (position uint64) { return atomic.AddUint64(r.next, 1) - 1 }

func (r *Ring) write(position uint64, frame []byte, atNS int64) {
	e := r.at(position)
	e.atNS = atNS
	atomic.StoreUint64(&e.mark, contentOf(frame)|lapOf(position))
}

func (r *Ring) at(position uint64) *entry { return &r.first[position%ringStamps] }

// complete: a stamp of an earlier lap, or one that is being written, has another lap in its mark.
func (r *Ring) complete(position uint64) bool {
	return atomic.LoadUint64(&r.at(position).mark)&lapBits == lapOf(position)
}

// search finds the oldest stamp of a content; compared are the bits of the mark that must be equal. The stamp of a
// frame that has been read is complete: the program ran before the frame entered the queue.
func (r *Ring) search(content, compared uint64) (position uint64, ok bool) {
	end := atomic.LoadUint64(r.next)
	for position = r.oldest; position != end; position++ {
		if ahead := position - r.oldest; ahead < window && r.taken>>ahead&1 == 1 {
			continue
		}
		mark := atomic.LoadUint64(&r.at(position).mark)
		if mark&lapBits == lapOf(position) && (mark^content)&compared == 0 {
			return position, true
		}
	}
	return 0, false
}

// giveUp puts all stamps before end aside that were not taken. The latest ones are kept.
func (r *Ring) giveUp(end uint64) {
	for position := r.oldest; position != end; position++ {
		if ahead := position - r.oldest; ahead < window && r.taken>>ahead&1 == 1 {
			continue
		}
		s := asideStamp{position: position, some: true}
		if r.complete(position) {
			s.mark, s.atNS = atomic.LoadUint64(&r.at(position).mark), r.at(position).atNS
		}
		r.aside[r.asides%asideMost] = s
		r.asides++
		r.given++
	}
	r.taken >>= end - r.oldest
	r.oldest = end
	r.settle()
}

// settle moves oldest past the stamps that were taken.
func (r *Ring) settle() {
	count := bits.TrailingZeros64(^r.taken)
	r.taken >>= count
	r.oldest += uint64(count)
}

// lapOf is never that of memory which was not written yet until the 65,535th lap.
func lapOf(position uint64) uint64 { return (position/ringStamps + 1) & lapBits }

// contentOf is the mark of a frame without a lap.
func contentOf(frame []byte) uint64 {
	header := frame
	if len(frame) < hashedBytes {
		var padded [hashedBytes]byte
		copy(padded[:], frame)
		header = padded[:]
	}
	hash := uint64(0)
	for i := 0; i < hashedBytes; i += 8 {
		hash = (hash ^ binary.NativeEndian.Uint64(header[i:])) * hashFactor
		hash ^= hash >> 32 // else the last bits of a word would reach few bits of the result
	}
	return hash&hashBits | uint64(len(frame))<<16&lengthBits
}

// A VLAN interface on a TAP hands the tag to the driver beside the frame. The program does not see it; the driver puts
// it into the frame when it is read (tun_put_user).
const (
	addressesBytes = 12
	tagBytes       = 4
)

func isTagged(frame []byte) bool {
	if len(frame) < addressesBytes+tagBytes {
		return false
	}
	kind := binary.BigEndian.Uint16(frame[addressesBytes:])
	return kind == 0x8100 || kind == 0x88a8 // IEEE 802.1Q
}

// untag is the frame without its tag. It allocates: such frames are rare.
func untag(frame []byte) []byte {
	return append(append(make([]byte, 0, len(frame)), frame[:addressesBytes]...), frame[addressesBytes+tagBytes:]...)
}
