// Package framepool stores frames in memory outside the Go heap.
//
// Frames are referred to by reference-counted handles, so a flooded frame is stored once however many links it is on.
// Memory is allocated in chunks of slots of one size, on demand up to a hard limit, and kept until the process ends. A
// share of the limit is reserved for each size. A pool is not safe for concurrent use: it belongs to the thread that
// runs the data path.
package framepool

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Handle names one stored frame: the size class in the top two bits, the slot within the class below them.
type Handle uint32

// MaxFrame is the longest frame that can be stored: the largest MTU of a TAP (65521), the Ethernet header and two
// VLAN tags, rounded up.
const MaxFrame = 66048

const (
	classShift = 30
	slotMask   = 1<<classShift - 1
)

// sizes are the slot sizes. Small frames (ACKs, ARP, heartbeats) have a class of their own, so that a queue of them
// does not take 2 KiB each. The number of slots per chunk is a power of two. A chunk is about 256 KiB: small enough to
// be mapped within tens of microseconds when the pool has to grow while frames are due.
var sizes = [...]struct{ bytes, chunkShift int }{{256, 10}, {2048, 7}, {16384, 4}, {MaxFrame, 2}}

// shares: 1/shares of the limit is reserved for each size, in whole chunks. Memory is never given back, so without this
// a flood of small frames could starve large ones for good.
const shares = 16

// Pool stores frames. Make it with New.
type Pool struct {
	limit   int64
	mapped  int64
	inUse   int
	classes [len(sizes)]class
}

type class struct {
	bytes      int
	chunkShift int
	share      int64 // bytes that are never mapped for another class
	chunks     [][]byte
	free       []uint32 // stack of unused slots
	refs       []int32  // by slot
	owners     []uint32 // by slot
}

// New makes a pool that maps at most limit bytes. It maps reserve bytes of slots for ordinary frames at once, so that
// the first burst does not wait for page faults.
func New(limit, reserve int64) (*Pool, error) {
	p := &Pool{limit: limit}
	for i, s := range sizes {
		chunk := int64(s.bytes) << s.chunkShift
		p.classes[i] = class{bytes: s.bytes, chunkShift: s.chunkShift, share: limit / shares / chunk * chunk}
	}
	ordinary := &p.classes[1]
	for p.mapped < min(reserve, limit) {
		if !p.grow(ordinary) {
			return nil, fmt.Errorf("map frame memory: got %d of %d bytes", p.mapped, reserve)
		}
	}
	return p, nil
}

// Store copies frame into a slot with one reference. owner is a number that Owner returns. It reports false, and stores
// nothing, when no memory is left for the frame's size or the frame is longer than MaxFrame.
func (p *Pool) Store(frame []byte, owner uint32) (Handle, bool) {
	for i := range p.classes {
		c := &p.classes[i]
		if len(frame) > c.bytes {
			continue
		}
		if len(c.free) == 0 && !p.grow(c) {
			return 0, false
		}
		slot := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.refs[slot], c.owners[slot] = 1, owner
		p.inUse++
		if place := c.at(slot); unsafe.SliceData(frame) != unsafe.SliceData(place) { // see Room
			copy(place, frame)
		}
		return Handle(uint32(i)<<classShift | slot), true
	}
	return 0, false
}

// Frame is the first length bytes of a stored frame. It stays valid until the last Release; it must not be written to
// unless by Own.
func (p *Pool) Frame(h Handle, length int) []byte {
	return p.classes[h>>classShift].at(uint32(h) & slotMask)[:length]
}

// Own turns a reference to a stored frame into the only one to a frame with the same first length bytes and owner,
// which may be written to. False, without the reference: no memory is left for a copy.
func (p *Pool) Own(h Handle, length int) (Handle, bool) {
	if p.classes[h>>classShift].refs[h&slotMask] == 1 {
		return h, true
	}
	own, ok := p.Store(p.Frame(h, length), p.Owner(h))
	p.Release(h)
	return own, ok
}

