package stamp

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// Open makes a ring and loads the program that fills it. At most limit stamps are unread at a time; see Ring.
func Open(limit int) (*Ring, error) {
	stamps, err := ebpf.NewMap(&ebpf.MapSpec{Name: "frame_stamps", Type: ebpf.Array, KeySize: 4, ValueSize: ringBytes,
		MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("create a BPF array that can be mapped: %w", reason(err))
	}
	defer stamps.Close() // the mapping and the program keep it
	pages := (ringBytes + os.Getpagesize() - 1) / os.Getpagesize()
	memory, err := unix.Mmap(stamps.FD(), 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map a BPF array: %w", err)
	}
	ring := newRing(memory, limit)
	// None of the helpers that the program calls requires the GPL (since Linux 5.8).
	ring.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "stamp_frames", Type: ebpf.SocketFilter, License: "MIT",
		Instructions: instructions(stamps.FD(), limit)})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load the program that stamps frames: %w", reason(err)), ring.Close())
	}
	return ring, nil
}

// reason is why the kernel refuses something. Of a missing permission the package has a guess that is wrong since Linux
// 5.11: a limit of locked memory.
func reason(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (CAP_BPF is needed)", unix.EPERM)
	}
	return err
}

// Attach lets the kernel run the program for each frame that is sent into a TAP, from now until the TAP is closed.
func (r *Ring) Attach(tap int) error {
	if err := unix.IoctlSetPointerInt(tap, unix.TUNSETFILTEREBPF, r.program.FD()); err != nil {
		return fmt.Errorf("attach the program that stamps frames: %w", err)
	}
	return r.program.Close() // the TAP keeps it
}

// Close frees the ring. The program must not run any more, or only for frames that are not read.
func (r *Ring) Close() error { return errors.Join(r.program.Close(), unix.Munmap(r.memory)) }

// clockErrorNS is more than the clock of this process and that of the program, the same one, differ by when it is read.
const clockErrorNS = int64(100e3)

// Check stamps a frame in memory, to see whether this kernel does so correctly. The error is what is refused or wrong.
func Check() error {
	ring, err := Open(1)
	if err != nil {
		return err
	}
	defer ring.Close()
	frame := bytes.Repeat([]byte("frame"), 20)
	beforeNS := realtime.Now()
	kept, err := ring.run(frame)
	if err != nil {
		return err
	}
	afterNS := realtime.Now()
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

// run runs the program on a frame in memory and returns how many bytes of it stay.
func (r *Ring) run(frame []byte) (kept int, err error) {
	// The kernel takes an Ethernet header off what it is given, and shows the program the rest.
	result, err := r.program.Run(&ebpf.RunOptions{Data: append(make([]byte, 14), frame...)})
	if err != nil {
		return 0, fmt.Errorf("run the program that stamps frames: %w", err)
	}
	return int(result), nil
}
