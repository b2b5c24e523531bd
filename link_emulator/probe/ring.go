package probe

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A slot holds the kernel's header (linux/if_packet.h: struct tpacket2_hdr, struct sockaddr_ll, alignment: 66 bytes)
// and the first 62 bytes of a frame. A block is a multiple of the page size.
const (
	slotBytes  = 128
	blockBytes = 1 << 16
	// spareSlots are for the warm-up and for frames that a switch floods.
	spareSlots = 1 << 11
)

// ring receives the frames of one interface: a packet socket with PACKET_RX_RING in the form TPACKET_V2 (packet(7)).
// The kernel stamps each frame as it enters the host's stack, and writes it there without a wake-up of anybody.
type ring struct {
	socket int
	memory []byte
	next   int
}

// openRing must be called in the namespace of the interface; frames is how many are expected.
func openRing(interfaceIndex, frames int) (*ring, error) {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	blocks := (frames+spareSlots)*slotBytes/blockBytes + 1
	request := &unix.TpacketReq{
		Block_size: blockBytes,
		Block_nr:   uint32(blocks),
		Frame_size: slotBytes,
		Frame_nr:   uint32(blocks * (blockBytes / slotBytes)),
	}
	if err := unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return nil, fmt.Errorf("set the version of a packet socket: %w", err)
	}
	if err := unix.SetsockoptTpacketReq(socket, unix.SOL_PACKET, unix.PACKET_RX_RING, request); err != nil {
		return nil, fmt.Errorf("make a ring of %d frames: %w", request.Frame_nr, err)
	}
	size := blocks * blockBytes
	memory, err := unix.Mmap(socket, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a ring of %d bytes: %w", size, err)
	}
	// Only now, so that no frame comes before the ring is there.
	networkOrder := binary.NativeEndian.Uint16([]byte{etherType >> 8, etherType & 0xff})
	address := &unix.SockaddrLinklayer{Protocol: networkOrder, Ifindex: interfaceIndex}
	if err := unix.Bind(socket, address); err != nil {
		return nil, fmt.Errorf("bind a packet socket: %w", err)
	}
	return &ring{socket: socket, memory: memory}, nil
}

// read passes every frame that has come since the last read to got, with its stamp (wall clock, ns).
func (r *ring) read(got func(frame []byte, stampNS int64)) {
	for {
		header := (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.memory[r.next*slotBytes]))
		if atomic.LoadUint32(&header.Status)&unix.TP_STATUS_USER == 0 {
			return
		}
		begin := r.next*slotBytes + int(header.Mac)
		got(r.memory[begin:begin+int(header.Snaplen)], int64(header.Sec)*1e9+int64(header.Nsec))
		atomic.StoreUint32(&header.Status, unix.TP_STATUS_KERNEL)
		r.next = (r.next + 1) % (len(r.memory) / slotBytes)
	}
}

// lost is how many frames found no room in the ring since the last call.
func (r *ring) lost() (int, error) {
	stats, err := unix.GetsockoptTpacketStats(r.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read the counters of a packet socket: %w", err)
	}
	return int(stats.Drops), nil
}
