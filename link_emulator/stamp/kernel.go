package stamp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
)

// Requests of bpf(2), each the beginning of union bpf_attr (linux/bpf.h) up to the last field that is needed.
type (
	createMap struct {
		kind, keyBytes, valueBytes, entries, flags uint32
		innerMap, numaNode                         uint32
		name                                       [unix.BPF_OBJ_NAME_LEN]byte
	}
	loadProgram struct {
		kind, instructions uint32
		code, license      unsafe.Pointer
		logLevel, logBytes uint32
		log                unsafe.Pointer
		version, flags     uint32
		name               [unix.BPF_OBJ_NAME_LEN]byte
	}
	runProgram struct {
		program, result  uint32
		inBytes, outByte uint32
		in, out          unsafe.Pointer
		repeat, tookNS   uint32
	}
)

// license is the project's. None of the helpers that the program calls asks for the GPL (since Linux 5.8).
var license = [...]byte{'M', 'I', 'T', 0}

// Open makes a ring and loads the program that fills it. At most limit stamps are unread at a time; see Ring.
func Open(limit int) (*Ring, error) {
	request := createMap{kind: unix.BPF_MAP_TYPE_ARRAY, keyBytes: 4, valueBytes: ringBytes, entries: 1,
		flags: unix.BPF_F_MMAPABLE}
	copy(request.name[:], "frame_stamps")
	mapFD, errno := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&request), unsafe.Sizeof(request))
	if errno != 0 {
		return nil, fmt.Errorf("create a BPF array that can be mapped: %w", errno)
	}
	defer unix.Close(mapFD) // the mapping and the program keep it
	pages := (ringBytes + os.Getpagesize() - 1) / os.Getpagesize()
	memory, err := unix.Mmap(mapFD, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map a BPF array: %w", err)
	}
	ring := newRing(memory, limit)
	if ring.program, err = load(mapFD, limit); err != nil {
		return nil, errors.Join(err, ring.Close())
	}
	return ring, nil
}

func load(mapFD, limit int) (program int, err error) {
	code, err := assemble(mapFD, limit)
	if err != nil {
		return -1, err
	}
	request := loadProgram{
		kind:         unix.BPF_PROG_TYPE_SOCKET_FILTER,
		instructions: uint32(len(code) / 8),
		code:         unsafe.Pointer(unsafe.SliceData(code)),
		license:      unsafe.Pointer(&license),
	}
	copy(request.name[:], "stamp_frames")
	program, errno := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&request), unsafe.Sizeof(request))
	if errno == 0 {
		return program, nil
	}
	if errno == unix.EPERM {
		return -1, fmt.Errorf("load the program that stamps frames (it needs CAP_BPF): %w", errno)
	}
	log := make([]byte, 64<<10)
	request.logLevel, request.logBytes, request.log = 1, uint32(len(log)), unsafe.Pointer(unsafe.SliceData(log))
	if again, errno := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&request), unsafe.Sizeof(request)); errno == 0 {
		return again, nil
	}
	return -1, fmt.Errorf("load the program that stamps frames: %w%s", errno, lastLine(log))
}

// lastLine of the verifier's log before its statistics: why it refuses the program.
func lastLine(log []byte) string {
	log, _, _ = bytes.Cut(log, []byte{0})
	said := ""
	for line := range bytes.Lines(log) {
		if text := bytes.TrimSpace(line); len(text) > 0 && !bytes.HasPrefix(text, []byte("processed ")) {
			said = ": " + string(text)
		}
	}
	return said
}

// Attach lets the kernel run the program for each frame that is sent into a TAP, from now until the TAP is closed.
func (r *Ring) Attach(tap int) error {
	if err := unix.IoctlSetPointerInt(tap, unix.TUNSETFILTEREBPF, r.program); err != nil {
		return fmt.Errorf("attach the program that stamps frames: %w", err)
	}
	err := unix.Close(r.program) // the TAP keeps it
	r.program = -1
	return err
}

// Close frees the ring. The program must not run any more, or only for frames that nobody reads.
func (r *Ring) Close() error {
	var err error
	if r.program >= 0 {
		err = unix.Close(r.program)
	}
	return errors.Join(err, unix.Munmap(r.memory))
}

// clockErrorNS is more than the clock of this process and that of the program, the same one, differ by when it is read.
const clockErrorNS = int64(100e3)

// Check tries whether this kernel stamps frames rightly, on a frame in memory. The error says what is refused or wrong.
func Check() error {
	ring, err := Open(1)
	if err != nil {
		return err
	}
	defer ring.Close()
	frame := bytes.Repeat([]byte("frame"), 20)
	beforeNS := clock.Now()
	kept, _, err := ring.run(frame, 1)
	if err != nil {
		return err
	}
	afterNS := clock.Now()
	atNS, ok := ring.Take(frame, false)
	switch {
	case kept != len(frame):
		return fmt.Errorf("the program that stamps frames keeps %d bytes of %d", kept, len(frame))
	case !ok:
		return errors.New("the program that stamps frames has written no stamp of the frame that it ran on")
	case atNS < beforeNS-clockErrorNS || atNS > afterNS+clockErrorNS: // in a time namespace, time_namespaces(7)
		return fmt.Errorf("stamps are of another clock: %d ns, while the clock here went from %d to %d ns", atNS,
			beforeNS, afterNS)
	}
	return nil
}

// run runs the program on a frame in memory, several times, and returns how many bytes of it stay and what one run
// took.
func (r *Ring) run(frame []byte, times int) (kept int, tookNS int64, err error) {
	// The kernel takes an Ethernet header off what it is given, and shows the program the rest.
	packet := append(make([]byte, 14), frame...)
	request := runProgram{program: uint32(r.program), inBytes: uint32(len(packet)),
		in: unsafe.Pointer(unsafe.SliceData(packet)), repeat: uint32(times)}
	if _, errno := bpf(unix.BPF_PROG_TEST_RUN, unsafe.Pointer(&request), unsafe.Sizeof(request)); errno != 0 {
		return 0, 0, fmt.Errorf("run the program that stamps frames: %w", errno)
	}
	return int(request.result), int64(request.tookNS), nil
}

func bpf(command uintptr, request unsafe.Pointer, bytes uintptr) (result int, errno unix.Errno) {
	for range 10 {
		n, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(request), bytes)
		if errno != unix.EAGAIN { // the verifier was interrupted by a signal
			return int(n), errno
		}
	}
	return 0, unix.EAGAIN
}
