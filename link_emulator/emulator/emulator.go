// Package emulator is the running emulator: the fabric, the loop that moves its frames, the devices at its ports, and
// the control protocol: one JSON object per line, requests in, replies and events out. README.md describes the protocol
// with an example of every operation; a test runs them.
package emulator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/metrics"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/input"
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
	Offload     bool                                         // hosts may hand over several segments of TCP at once
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

// maxLineBytes bounds a request; a longer line is refused and skipped.
const maxLineBytes = 1 << 20

// header is in every request.
type header struct {
	ID *int64 `json:"id"`
	Op string `json:"op"`
}

type reply struct {
	ID     *int64 `json:"id"` // null where the request had none that could be read
	OK     bool   `json:"ok"`
	AtNS   *int64 `json:"at_ns,omitempty"`
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

type event struct {
	Event  string `json:"event"`
	Port   string `json:"port"`
	Reason string `json:"reason"`
	AtNS   int64  `json:"at_ns"`
}

// Serve answers the requests that come on in, in order, until it ends; then it returns nil. Replies and events go to
// out, as whole lines. See the README for the protocol.
func (e *Emulator) Serve(in io.Reader, out io.Writer) error {
	failed := make(chan error, 1)
	go func() {
		for line := range e.lines {
			if _, err := out.Write(line); err != nil {
				failed <- fmt.Errorf("write to the control connection: %w", err)
				return
			}
		}
	}()
	lines := bufio.NewReaderSize(in, maxLineBytes)
	for {
		line, tooLong, err := readLine(lines)
		if len(bytes.TrimSpace(line)) > 0 || tooLong {
			select {
			case e.lines <- encode(e.answer(line, tooLong)):
			case err := <-failed:
				return unlessEnded(err)
			}
			e.tidy()
		}
		if err != nil {
			return unlessEnded(fmt.Errorf("read the control connection: %w", err))
		}
	}
}

// unlessEnded is nil for an error that means that the driver has closed the connection. A unix socket returns
// ECONNRESET instead of end of file if the other end was closed with unread data.
func unlessEnded(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// readLine returns one line without its end. A line beyond the buffer is skipped to its end and reported as too long.
func readLine(lines *bufio.Reader) (line []byte, tooLong bool, err error) {
	line, err = lines.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = lines.ReadSlice('\n')
	}
	if tooLong {
		return nil, true, err
	}
	return line, false, err
}

func (e *Emulator) answer(line []byte, tooLong bool) reply {
	if tooLong {
		return reply{Error: fmt.Sprintf("the line is longer than %d bytes", maxLineBytes)}
	}
	// The header is read first, so that a refusal of anything else can carry the id.
	var request header
	if err := json.Unmarshal(line, &request); err != nil {
		return reply{Error: err.Error()}
	}
	if request.ID == nil {
		return reply{Error: "id: the field is missing"}
	}
	operation, known := operations[request.Op]
	if !known {
		names := slices.Sorted(maps.Keys(operations))
		return reply{ID: request.ID, Error: fmt.Sprintf("op: got %q, allowed: %s", request.Op, strings.Join(names, ", "))}
	}
	result, atNS, err := operation(e, line)
	if err != nil {
		return reply{ID: request.ID, Error: err.Error()}
	}
	if result == nil {
		result = struct{}{}
	}
	return reply{ID: request.ID, OK: true, AtNS: &atNS, Result: result}
}

func encode(message any) []byte {
	line, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("a message cannot be written as JSON: %v", err)) // types without NaN, channels or cycles
	}
	return append(line, '\n')
}

// operation carries out a request and returns its result, or nil for one without fields.
type operation func(e *Emulator, line []byte) (result any, atNS int64, err error)

// request makes an operation of a method that takes its request as a struct.
func request[Request any](method func(*Emulator, Request) (any, int64, error)) operation {
	return func(e *Emulator, line []byte) (any, int64, error) {
		var request Request
		if err := input.Decode(line, &request); err != nil {
			return nil, 0, err
		}
		return method(e, request)
	}
}
