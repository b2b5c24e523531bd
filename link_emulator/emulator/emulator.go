// Package emulator is the running emulator: the fabric, the loop that moves its frames, the devices at its ports, and
// the control protocol: one JSON object per line, requests in, replies and events out. README.md describes the protocol
// with an example of every operation; a test runs them.
package emulator

import (
	"runtime/metrics"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/realtime"
	"containernet-env/link_emulator/stamp"
)

// Default sizes of the frame memory: the limit covers 2 s of one link at 1 Gbit/s; the reserve is mapped at start.
const (
	DefaultBufferBytes = int64(512 << 20)
	reserveBytes       = int64(16 << 20)
)

// collectBytes is the heap size from which garbage is collected between requests. Frames are not on the heap.
const collectBytes = 64 << 20

// Options of Start. Zero values are the defaults.
type Options struct {
	Version     string // what hello reports
	BufferBytes int64
	Core        *int                                         // the only core of the data thread; default: any
	Unstamped   string                                       // why the kernel shall not stamp frames; empty: it shall
	CheckStamps func() error                                 // whether it can; default: stamp.Check
	OpenTap     func(device.TapSpec) (device.Device, error)  // default: a TAP of the kernel
	OpenTest    func(stamps bool) ([2]device.TestEnd, error) // for the self-test; default: TAPs of the kernel
	Failed      func(error)                                  // called, at most once, when the data path cannot go on
}

// Emulator is a running emulator. Make it with Start.
type Emulator struct {
	options  Options // with the defaults; Unstamped is also why the kernel cannot stamp frames
	fabric   *fabric.Fabric
	loop     *loop.Loop
	pool     *framepool.Pool
	grant    realtime.Grant
	selfTest selfTest
	ports    map[string]*port
	traces   map[string]*model.Trace
	partial  *model.Trace // of which not all points have come
	lines    chan []byte  // replies and events for the driver
}

// Start maps the frame memory, tries the kernel's stamps, starts the data thread and runs the self-test: about 100 ms.
// It runs until the process ends. A failed self-test is not an error here.
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
	e := &Emulator{options: options, fabric: fabric.New(pool), pool: pool, ports: map[string]*port{},
		traces: map[string]*model.Trace{}, lines: make(chan []byte, 64)}
	if e.loop, e.grant, err = loop.Start(e.fabric, options.Core, options.Failed); err != nil {
		return nil, err
	}
	e.selfTest = e.runSelfTest()
	return e, nil
}

// tidy collects garbage if requests have left much of it. Must be called between requests.
func (e *Emulator) tidy() {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if heap[0].Value.Uint64() > collectBytes+uint64(16*e.tracePoints()) {
		e.loop.Collect()
	}
}
