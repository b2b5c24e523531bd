// Package emulator is the running emulator: the fabric, the loop that moves its frames, and the devices at its ports.
// Its methods are what the control protocol offers. They may be called from one goroutine at a time.
package emulator

import (
	"fmt"
	"net"
	"runtime/metrics"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/netns"
	"containernet-env/link_emulator/stamp"
)

// Default sizes of the frame memory: the limit covers 2 s of one link at 1 Gbit/s; the reserve is mapped at start.
const (
	DefaultBufferBytes = int64(512 << 20)
	reserveBytes       = int64(16 << 20)
)

// defaultMTU is that of the self-test's interfaces.
const defaultMTU = 1500

// collectBytes is the heap size from which garbage is collected between requests. Frames are not on the heap.
const collectBytes = 64 << 20

// PortDown is the event that the host or the interface of a port has gone.
type PortDown struct {
	Port   string
	Reason string
	AtNS   int64
}

// Options of Start. Zero values are the defaults.
type Options struct {
	BufferBytes int64
	Core        *int // the only core of the data thread; default: any
	// why the kernel shall not stamp frames; empty: it shall, if it can
	Unstamped   string
	CheckStamps func() error                                 // whether it can; default: stamp.Check
	OpenTap     func(device.TapSpec) (device.Device, error)  // default: a TAP of the kernel
	OpenTest    func(stamps bool) ([2]device.TestEnd, error) // for the self-test; default: TAPs of the kernel
	PortDown    func(PortDown)                               // called on the data thread: it must not block
	Failed      func(error)                                  // called, at most once, when the data path cannot go on
}

// Emulator is a running emulator. Make it with Start.
type Emulator struct {
	fabric    *fabric.Fabric
	loop      *loop.Loop
	pool      *framepool.Pool
	grant     loop.Grant
	unstamped string
	selfTest  SelfTest
	openTap   func(device.TapSpec) (device.Device, error)
	down      func(PortDown)
	ports     map[string]*port
}

// port is a configured port and what runs it.
type port struct {
	PortSpec
	running *loop.Port
	drops   device.Drops // the kernel's counters at the last reset
}

// PortSpec is the configuration of a port.
type PortSpec struct {
	Name   string
	PID    int
	IfName string
	MAC    net.HardwareAddr // nil: derived from Name and IfName
	MTU    int
}

// Start maps the frame memory, tries the kernel's stamps, starts the data thread and runs the self-test: about 100 ms.
// A failed self-test is not an error here; see SelfTest.
func Start(options Options) (*Emulator, error) {
	if options.BufferBytes == 0 {
		options.BufferBytes = DefaultBufferBytes
	}
	if options.OpenTap == nil {
		options.OpenTap = func(spec device.TapSpec) (device.Device, error) { return device.OpenTap(spec) }
	}
	if options.OpenTest == nil {
		options.OpenTest = device.OpenTestEnds
	}
	if options.CheckStamps == nil {
		options.CheckStamps = stamp.Check
	}
	if options.Unstamped == "" {
		if err := options.CheckStamps(); err != nil {
			options.Unstamped = err.Error()
		}
	}
	pool, err := framepool.New(options.BufferBytes, min(reserveBytes, options.BufferBytes/4))
	if err != nil {
		return nil, err
	}
	e := &Emulator{
		fabric:    fabric.New(pool),
		pool:      pool,
		unstamped: options.Unstamped,
		openTap:   options.OpenTap,
		down:      options.PortDown,
		ports:     map[string]*port{},
	}
	if e.loop, err = loop.New(e.fabric, options.Failed); err != nil {
		return nil, err
	}
	e.loop.Core = options.Core
	if e.grant, err = e.loop.Start(); err != nil {
		return nil, err
	}
	e.selfTest = e.runSelfTest(options.OpenTest)
	return e, nil
}

