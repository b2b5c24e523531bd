// Package device is the interface to the kernel: TAP devices.
package device

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/netns"
	"containernet-env/link_emulator/segment"
	"containernet-env/link_emulator/stamp"
)

// Device is a network interface that is read and written one Ethernet frame per call.
//
// Read and Write never block and never allocate. Both are called by one thread only; Close by any thread, after the
// last other call. Read fills buffer with one frame and returns its length; EAGAIN means that there is none now, any
// other errno that the interface has gone. Write takes the whole frame or nothing.
type Device interface {
	FD() int // readable while Read would return a frame or an error other than EAGAIN
	Read(buffer []byte) (int, unix.Errno)
	Write(frame []byte) unix.Errno
	Close() error
	Stamps() *stamp.Ring // of the frames that Read returns; nil: there are none
	KernelDrops() (Drops, error)
	Offload() Offload // reads and writes in place of Read and Write; nil: the device has no offload
}

// Offload is a device whose host leaves checksums and the segmentation of TCP to it, as to a network card; see package
// segment. Its methods are like Device's.
type Offload interface {
	// Read returns what the host sent at once, in buffer, which has room for the longest frame and a header; see
	// segment.Read.
	Read(buffer []byte) (piece segment.Piece, ok bool, errno unix.Errno)
	// Write hands over frames as one: one frame, or partial ones that segment.Continues has accepted.
	Write(frames [][]byte, partial bool) unix.Errno
}

// Drops are the kernel's counters of frames that it dropped.
type Drops struct {
	Queue   uint64 `json:"queue"`   // sent by the host; the TAP's queue was full: the emulator did not read fast enough
	Receive uint64 `json:"receive"` // written by the emulator, not accepted by the host's stack
}

// Since is the difference from an earlier reading.
func (d Drops) Since(earlier Drops) Drops {
	return Drops{Queue: d.Queue - earlier.Queue, Receive: d.Receive - earlier.Receive}
}

// FrameFD is an fd that carries one frame per read and write: a TAP or a socket. It has neither stamps nor counters.
//
// The system calls are raw: the caller is pinned to its thread (see package loop) and the calls do not block, so the Go
// scheduler need not know about them.
type FrameFD int

// FD implements Device.
func (fd FrameFD) FD() int { return int(fd) }

// Read implements Device.
func (fd FrameFD) Read(buffer []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buffer))),
		uintptr(len(buffer)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// Write implements Device.
func (fd FrameFD) Write(frame []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))),
		uintptr(len(frame)))
	return errno
}

// Close implements Device.
func (fd FrameFD) Close() error { return unix.Close(int(fd)) }

// Stamps implements Device.
func (FrameFD) Stamps() *stamp.Ring { return nil }

// KernelDrops implements Device.
func (FrameFD) KernelDrops() (Drops, error) { return Drops{}, nil }

// Offload implements Device.
func (FrameFD) Offload() Offload { return nil }

// pieceFD is an Offload: a TAP with IFF_VNET_HDR.
type pieceFD struct {
	fd    FrameFD
	head  [segment.HeaderBytes + segment.MaxHeaders]byte
	parts [1 + segment.MaxFrames]unix.Iovec
}

// Read implements Offload.
func (o *pieceFD) Read(buffer []byte) (piece segment.Piece, ok bool, errno unix.Errno) {
	n, errno := o.fd.Read(buffer)
	if errno == 0 {
		piece, ok = segment.Read(buffer[:n])
	}
	return piece, ok, errno
}

// Write implements Offload.
func (o *pieceFD) Write(frames [][]byte, partial bool) unix.Errno {
	head, payloadAt := segment.HeaderBytes, 0
	if partial {
		head, payloadAt = segment.Join(o.head[:], frames)
	} else {
		clear(o.head[:segment.HeaderBytes])
	}
	o.parts[0] = part(o.head[:head])
	for i, frame := range frames {
		o.parts[1+i] = part(frame[payloadAt:])
	}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(o.fd), uintptr(unsafe.Pointer(&o.parts)),
		uintptr(1+len(frames)))
	return errno
}

func part(data []byte) unix.Iovec {
	return unix.Iovec{Base: unsafe.SliceData(data), Len: uint64(len(data))}
}

// TxQueueLen is the length of a TAP's queue towards the emulator, in frames. It fills only while the data thread cannot
// read: at 400,000 frames/s it covers 25 ms.
const TxQueueLen = 10_000

