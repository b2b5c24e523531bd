package emulator

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/netns"
)

const (
	maxIfNameBytes = 15 // IFNAMSIZ less the terminating zero
	defaultMTU     = 1500
)

// portSpec is the configuration of a port.
type portSpec struct {
	PID    int     `json:"pid"`
	IfName string  `json:"ifname"`
	MAC    *string `json:"mac"` // nil: derived from the names
	MTU    *int    `json:"mtu"` // nil: defaultMTU
}

// port is a configured port and what runs it. MAC and MTU are given.
type port struct {
	portSpec
	running *loop.Port
	drops   device.Drops // the kernel's counters at the last reset
}

func checkMTU(mtu int) error { return input.Range("mtu", mtu, device.MinMTU, device.MaxMTU) }

// address is the MAC address of a new port, which becomes the text of the spec.
func (e *Emulator) address(name string, spec *portSpec) (net.HardwareAddr, error) {
	if spec.MAC == nil {
		address := e.derive(name, spec.IfName)
		spec.MAC = new(address.String())
		return address, nil
	}
	address, err := net.ParseMAC(*spec.MAC)
	if err != nil || len(address) != 6 || address[0]&1 != 0 || address.String() == "00:00:00:00:00:00" {
		return nil, fmt.Errorf("mac: got %q, allowed: a unicast address such as 02:00:00:00:00:01", *spec.MAC)
	}
	*spec.MAC = address.String()
	if owner := e.ownerOf(*spec.MAC); owner != "" {
		return nil, fmt.Errorf("mac: %s is the address of port %q", *spec.MAC, owner)
	}
	return address, nil
}