// Stop ends the data thread and frees the frame memory. It does not close devices: they are closed when the process
// ends.
func (e *Emulator) Stop() {
	e.loop.Stop()
	e.pool.Close()
}

// Core is the only core of the data thread; nil: any.
func (e *Emulator) Core() *int { return e.loop.Core }

// Grant is what the kernel granted the data thread.
func (e *Emulator) Grant() loop.Grant { return e.grant }

// Unstamped is why a frame counts as come when it was read; empty: the kernel stamps frames.
func (e *Emulator) Unstamped() string { return e.unstamped }

// Now waits for the data thread's next turn and returns its time.
func (e *Emulator) Now() int64 { return e.loop.Do(func(int64) {}) }

// Tidy collects garbage if requests have left much of it. Must be called between requests.
func (e *Emulator) Tidy() {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if heap[0].Value.Uint64() > collectBytes {
		e.loop.Collect()
	}
}

// AddSwitch adds a learning switch.
func (e *Emulator) AddSwitch(name string) (atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { err = e.fabric.AddSwitch(name) })
	return atNS, err
}

// AddPort creates a TAP in the network namespace of spec.PID and adds it to the fabric as a port. It returns the spec
// with the MAC address filled in. The interface is down until it is brought up inside that namespace.
func (e *Emulator) AddPort(spec PortSpec) (PortSpec, int64, error) {
	if _, taken := e.ports[spec.Name]; taken {
		return spec, 0, fmt.Errorf("a port %q exists already", spec.Name)
	}
	if spec.MAC == nil {
		spec.MAC = e.deriveMAC(spec.Name, spec.IfName)
	} else if owner := e.ownerOf(spec.MAC); owner != "" {
		return spec, 0, fmt.Errorf("mac: %s is the address of port %q", spec.MAC, owner)
	}
	pidfd, err := netns.OpenProcess(spec.PID)
	if err != nil {
		return spec, 0, err
	}
	tap, err := e.openTap(device.TapSpec{
		PID: spec.PID, PIDFD: pidfd, IfName: spec.IfName, MAC: spec.MAC, MTU: spec.MTU, Stamps: e.unstamped == "",
	})
	if err != nil {
		unix.Close(pidfd)
		return spec, 0, err
	}
	added := &port{PortSpec: spec}
	died := func(gone unix.Errno, atNS int64) {
		reason := fmt.Sprintf("host process %d ended", spec.PID)
		if gone != 0 {
			reason = fmt.Sprintf("interface %s has gone: %v", spec.IfName, gone)
		}
		e.down(PortDown{Port: spec.Name, Reason: reason, AtNS: atNS})
	}
	atNS := e.loop.Do(func(int64) { added.running, err = e.loop.Attach(spec.Name, spec.MTU, tap, pidfd, died) })
	if err != nil {
		tap.Close()
		unix.Close(pidfd)
		return spec, 0, err
	}
	e.ports[spec.Name] = added
	return spec, atNS, nil
}

// SetMTU changes which frames a port takes and passes on. The interface's own MTU is set inside its namespace.
func (e *Emulator) SetMTU(name string, mtu int) (atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { err = e.fabric.SetMTU(name, mtu) })
	if err == nil {
		e.ports[name].MTU = mtu
	}
	return atNS, err
}

// RemovePort removes a port that has no link and waits until the kernel has removed its interface.
func (e *Emulator) RemovePort(name string) (atNS int64, err error) {
	p, ok := e.ports[name]
	if !ok {
		return 0, fmt.Errorf("there is no port %q", name)
	}
	atNS = e.loop.Do(func(int64) { err = e.loop.Detach(p.running) })
	if err != nil {
		return atNS, err
	}
	<-p.running.Closed()
	delete(e.ports, name)
	return atNS, nil
}

// RemoveSwitch removes a switch that has no links.
func (e *Emulator) RemoveSwitch(name string) (atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { err = e.fabric.RemoveSwitch(name) })
	return atNS, err
}
