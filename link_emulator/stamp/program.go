package stamp

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/realtime"
)

// lengthOfSkb is the offset of len in struct __sk_buff (linux/bpf.h).
const lengthOfSkb = 0

// instructions are the program for a ring, which is the value of the map behind mapFD. See Put for the same in Go.
//
// It is a BPF_PROG_TYPE_SOCKET_FILTER: what it returns is how many bytes of the frame stay, so 0 drops the frame. It
// needs Linux 5.12 (atomic operations that return the old value).
//
// Memory order, on every architecture: the exchange that writes the mark comes after the store of the time, and the
// reader loads the mark before the time. The reader has loaded both before it says so (readOffset), and whether the
// program writes over them depends on what it reads there. A frame enters the queue after its mark was written, so
// a thread that has read the frame sees the mark.
func instructions(mapFD int, limit int) asm.Instructions {
	const (
		context = asm.R6
		ring    = asm.R7
		arrival = asm.R8
		length  = asm.R9
		header  = -hashedBytes // offset in the stack frame
	)
	program := asm.Instructions{
		asm.Mov.Reg(context, asm.R1),
		asm.LoadMapValue(ring, mapFD, 0),

		// Room for another one?
		asm.Mov.Imm(asm.R0, 0),
		asm.LoadMem(asm.R1, ring, nextOffset, asm.DWord),
		asm.LoadMem(asm.R2, ring, readOffset, asm.DWord),
		asm.Sub.Reg(asm.R1, asm.R2),
		asm.JGE.Imm(asm.R1, int32(limit), "end"),

		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(arrival, asm.R0),

		// The first bytes of the frame, or all of it. No frame is empty, which the kernel cannot know.
		asm.LoadMem(length, context, lengthOfSkb, asm.Word),
		asm.Mov.Reg(asm.R4, length),
		asm.Mov.Imm(asm.R0, 0),
		asm.JLT.Imm(asm.R4, 1, "end"),
		asm.JLE.Imm(asm.R4, hashedBytes, "bounded"),
		asm.Mov.Imm(asm.R4, hashedBytes),
		asm.Mov.Reg(asm.R1, context).WithSymbol("bounded"),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, header),
		asm.Mov.Imm(asm.R5, 0),
	}
	for i := int16(0); i < hashedBytes; i += 8 {
		program = append(program, asm.StoreMem(asm.RFP, header+i, asm.R5, asm.DWord))
	}
	factor := uint64(hashFactor)
	program = append(program,
		asm.FnSkbLoadBytes.Call(), // it cannot fail: the length is the frame's own
		asm.LoadImm(asm.R1, int64(factor), asm.DWord),
		asm.Mov.Imm(asm.R2, 0),
	)
	for i := int16(0); i < hashedBytes; i += 8 {
		program = append(program,
			asm.LoadMem(asm.R3, asm.RFP, header+i, asm.DWord),
			asm.Xor.Reg(asm.R2, asm.R3),
			asm.Mul.Reg(asm.R2, asm.R1),
			asm.Mov.Reg(asm.R3, asm.R2),
			asm.RSh.Imm(asm.R3, 32),
			asm.Xor.Reg(asm.R2, asm.R3),
		)
	}
	program = append(program,
		// The mark, still without its lap.
		asm.RSh.Imm(asm.R2, 32),
		asm.LSh.Imm(asm.R2, 32),
		asm.Mov.Reg(asm.R3, length),
		asm.And.Imm(asm.R3, int32(lapBits)),
		asm.LSh.Imm(asm.R3, 16),
		asm.Or.Reg(asm.R2, asm.R3),

		// Its position, and the lap.
		asm.Mov.Imm(asm.R4, 1),
		atomically(asm.FetchAdd, ring, asm.R4, nextOffset),
		asm.Mov.Reg(asm.R5, asm.R4),
		asm.RSh.Imm(asm.R5, ringBits),
		asm.Add.Imm(asm.R5, 1),
		asm.And.Imm(asm.R5, int32(lapBits)),
		asm.Or.Reg(asm.R2, asm.R5),

		// The stamp: the time, then the mark.
		asm.And.Imm(asm.R4, ringStamps-1),
		asm.Mul.Imm(asm.R4, stampBytes),
		asm.Add.Reg(ring, asm.R4),
		asm.StoreMem(ring, firstOffset, arrival, asm.DWord),
		atomically(asm.Xchg, ring, asm.R2, firstOffset+8),

		asm.Mov.Reg(asm.R0, length),
		asm.Return().WithSymbol("end"),
	)
	return program
}

// atomically is an atomic operation on 8 bytes of memory; value becomes what was there before. The assembler (v0.22.0)
// takes the operation from the constant when it writes the instruction, but does not set it.
func atomically(operation asm.AtomicOp, memory, value asm.Register, offset int16) asm.Instruction {
	instruction := operation.Mem(memory, value, asm.DWord, offset)
	instruction.Constant = int64(operation >> 8)
	return instruction
}

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
