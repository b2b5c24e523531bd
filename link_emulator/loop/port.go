package loop

import (
	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/stamp"
)

// Port is a device that the loop reads and writes, and the process it belongs to. Its methods must be called on the
// data thread.
type Port struct {
	loop       *Loop
	fabricPort *fabric.Port
	device     device.Device
	pidfd      int // < 0: no process is watched
	died       Died
	closed     chan struct{}
	shut       bool

	stamps  *stamp.Ring    // nil: a frame counts as come when it was read
	offload device.Offload // nil: the device takes one frame at a time
	prompt  bool           // frames end a Doze; see polling

	ended bool
	gone  unix.Errno // of reading the device
}

// Died is called on the data thread when a port has died, at atNS. gone is the errno of reading its interface, or 0
// when its process has ended. It must not block.
type Died func(gone unix.Errno, atNS int64)

// Attach adds a device to the fabric as a new port. It takes ownership of the device and of pidfd (which may be < 0),
// unless it returns an error. When the device disappears, or the process of pidfd ends, the port dies: its device is
// closed and died is called. Must be called inside Do.
func (l *Loop) Attach(name string, mtu int, d device.Device, pidfd int, died Died) (*Port, error) {
	port := &Port{loop: l, device: d, pidfd: pidfd, died: died, closed: make(chan struct{}), stamps: d.Stamps(),
		offload: d.Offload()}
	fabricPort, err := l.fabric.AddPort(name, mtu, port)
	if err != nil {
		return nil, err
	}
	port.fabricPort = fabricPort
	if port.offload != nil {
		fabricPort.TakesPartial()
	}
	err = l.watch(d.FD(), watched{port: port})
	if err == nil && pidfd >= 0 {
		err = l.watch(pidfd, watched{port: port, process: true})
	}
	if err != nil {
		port.unwatch()
		_ = l.fabric.RemovePort(name) // it exists and has no link
		return nil, err
	}
	return port, nil
}

// Detach removes a port, dead or alive, from the fabric and closes its device. It is refused while the port has a link.
// Must be called inside Do.
func (l *Loop) Detach(port *Port) error {
	if err := l.fabric.RemovePort(port.fabricPort.Name()); err != nil {
		return err
	}
	port.close()
	return nil
}

// Closed is closed once the device is closed; only then has the kernel removed a TAP.
func (p *Port) Closed() <-chan struct{} { return p.closed }

// Device that the port was attached with; closed when the port has died.
func (p *Port) Device() device.Device { return p.device }

// arrival is when a frame came that has just been read; not exact: it came no later. truncated: the frame filled its
// buffer.
func (p *Port) arrival(frame []byte, truncated bool) (atNS int64, exact bool) {
	if p.stamps != nil {
		if atNS, ok := p.stamps.Take(frame, truncated); ok {
			return atNS, true
		}
	}
	return p.loop.kernel.Now(), false
}

// release is called after each batch of frames; drained: the device had none left at nowNS.
func (p *Port) release(nowNS int64, drained bool) {
	if p.stamps != nil {
		p.stamps.Release(nowNS, drained)
	}
}

// Deliver implements fabric.Sink. The host gets the frames during the write: its network stack runs in it.
func (p *Port) Deliver(frames [][]byte, partial bool, dueNS int64) (fate fabric.Drop, lateNS int64) {
	lateNS = p.loop.kernel.Now() - dueNS
	var errno unix.Errno
	if p.offload != nil {
		errno = p.offload.Write(frames, partial)
	} else {
		errno = p.device.Write(frames[0])
	}
	switch errno {
	case 0:
		return fabric.Delivered, lateNS
	case unix.EIO: // the interface is down (tun_get_user)
		return fabric.DropDown, lateNS
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		return fabric.DropDevice, lateNS
	}
	return fabric.DropError, lateNS
}

func (l *Loop) portDied(port *Port, nowNS int64) {
	l.fabric.Advance(nowNS)
	l.fabric.PortDied(port.fabricPort, nowNS)
	port.close()
	if port.ended {
		port.gone = 0
	}
	port.died(port.gone, nowNS)
}

// close closes the port's descriptors, once. Closing a TAP waits tens of milliseconds for the kernel to unregister the
// interface, so another thread does it.
func (p *Port) close() {
	if p.shut {
		return
	}
	p.shut = true
	p.unwatch()
	go func() {
		defer close(p.closed)
		_ = p.device.Close() // on an error Linux closes the fd all the same
		if p.pidfd >= 0 {
			_ = unix.Close(p.pidfd)
		}
	}()
}

func (l *Loop) watch(fd int, w watched) error {
	if more := fd + 1 - len(l.watched); more > 0 {
		l.watched = append(l.watched, make([]watched, more)...)
	}
	l.watched[fd] = w
	if err := l.kernel.Watch(fd); err != nil || !w.process {
		return err
	}
	return l.kernel.EndsDoze(fd, true)
}

func (p *Port) unwatch() {
	for _, fd := range [...]int{p.device.FD(), p.pidfd} {
		if fd >= 0 && fd < len(p.loop.watched) && p.loop.watched[fd].port == p {
			p.loop.kernel.Unwatch(fd)
			p.loop.watched[fd] = watched{}
		}
	}
}