// PieceQueueLen is that of a TAP with offload: a frame there may be one of 64 KiB, and 128 MiB are enough.
const PieceQueueLen = 2000

// StampedFrames is how many stamped frames may wait in the queue. Some places are left for cores that stamp frames at
// the same time: a frame that has a stamp must find one.
const StampedFrames = TxQueueLen - 128

// Range of the MTU: the minimum of IPv4 (RFC 791), and the maximum of the tun driver (65535 less the Ethernet header).
const (
	MinMTU = 68
	MaxMTU = 65521
)

// TapSpec is the configuration of a TAP.
type TapSpec struct {
	PID    int    // the interface is created in this process's network namespace
	PIDFD  int    // of the same process; < 0: not checked
	IfName string // 1..15 bytes
	MAC    net.HardwareAddr
	MTU    int
	Stamps bool // the kernel is to stamp the frames; see package stamp
	// The host may hand over several segments of TCP at once, and get them so.
	Offload bool
}

// QueueLen is the length of the TAP's queue.
func (spec TapSpec) QueueLen() int {
	if spec.Offload {
		return PieceQueueLen
	}
	return TxQueueLen
}

// Tap is a TAP interface in some network namespace. It is not persistent: it disappears when the fd is closed. While
// the fd is open, the interface has carrier and its namespace stays alive.
type Tap struct {
	FrameFD
	pid     int
	stamps  *stamp.Ring
	offload Offload
}

// OpenTap creates the interface, which is down until it is brought up. The device node is opened inside the namespace:
// a tun fd belongs to the namespace of the thread that called open().
func OpenTap(spec TapSpec) (*Tap, error) {
	var tap *Tap
	err := netns.Do(spec.PID, spec.PIDFD, func() (err error) {
		tap, err = openHere(spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return tap, nil
}

// openHere creates the interface in the namespace of the calling thread.
func openHere(spec TapSpec) (*Tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	tap := &Tap{FrameFD: FrameFD(fd), pid: spec.PID}
	err = configure(fd, spec)
	if err == nil && spec.Offload {
		tap.offload = &pieceFD{fd: tap.FrameFD}
	}
	if err == nil && spec.Stamps {
		err = tap.stamp() // before the interface is up: no frame is without a stamp
	}
	if err != nil {
		return nil, errors.Join(err, tap.Close())
	}
	return tap, nil
}

func (t *Tap) stamp() (err error) {
	limit := StampedFrames
	if t.offload != nil {
		limit = PieceQueueLen - (TxQueueLen - StampedFrames)
	}
	if t.stamps, err = stamp.Open(limit); err != nil {
		return err
	}
	return t.stamps.Attach(t.FD())
}

// Stamps implements Device.
func (t *Tap) Stamps() *stamp.Ring { return t.stamps }

// Offload implements Device.
func (t *Tap) Offload() Offload { return t.offload }

// Close implements Device. The interface goes first, so that nothing writes to the ring.
func (t *Tap) Close() error {
	err := t.FrameFD.Close()
	if t.stamps != nil {
		err = errors.Join(err, t.stamps.Close())
	}
	return err
}

// configure attaches fd to a new interface.
func configure(fd int, spec TapSpec) error {
	request, err := unix.NewIfreq(spec.IfName)
	if err != nil {
		return fmt.Errorf("ifname: got %q, allowed: 1 to 15 bytes", spec.IfName)
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if spec.Offload {
		flags |= unix.IFF_VNET_HDR
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("interface %q exists already in the namespace of process %d", spec.IfName, spec.PID)
		}
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("the kernel refuses the interface name %q", spec.IfName)
		}
		return fmt.Errorf("create TAP %q in the namespace of process %d: %w", spec.IfName, spec.PID, err)
	}
	if spec.Offload {
		const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
			return fmt.Errorf("let the host of %q leave segmentation to the TAP: %w", spec.IfName, err)
		}
	}
	control, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket to configure %q: %w", spec.IfName, err)
	}
	defer unix.Close(control)
	if err := setMAC(control, spec); err != nil {
		return err
	}
	for _, setting := range [...]struct {
		name    string
		request uint
		value   int
	}{{"MTU", unix.SIOCSIFMTU, spec.MTU}, {"queue length", unix.SIOCSIFTXQLEN, spec.QueueLen()}} {
		request, err := unix.NewIfreq(spec.IfName)
		if err != nil {
			return err
		}
		request.SetUint32(uint32(setting.value))
		if err := unix.IoctlIfreq(control, setting.request, request); err != nil {
			return fmt.Errorf("set the %s of %q to %d: %w", setting.name, spec.IfName, setting.value, err)
		}
	}
	return nil
}

