package simulate

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/segment"
	"containernet-env/link_emulator/stamp"
)

// Noise is what the machine does to the emulator. Durations and times are in ns; times count from Disturb.
type Noise struct {
	NowNS       int64  `json:"now_ns"`       // what reading the clock takes; it must take some time
	ReadNS      int64  `json:"read_ns"`      // what reading a frame takes
	WriteNS     int64  `json:"write_ns"`     // what writing one takes
	PollNS      int64  `json:"poll_ns"`      // what a wait takes that ends at once
	WakeNS      int64  `json:"wake_ns"`      // what a wake-up takes, from a half of this to one and a half
	LateWake    Chance `json:"late_wake"`    // a wake-up takes so much longer
	Stalls      []Span `json:"stalls"`       // the process does not run
	Unread      []Span `json:"unread"`       // reads find no frame
	Overtaken   Chance `json:"overtaken"`    // from its stamp to the device's queue a frame takes so long; others go ahead
	QueueFrames int    `json:"queue_frames"` // how many frames may wait in a device
	Unstamped   bool   `json:"unstamped"`    // no frame has a stamp
	Offload     bool   `json:"offload"`      // hosts may hand over several segments of TCP at once
}

// Chance is what happens with a probability, and takes up to NS then, each duration as likely.
type Chance struct {
	Ratio float64 `json:"ratio"`
	NS    int64   `json:"ns"`
}

// Span is from when to when something lasts.
type Span struct {
	FromNS int64 `json:"from_ns"`
	ToNS   int64 `json:"to_ns"`
}

// Quiet is the noise of an idle machine.
func Quiet() Noise {
	return Noise{NowNS: 60, ReadNS: 900, WriteNS: 1100, PollNS: 400, WakeNS: 6000, QueueFrames: device.StampedFrames}
}

// check refuses what cannot be simulated.
func (n Noise) check() error {
	return cmp.Or(
		input.Range("noise.now_ns", n.NowNS, 1, maxNS), // else a loop that busy-waits would wait for ever
		input.Range("noise.read_ns", n.ReadNS, 0, maxNS),
		input.Range("noise.write_ns", n.WriteNS, 0, maxNS),
		input.Range("noise.poll_ns", n.PollNS, 0, maxNS),
		input.Range("noise.wake_ns", n.WakeNS, 0, maxNS),
		input.Range("noise.late_wake.ns", n.LateWake.NS, 0, maxNS),
		input.Range("noise.overtaken.ns", n.Overtaken.NS, 0, maxNS),
		input.Range("noise.queue_frames", n.QueueFrames, 1, device.StampedFrames),
	)
}

// maxNS bounds every duration of a noise.
const maxNS = int64(10e9)

// emulatorBytes is what the emulator has for frames, mapped as it is needed.
const emulatorBytes = int64(512 << 20)

// startNS is the time at which a machine begins: 0 has a meaning of its own for the timer.
const startNS = int64(1e9)

type event struct {
	atNS int64
	do   func(atNS int64)
}

// Machine is a machine in simulated time: the kernel and the devices of a loop, whose own turns run on it. What a busy
// machine does to the emulator is Noise. The same calls, noise and seed give the same run, to the nanosecond. Make it
// with NewMachine.
type Machine struct {
	Fabric *fabric.Fabric
	Loop   *loop.Loop
	pool   *framepool.Pool

	noise    Noise
	originNS int64 // of the times of the noise
	random   *rand.Rand
	nowNS    int64   // where the data thread is
	events   []event // by time
	stall    int     // the next stall

	watched  []*Host
	hosts    []*Host // by the descriptors of their devices
	timerNS  int64
	expired  bool // and reported
	woken    bool
	switches int64
	idle     bool // nothing is going to happen any more
}

// NewMachine makes a quiet machine without hosts.
func NewMachine(seed uint64) (*Machine, error) {
	pool, err := framepool.New(emulatorBytes, 0)
	if err != nil {
		return nil, err
	}
	m := &Machine{pool: pool, Fabric: fabric.New(pool), noise: Quiet(), random: rand.New(rand.NewPCG(seed, 0)),
		nowNS: startNS}
	m.Loop = loop.NewOn(m, m.Fabric)
	return m, nil
}

// Close frees the memory of the frames.
func (m *Machine) Close() { m.pool.Close() }

// Disturb changes the noise from now on.
func (m *Machine) Disturb(noise Noise) {
	m.noise, m.originNS, m.stall = noise, m.nowNS, 0
	for _, span := range noise.Unread {
		m.At(m.originNS+span.ToNS, func(int64) {})
	}
}

// NowNS is the time.
func (m *Machine) NowNS() int64 { return m.nowNS }