// Room is the slot where the next frame of ordinary size would be stored; nil when none is left. A frame that was read
// into it and is longer than the small slots is stored without a copy, if nothing was stored or released meanwhile;
// otherwise it is copied like any other.
func (p *Pool) Room() []byte {
	c := &p.classes[1]
	if len(c.free) == 0 && !p.grow(c) {
		return nil
	}
	return c.at(c.free[len(c.free)-1])
}

// Owner is the owner given to Store.
func (p *Pool) Owner(h Handle) uint32 { return p.classes[h>>classShift].owners[h&slotMask] }

// SetOwner changes it.
func (p *Pool) SetOwner(h Handle, owner uint32) { p.classes[h>>classShift].owners[h&slotMask] = owner }

// Retain adds a reference.
func (p *Pool) Retain(h Handle) { p.classes[h>>classShift].refs[h&slotMask]++ }

// Release removes a reference; removing the last one frees the slot.
func (p *Pool) Release(h Handle) {
	c := &p.classes[h>>classShift]
	slot := uint32(h) & slotMask
	c.refs[slot]--
	switch {
	case c.refs[slot] == 0:
		c.free = append(c.free, slot)
		p.inUse--
	case c.refs[slot] < 0:
		panic("framepool: a frame was released more often than it was held")
	}
}

// Usage is how many frames are held, how many bytes are mapped for them, and the limit on the latter.
type Usage struct {
	Frames      int   `json:"frames"`
	MappedBytes int64 `json:"mapped_bytes"`
	LimitBytes  int64 `json:"limit_bytes"`
}

// Usage is the pool's current one.
func (p *Pool) Usage() Usage { return Usage{p.inUse, p.mapped, p.limit} }

// Close gives the memory back; no frame may be used afterwards.
func (p *Pool) Close() {
	for i := range p.classes {
		for _, chunk := range p.classes[i].chunks {
			// munmap(2) fails only for ranges that were not mapped.
			_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(chunk))), uintptr(len(chunk)), 0)
		}
	}
	*p = Pool{}
}

func (c *class) at(slot uint32) []byte {
	chunk := c.chunks[slot>>c.chunkShift]
	start := int(slot&(1<<c.chunkShift-1)) * c.bytes
	return chunk[start : start+c.bytes : start+c.bytes]
}

// keptFrom is the part of the other classes' shares that they have not mapped yet.
func (p *Pool) keptFrom(c *class) (bytes int64) {
	for i := range p.classes {
		if other := &p.classes[i]; other != c {
			bytes += max(other.share-int64(len(other.refs))*int64(other.bytes), 0)
		}
	}
	return bytes
}

// grow maps one more chunk for a class. The raw system call is deliberate: the caller is pinned to its thread
// (see package loop) and must not meet the scheduler, nor the mutex inside unix.Mmap.
func (p *Pool) grow(c *class) bool {
	perChunk := 1 << c.chunkShift
	length := perChunk * c.bytes
	if p.mapped+int64(length)+p.keptFrom(c) > p.limit {
		return false
	}
	address, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 0, uintptr(length), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE, ^uintptr(0), 0)
	if errno != 0 {
		return false
	}
	// The pointer is read through its own address because vet cannot know that memory mapped by the kernel, not by Go,
	// never moves.
	chunk := unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), length)
	p.mapped += int64(length)
	first := len(c.chunks) * perChunk
	c.chunks = append(c.chunks, chunk)
	c.refs = append(c.refs, make([]int32, perChunk)...)
	c.owners = append(c.owners, make([]uint32, perChunk)...)
	if cap(c.free) < len(c.refs) {
		c.free = append(make([]uint32, 0, 2*len(c.refs)), c.free...)
	}
	for slot := first + perChunk - 1; slot >= first; slot-- {
		c.free = append(c.free, uint32(slot))
	}
	return true
}