// setMAC: struct ifreq with a sockaddr, which x/sys does not offer (netdevice(7)).
func setMAC(control int, spec TapSpec) error {
	var request struct {
		name   [unix.IFNAMSIZ]byte
		family uint16
		data   [22]byte
	}
	copy(request.name[:], spec.IfName)
	request.family = unix.ARPHRD_ETHER
	copy(request.data[:], spec.MAC)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(control), unix.SIOCSIFHWADDR, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("set the MAC address of %q to %s: %w", spec.IfName, spec.MAC, errno)
	}
	return nil
}

// KernelDrops reads the kernel's counters. The interface is looked up by its current name, so it may have been renamed.
func (t *Tap) KernelDrops() (Drops, error) {
	request, err := unix.NewIfreq("-")
	if err != nil {
		return Drops{}, err
	}
	if err := unix.IoctlIfreq(t.FD(), unix.TUNGETIFF, request); err != nil {
		return Drops{}, fmt.Errorf("get the name of the TAP: %w", err)
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", t.pid))
	if err != nil {
		return Drops{}, fmt.Errorf("read the counters of %q: %w", request.Name(), err)
	}
	return parseDrops(string(table), request.Name())
}

// parseDrops reads the line of an interface in /proc/net/dev. After the colon are 8 columns of receive and 8 of
// transmit, which is from the host to us; "drop" is the fourth of each (Linux net/core/net-procfs.c).
func parseDrops(table, name string) (drops Drops, err error) {
	for line := range strings.Lines(table) {
		found, counters, _ := strings.Cut(line, ":")
		if strings.TrimSpace(found) != name {
			continue
		}
		columns := strings.Fields(counters)
		if len(columns) < 16 {
			return drops, fmt.Errorf("%d columns in /proc/net/dev, want 16", len(columns))
		}
		if _, err := fmt.Sscan(columns[3]+" "+columns[11], &drops.Receive, &drops.Queue); err != nil {
			return drops, fmt.Errorf("/proc/net/dev: %w", err)
		}
		return drops, nil
	}
	return drops, fmt.Errorf("interface %q is not in /proc/net/dev", name)
}

// TestEnd is a device and its host side: frames written to one are read from the other.
type TestEnd struct{ Near, Far Device }

// OpenTestEnds creates two TAPs that are up, each with a packet socket on its interface, in a network namespace of
// their own that disappears when they are closed. stamps: the kernel is to stamp their frames.
func OpenTestEnds(stamps bool) (ends [2]TestEnd, err error) {
	err = netns.New(func() (err error) {
		for i := 0; i < len(ends) && err == nil; i++ {
			ends[i], err = openTestEnd(i, stamps)
		}
		return err
	})
	if err == nil {
		return ends, nil
	}
	for _, end := range ends {
		for _, opened := range [...]Device{end.Near, end.Far} {
			if opened != nil {
				err = errors.Join(err, opened.Close())
			}
		}
	}
	return [2]TestEnd{}, err
}

func openTestEnd(number int, stamps bool) (end TestEnd, err error) {
	spec := TapSpec{IfName: fmt.Sprintf("test%d", number), MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(number + 1)},
		MTU: 1500, Stamps: stamps}
	tap, err := openHere(spec)
	if err != nil {
		return end, err
	}
	end.Near = tap
	const etherType = 0xb588 // local experimental, in network byte order
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, etherType)
	if err != nil {
		return end, fmt.Errorf("open a packet socket: %w", err)
	}
	end.Far = FrameFD(socket)
	request, err := unix.NewIfreq(spec.IfName)
	if err != nil {
		return end, err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return end, fmt.Errorf("bring %q up: %w", spec.IfName, err)
	}
	device, err := net.InterfaceByName(spec.IfName)
	if err != nil {
		return end, err
	}
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: etherType, Ifindex: device.Index}); err != nil {
		return end, fmt.Errorf("bind a packet socket to %q: %w", spec.IfName, err)
	}
	return end, nil
}