// At has do run at a time, on another core than the data thread.
func (m *Machine) At(atNS int64, do func(atNS int64)) {
	// Of two events at a time the first that was added is the first.
	i, _ := slices.BinarySearchFunc(m.events, atNS+1, func(e event, atNS int64) int { return cmp.Compare(e.atNS, atNS) })
	m.events = slices.Insert(m.events, i, event{atNS, do})
}

// Run lets the loop run until a time, or until nothing is going to happen any more.
func (m *Machine) Run(untilNS int64) error {
	m.idle = false
	for m.nowNS < untilNS && !m.idle {
		if err := m.Loop.Step(); err != nil {
			return err
		}
	}
	return nil
}

// advance lets happen what happens up to a time.
func (m *Machine) advance(toNS int64) {
	for len(m.events) > 0 && m.events[0].atNS <= toNS {
		next := m.events[0]
		m.events = m.events[1:]
		next.do(next.atNS)
	}
}

// spend is time of the data thread; a stall that begins in it ends first.
func (m *Machine) spend(ns int64) {
	m.nowNS += ns
	for m.stall < len(m.noise.Stalls) && m.nowNS >= m.originNS+m.noise.Stalls[m.stall].FromNS {
		m.nowNS = max(m.nowNS, m.originNS+m.noise.Stalls[m.stall].ToNS)
		m.stall++
	}
}

// draw is 0, or the duration of what happens by chance.
func (m *Machine) draw(c Chance) int64 {
	if c.Ratio == 0 || m.random.Float64() >= c.Ratio {
		return 0
	}
	return m.random.Int64N(c.NS + 1)
}

func (m *Machine) unread() bool {
	for _, span := range m.noise.Unread {
		if at := m.nowNS - m.originNS; at >= span.FromNS && at < span.ToNS {
			return true
		}
	}
	return false
}

var _ loop.Kernel = (*Machine)(nil)

// Now implements loop.Kernel: it takes time; NowNS does not.
func (m *Machine) Now() int64 {
	m.spend(m.noise.NowNS)
	return m.nowNS
}

// Sleep implements loop.Kernel.
func (m *Machine) Sleep(ns int64) {
	m.switches++
	m.spend(ns + m.wakeUp())
}

// Doze implements loop.Kernel.
func (m *Machine) Doze(ns int64) (woken bool) {
	m.spend(m.noise.PollNS)
	m.advance(m.nowNS)
	m.switches++
	for untilNS := m.nowNS + ns; !m.endOfDoze() && m.nowNS < untilNS; m.advance(m.nowNS) {
		nextNS := untilNS
		if len(m.events) > 0 {
			nextNS = min(nextNS, m.events[0].atNS)
		}
		m.nowNS = max(m.nowNS, nextNS)
	}
	woken = m.endOfDoze()
	m.spend(m.wakeUp())
	m.advance(m.nowNS)
	return woken
}

func (m *Machine) endOfDoze() bool {
	return m.woken || slices.ContainsFunc(m.watched, func(h *Host) bool { return h.endsDoze && h.readable() })
}

func (m *Machine) wakeUp() int64 {
	return m.noise.WakeNS/2 + m.random.Int64N(m.noise.WakeNS+1) + m.draw(m.noise.LateWake)
}

// Wait implements loop.Kernel.
func (m *Machine) Wait(events []unix.EpollEvent, timeoutMS int, _ bool) (int, unix.Errno) {
	m.spend(m.noise.PollNS)
	m.advance(m.nowNS)
	if n := m.ready(events); n > 0 || timeoutMS == 0 {
		return n, 0
	}
	m.switches++
	for !m.anyReady() {
		nextNS := m.timerNS
		if len(m.events) > 0 && (nextNS == 0 || m.expired || m.events[0].atNS < nextNS) {
			nextNS = m.events[0].atNS
		} else if nextNS == 0 || m.expired {
			m.idle = true
			return 0, unix.EINTR
		}
		m.nowNS = max(m.nowNS, nextNS)
		m.advance(m.nowNS)
	}
	m.spend(m.wakeUp())
	m.advance(m.nowNS)
	return m.ready(events), 0
}

func (m *Machine) timerExpired() bool { return m.timerNS != 0 && !m.expired && m.timerNS <= m.nowNS }

func (m *Machine) anyReady() bool {
	return m.woken || m.timerExpired() || slices.ContainsFunc(m.watched, (*Host).readable)
}

// ready fills events. The timer and Wake are reported once.
func (m *Machine) ready(events []unix.EpollEvent) int {
	ready := events[:0]
	if m.timerExpired() {
		m.expired = true
		ready = append(ready, unix.EpollEvent{Fd: loop.TimerExpired})
	}
	if m.woken {
		m.woken = false
		ready = append(ready, unix.EpollEvent{Fd: loop.Woken})
	}
	for _, h := range m.watched {
		if len(ready) < len(events) && h.readable() {
			ready = append(ready, unix.EpollEvent{Fd: int32(h.fd)})
		}
	}
	return len(ready)
}

