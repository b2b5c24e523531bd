package simulate

import (
	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/stamp"
)

// Host is a host with the interface that the emulator holds: a device.Device.
type Host struct {
	Name     string
	Port     *loop.Port
	Received func(frame []byte, atNS int64) // called for each frame that it gets; frame is valid during the call
	OnRead   func()                         // called for each frame that is read of it
	Died     loop.Died
	Sent     int    // frames that were sent
	Dropped  uint64 // of them, found no room in the device

	machine *Machine
	fd      int
	stamps  *stamp.Ring
	queue   [][]byte
	free    [][]byte
	gone    bool
}

// AddHost attaches a host to the fabric as a port of its name.
func (m *Machine) AddHost(name string, mtu int) (*Host, error) {
	h := &Host{Name: name, machine: m, fd: len(m.hosts), Received: func([]byte, int64) {},
		OnRead: func() {}, Died: func(unix.Errno, int64) {}}
	if !m.noise.Unstamped {
		h.stamps = stamp.NewInMemory(device.StampedFrames)
	}
	m.hosts = append(m.hosts, h)
	var err error
	h.Port, err = m.Loop.Attach(name, mtu, h, -1,
		func(gone unix.Errno, atNS int64) { h.Died(gone, atNS) })
	return h, err
}

// Send is what the host's stack does at a time, which is that of an event: the frame is stamped and queued, or dropped.
func (h *Host) Send(frame []byte, atNS int64) {
	h.Sent++
	copied := h.copyOf(frame)
	if h.stamps != nil {
		if h.stamps.Unread() >= uint64(h.machine.noise.QueueFrames) || !h.stamps.Put(frame, atNS) {
			h.Dropped++
			return
		}
	} else if len(h.queue) >= h.machine.noise.QueueFrames {
		h.Dropped++
		return
	}
	if ns := h.machine.draw(h.machine.noise.Overtaken); ns > 0 {
		h.machine.At(atNS+ns, func(int64) { h.queue = append(h.queue, copied) })
		return
	}
	h.queue = append(h.queue, copied)
}

// SendUnstamped queues a frame past the stamps.
func (h *Host) SendUnstamped(frame []byte) { h.queue = append(h.queue, h.copyOf(frame)) }

func (h *Host) copyOf(frame []byte) []byte {
	if last := len(h.free) - 1; last >= 0 {
		reused := h.free[last]
		h.free = h.free[:last]
		return append(reused[:0], frame...)
	}
	return append([]byte(nil), frame...)
}

// Remove deletes the host's interface.
func (h *Host) Remove() { h.gone = true }

// Waiting is how many frames wait in the device.
func (h *Host) Waiting() int { return len(h.queue) }

func (h *Host) readable() bool { return h.gone || len(h.queue) > 0 && !h.machine.unread() }

// FD implements device.Device.
func (h *Host) FD() int { return h.fd }

// Stamps implements device.Device.
func (h *Host) Stamps() *stamp.Ring { return h.stamps }

// KernelDrops implements device.Device.
func (h *Host) KernelDrops() (device.Drops, error) { return device.Drops{Queue: h.Dropped}, nil }

// Close implements device.Device.
func (h *Host) Close() error { return nil }

// Read implements device.Device.
func (h *Host) Read(buffer []byte) (int, unix.Errno) {
	h.machine.spend(h.machine.noise.ReadNS)
	h.machine.advance(h.machine.nowNS)
	switch {
	case h.gone:
		return 0, unix.EBADFD
	case !h.readable():
		return 0, unix.EAGAIN
	}
	frame := h.queue[0]
	h.queue = h.queue[1:]
	h.free = append(h.free, frame)
	h.OnRead()
	return copy(buffer, frame), 0
}

// Write implements device.Device: the host gets the frame as the write begins.
func (h *Host) Write(frame []byte) unix.Errno {
	h.machine.advance(h.machine.nowNS)
	h.Received(frame, h.machine.nowNS)
	h.machine.spend(h.machine.noise.WriteNS)
	return 0
}
