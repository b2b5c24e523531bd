package stamp

import "github.com/cilium/ebpf/asm"

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