// Arm implements loop.Kernel.
func (m *Machine) Arm(atNS int64) unix.Errno {
	m.spend(m.noise.PollNS)
	m.timerNS, m.expired = atNS, false
	return 0
}

// Switches implements loop.Kernel.
func (m *Machine) Switches() int64 { return m.switches }

// Wake implements loop.Kernel.
func (m *Machine) Wake() { m.woken = true }

// Watch implements loop.Kernel.
func (m *Machine) Watch(fd int) error {
	m.watched = append(m.watched, m.hosts[fd])
	return nil
}

// EndsDoze implements loop.Kernel.
func (m *Machine) EndsDoze(fd int, ends bool) error {
	m.hosts[fd].endsDoze = ends
	return nil
}

// Unwatch implements loop.Kernel.
func (m *Machine) Unwatch(fd int) {
	m.watched = slices.DeleteFunc(m.watched, func(h *Host) bool { return h.fd == fd })
}

// Host is a host with the interface that the emulator holds: a device.Device.
type Host struct {
	Name     string
	Port     *loop.Port
	Received func(frame []byte, atNS int64) // called for each frame that it gets; frame is valid during the call
	OnRead   func()                         // called for each frame that is read of it
	Died     loop.Died
	Dropped  uint64 // frames that were sent and found no room in the device

	machine *Machine
	fd      int
	stamps  *stamp.Ring
	queue   [][]byte
	free    [][]byte
	gone    bool

	endsDoze bool
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
	h.Port, err = m.Loop.Attach(name, mtu, h, -1, func(gone unix.Errno, atNS int64) { h.Died(gone, atNS) })
	return h, err
}

// pieceOfTCP begins the header of a piece that is to be split.
var pieceOfTCP = []byte{1, 1}

// Send is what the host's stack does at a time, which is that of an event: the frame is stamped and queued, or dropped.
func (h *Host) Send(frame []byte, atNS int64) {
	copied := h.copyOf(frame)
	held := len(h.queue)
	if h.stamps != nil {
		held = int(h.stamps.Unread())
	}
	if held >= h.machine.noise.QueueFrames || h.stamps != nil && !h.stamps.Put(frame, atNS) {
		h.Dropped++
		return
	}
	if ns := h.machine.draw(h.machine.noise.Overtaken); ns > 0 {
		h.machine.At(atNS+ns, func(int64) { h.queue = append(h.queue, copied) })
		return
	}
	h.queue = append(h.queue, copied)
}

// SendPiece is Send of what a TAP with offload hands over at once, a header and a frame.
func (h *Host) SendPiece(data []byte, atNS int64) {
	if h.stamps == nil || h.stamps.Put(data[segment.HeaderBytes:], atNS) {
		h.queue = append(h.queue, h.copyOf(data))
	}
}

// SendUnstamped queues a frame past the stamps.
func (h *Host) SendUnstamped(frame []byte) { h.queue = append(h.queue, h.copyOf(frame)) }

func (h *Host) copyOf(frame []byte) []byte {
	if h.machine.noise.Offload && !bytes.HasPrefix(frame, pieceOfTCP) {
		frame = append(make([]byte, segment.HeaderBytes), frame...) // a header that says nothing
	}
	if last := len(h.free) - 1; last >= 0 {
		reused := h.free[last]
		h.free = h.free[:last]
		return append(reused[:0], frame...)
	}
	return append([]byte(nil), frame...)
}

// Remove deletes the host's interface.
func (h *Host) Remove() { h.gone = true }

func (h *Host) readable() bool { return h.gone || len(h.queue) > 0 && !h.machine.unread() }

// FD implements device.Device.
func (h *Host) FD() int { return h.fd }

// Stamps implements device.Device.
func (h *Host) Stamps() *stamp.Ring { return h.stamps }

// Offload implements device.Device.
func (h *Host) Offload() device.Offload {
	if h.machine.noise.Offload {
		return pieces{h}
	}
	return nil
}

// pieces is a host with offload.
type pieces struct{ *Host }

// Read implements device.Offload.
func (p pieces) Read(buffer []byte) (piece segment.Piece, ok bool, errno unix.Errno) {
	n, errno := p.Host.Read(buffer)
	if errno == 0 {
		piece, ok = segment.Read(buffer[:n])
	}
	return piece, ok, errno
}

// Write implements device.Offload: the host gets the frames at once, as the write begins.
func (p pieces) Write(frames [][]byte, partial bool) unix.Errno {
	p.machine.advance(p.machine.nowNS)
	for _, frame := range frames {
		if partial {
			frame = bytes.Clone(frame)
			segment.Complete(frame)
		}
		p.Received(frame, p.machine.nowNS)
	}
	p.machine.spend(p.machine.noise.WriteNS)
	return 0
}

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