// derive derives a stable address from the names of a port: locally administered and unicast (first octet 02), and not
// the address of another port.
func (e *Emulator) derive(name, ifName string) net.HardwareAddr {
	for attempt := 0; ; attempt++ {
		hash := fnv.New64a()
		hash.Write([]byte(name + "\x00" + ifName + "\x00" + strconv.Itoa(attempt)))
		sum := hash.Sum64()
		mac := net.HardwareAddr{0x02, byte(sum >> 32), byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
		if e.ownerOf(mac.String()) == "" {
			return mac
		}
	}
}

// ownerOf is the port with an address, or empty.
func (e *Emulator) ownerOf(mac string) string {
	for name, p := range e.ports {
		if *p.MAC == mac {
			return name
		}
	}
	return ""
}

// addPort creates a TAP in the network namespace of a process and adds it to the fabric as a port. The interface is
// down until it is brought up inside that namespace.
func (e *Emulator) addPort(r struct {
	named
	portSpec
}) (any, int64, error) {
	added := &port{portSpec: r.portSpec}
	if added.MTU == nil {
		added.MTU = new(defaultMTU)
	}
	if err := cmp.Or(
		input.Name("name", r.Name, input.MaxNameBytes),
		input.Name("ifname", r.IfName, maxIfNameBytes),
		input.PID("pid", r.PID),
		checkMTU(*added.MTU),
	); err != nil {
		return nil, 0, err
	}
	if _, taken := e.ports[r.Name]; taken {
		return nil, 0, fmt.Errorf("a port %q exists already", r.Name)
	}
	address, err := e.address(r.Name, &added.portSpec)
	if err != nil {
		return nil, 0, err
	}
	pidfd, err := netns.OpenProcess(r.PID)
	if err != nil {
		return nil, 0, err
	}
	spec := device.TapSpec{
		PID: r.PID, PIDFD: pidfd, IfName: r.IfName, MAC: address, MTU: *added.MTU, Stamps: e.options.Unstamped == "",
		Offload: e.options.Offload,
	}
	tap, err := e.options.OpenTap(spec)
	if err != nil {
		unix.Close(pidfd)
		return nil, 0, err
	}
	died := func(gone unix.Errno, atNS int64) {
		down := event{"port_down", r.Name, fmt.Sprintf("host process %d ended", r.PID), atNS}
		if gone != 0 {
			down.Reason = fmt.Sprintf("interface %s has gone: %v", r.IfName, gone)
		}
		go func() { e.lines <- encode(down) }() // the data thread must not wait for the driver to read
	}
	_, atNS, err := e.do(func(int64) (err error) {
		added.running, err = e.loop.Attach(r.Name, *added.MTU, tap, pidfd, died)
		return err
	})
	if err != nil {
		return nil, 0, errors.Join(err, tap.Close(), unix.Close(pidfd))
	}
	e.ports[r.Name] = added
	return struct {
		portSpec
		TxQueueLen int `json:"tx_queue_len"`
	}{added.portSpec, spec.QueueLen()}, atNS, nil
}

// setPort changes which frames a port takes and passes on. The interface's own MTU is set inside its namespace.
func (e *Emulator) setPort(r struct {
	named
	MTU int `json:"mtu"`
}) (any, int64, error) {
	if err := checkMTU(r.MTU); err != nil {
		return nil, 0, err
	}
	_, atNS, err := e.do(func(int64) error { return e.fabric.SetMTU(r.Name, r.MTU) })
	if err == nil {
		*e.ports[r.Name].MTU = r.MTU
	}
	return nil, atNS, err
}

// removePort removes a port that has no link and waits until the kernel has removed its interface.
func (e *Emulator) removePort(r named) (any, int64, error) {
	p, ok := e.ports[r.Name]
	if !ok {
		return nil, 0, fmt.Errorf("there is no port %q", r.Name)
	}
	_, atNS, err := e.do(func(int64) error { return e.loop.Detach(p.running) })
	if err != nil {
		return nil, 0, err
	}
	<-p.running.Closed()
	delete(e.ports, r.Name)
	return nil, atNS, nil
}

// kernelDrops are the kernel's counters since the last reset.
func (p *port) kernelDrops(alive, reset bool) (device.Drops, error) {
	if !alive {
		return device.Drops{}, errors.New("the interface has gone")
	}
	drops, err := p.running.Device().KernelDrops()
	since := drops.Since(p.drops)
	if err == nil && reset {
		p.drops = drops
	}
	return since, err
}

// maxTracePoints bounds those of all traces together: 256 MiB of memory.
const maxTracePoints = 1 << 24

// addTrace adds a trace, or points to one that more of them were announced for.
func (e *Emulator) addTrace(r struct {
	named
	Kind     model.TraceKind `json:"kind"`
	RepeatNS input.Limit     `json:"repeat_ns"`
	TimesNS  []int64         `json:"times_ns"`
	Values   []int64         `json:"values"`
	More     bool            `json:"more"`
}) (any, int64, error) {
	if err := input.Name("name", r.Name, input.MaxNameBytes); err != nil {
		return nil, 0, err
	}
	if _, taken := e.traces[r.Name]; taken {
		return nil, 0, fmt.Errorf("a trace %q exists already", r.Name)
	}
	trace, err := e.partial, error(nil)
	if e.partial = nil; trace == nil || trace.Name != r.Name {
		trace, err = model.NewTrace(r.Name, r.Kind, int64(r.RepeatNS))
	} else if r.Kind != trace.Kind || int64(r.RepeatNS) != trace.RepeatNS {
		err = fmt.Errorf("kind, repeat_ns: got others, allowed: those that the trace %q began with", r.Name)
	}
	if err == nil {
		err = trace.Add(r.TimesNS, r.Values)
	}
	if err == nil && e.tracePoints()+trace.Points() > maxTracePoints {
		err = fmt.Errorf("times_ns: got too many, allowed: %d points of all traces together", maxTracePoints)
	}
	if err == nil && !r.More {
		err = trace.End()
	}
	switch {
	case err != nil:
		return nil, 0, err
	case r.More:
		e.partial = trace
	default:
		e.traces[r.Name] = trace
	}
	points := trace.Points()
	return struct {
		Points int `json:"points"`
	}{points}, e.loop.Do(func(int64) {}), nil
}

func (e *Emulator) tracePoints() (points int) {
	for _, trace := range e.traces {
		points += trace.Points()
	}
	return points
}

func (e *Emulator) removeTrace(r named) (any, int64, error) {
	trace, err := e.trace("name", &r.Name)
	if err != nil {
		return nil, 0, err
	}
	_, atNS, err := e.do(func(int64) error {
		if e.fabric.Follows(trace) {
			return fmt.Errorf("trace %q is followed by a link: end that first", r.Name)
		}
		return nil
	})
	if err == nil {
		delete(e.traces, r.Name)
	}
	return nil, atNS, err
}

func (e *Emulator) trace(field string, name *string) (*model.Trace, error) {
	if name == nil {
		return nil, nil
	}
	trace, ok := e.traces[*name]
	if !ok {
		return nil, fmt.Errorf("%s: there is no trace %q", field, *name)
	}
	return trace, nil
}

// followed are the traces of one direction, by name.
type followed struct {
	Rate  *string `json:"rate"`
	Delay *string `json:"delay"`
}

// follow has the directions of a link follow traces, and one that is left out follow none.
func (e *Emulator) follow(r struct {
	named
	StartNS *int64   `json:"start_ns"`
	AToB    followed `json:"a_to_b"`
	BToA    followed `json:"b_to_a"`
}) (any, int64, error) {
	var traces [2]model.Traces
	for i, given := range [...]followed{r.AToB, r.BToA} {
		if given == (followed{}) {
			continue
		}
		if r.StartNS == nil {
			return nil, 0, errors.New("start_ns: the field is missing")
		}
		rate, err := e.trace("rate", given.Rate)
		delay, errOfDelay := e.trace("delay", given.Delay)
		if err = cmp.Or(err, errOfDelay); err != nil {
			return nil, 0, fmt.Errorf("%s.%w", fabric.DirectionNames[i], err)
		}
		if err := input.Range("start_ns", *r.StartNS, 0, model.MaxTraceNS); err != nil {
			return nil, 0, err
		}
		traces[i] = model.Traces{Rate: rate, Delay: delay, StartNS: *r.StartNS}
	}
	return e.link(r.Name, func(nowNS int64) error { return e.fabric.Follow(r.Name, traces, nowNS) })
}
