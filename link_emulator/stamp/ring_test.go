package stamp

import (
	"encoding/binary"
	"fmt"
	"testing"

	"containernet-env/link_emulator/assert"
)

const (
	limit = 10_000
	none  = -1 // no stamp
)

// frameOf is a full frame whose number is in its header.
func frameOf(number int) []byte {
	frame := make([]byte, 1514)
	binary.BigEndian.PutUint32(frame[38:], uint32(number)) // where TCP over IPv4 has its sequence number
	return frame
}

func mustTake(t *testing.T, r *Ring, frame []byte, wantNS int64) {
	t.Helper()
	atNS, ok := r.Take(frame, false)
	assert.Must(t, ok == (wantNS != none) && (!ok || atNS == wantNS), "got %d, %v, want %d", atNS, ok, wantNS)
}

func mustPut(t *testing.T, r *Ring, frame []byte, atNS int64) {
	t.Helper()
	assert.Must(t, r.Put(frame, atNS), "refused")
}

// put and take have frames of so many numbers, which are their times, too.
func put(t *testing.T, r *Ring, first, count int) {
	t.Helper()
	for number := first; number < first+count; number++ {
		mustPut(t, r, frameOf(number), int64(number))
	}
}

func take(t *testing.T, r *Ring, first, count int) {
	t.Helper()
	for number := first; number < first+count; number++ {
		mustTake(t, r, frameOf(number), int64(number))
	}
}

func expectGivenUp(t *testing.T, r *Ring, want uint64) {
	t.Helper()
	assert.That(t, r.GivenUp() == want, "%d stamps were given up, want %d", r.GivenUp(), want)
}

// A lap is 16 bits of a mark, so it repeats after 65,536 laps: long after its stamps have been overwritten.
func TestLapsRepeat(t *testing.T) {
	for _, lap := range []uint64{1, 2, 65_534, 65_535, 65_536, 131_071} {
		r := NewInMemory(limit)
		start := lap*ringStamps - 2
		*r.next, *r.read, r.oldest, r.released = start, start, start, start
		for i := range uint64(ringStamps) {
			r.write(start-ringStamps+i, frameOf(1), -1) // the lap before
		}
		mustTake(t, r, frameOf(1), none)
		put(t, r, 1, 3)
		take(t, r, 1, 3)
		expectGivenUp(t, r, 0)
	}
}

// While the limit of stamps is unread, frames are refused: those that were admitted keep their stamps, however many
// come.
func TestFullRingRefusesAndKeeps(t *testing.T) {
	r := NewInMemory(limit)
	for i := range 5 * ringStamps {
		admitted := r.Put(frameOf(i), int64(i))
		assert.Must(t, admitted == (i < limit), "frame %d: admitted %v", i, admitted)
	}
	take(t, r, 0, limit)
	assert.That(t, !r.Put(frameOf(0), 0), "admitted although nothing was released")
	r.Release(0, false)
	put(t, r, 7, 1)
	take(t, r, 7, 1)
}

// A stamp that is being written belongs to no frame that was read, and is found once it is complete.
func TestStampThatIsBeingWritten(t *testing.T) {
	r := NewInMemory(limit)
	slow := r.reserve()
	mustPut(t, r, frameOf(2), 20)
	mustTake(t, r, frameOf(2), 20)
	mustTake(t, r, frameOf(1), none)
	r.write(slow, frameOf(1), 10)
	mustTake(t, r, frameOf(1), 10)
	expectGivenUp(t, r, 0)
}

// Frames that the kernel drops after their stamps: the others find theirs, and those without a frame do not stay.
func TestStampsWithoutFrames(t *testing.T) {
	for _, dropped := range []int{1, 5, window - 1, window, window + 1, 1000} {
		r := NewInMemory(limit)
		put(t, r, 0, dropped+3000)
		take(t, r, dropped, 3000)
		expectGivenUp(t, r, uint64(dropped))

		r = NewInMemory(limit)
		put(t, r, 0, dropped+2)
		take(t, r, dropped+1, 1)
		take(t, r, dropped, 1)
	}
}

func TestEmptyQueueGivesOldStampsUp(t *testing.T) {
	r := NewInMemory(limit)
	put(t, r, 0, 3)
	mustPut(t, r, frameOf(3), 3+lostNS)
	r.Release(10*lostNS, false)
	expectGivenUp(t, r, 0)
	r.Release(3+lostNS, true) // stamp 3 is new: its frame may not be in the queue yet
	expectGivenUp(t, r, 3)
	assert.Equal(t, *r.read, 3, "stamps that may be written again")
	mustTake(t, r, frameOf(3), 3+lostNS)
}

// A frame without a stamp gets none, and the ring does not fill up with stamps that nobody takes.
func TestUnknownFrames(t *testing.T) {
	r := NewInMemory(limit)
	for i := range 3 * ringStamps {
		mustPut(t, r, frameOf(i), int64(i))
		mustTake(t, r, frameOf(-1), none)
		r.Release(int64(i), false)
	}
	expectGivenUp(t, r, 3*ringStamps)
	put(t, r, 7, 1)
	take(t, r, 7, 1)
}

// Frames that cannot be told apart take their stamps in order, whether they are equal or only their hashes are.
func TestEqualFramesKeepTheirOrder(t *testing.T) {
	r := NewInMemory(limit)
	for i := range 1000 {
		frame := frameOf(7)
		binary.BigEndian.PutUint32(frame[hashedBytes:], uint32(i)) // beyond what is hashed
		mustPut(t, r, frame, int64(i))
	}
	for i := range 1000 {
		mustTake(t, r, frameOf(7), int64(i))
	}
	mustPut(t, r, frameOf(7)[:1000], 1)
	mustPut(t, r, frameOf(7), 2)
	mustTake(t, r, frameOf(7), 2) // another length is another frame
	mustTake(t, r, frameOf(7)[:1000], 1)
	expectGivenUp(t, r, 0)
}

// TestFramesThatChangedOnTheirWay may be cut off where that is known. The driver puts the tag of a VLAN interface into
// the frame after the program has run; other tags were there before.
func TestFramesThatChangedOnTheirWay(t *testing.T) {
	plain := frameOf(1)
	tagged := append(append(append([]byte{}, plain[:12]...), 0x81, 0, 0, 5), plain[12:]...)
	for i, c := range []struct {
		stamped, read    []byte
		truncated, found bool
	}{
		{plain, plain[:600], true, true}, {plain, plain[:600], false, false}, {plain, tagged, false, true},
		{tagged, tagged, false, true}, {tagged, plain, false, false},
	} {
		r := NewInMemory(limit)
		mustPut(t, r, c.stamped, 10)
		atNS, ok := r.Take(c.read, c.truncated)
		assert.That(t, ok == c.found && (!ok || atNS == 10), "case %d: got %d, %v", i, atNS, ok)
	}
}

func TestFramesOfEveryLengthDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for length := 1; length < 80; length++ {
		for bit := range min(8*length, 8*hashedBytes) {
			frame := make([]byte, length)
			frame[bit/8] = 1 << (bit % 8)
			where := fmt.Sprintf("bit %d of %d bytes", bit, length)
			other := seen[contentOf(frame)]
			assert.Must(t, other == "", "%s and %s have the same content", where, other)
			seen[contentOf(frame)] = where
		}
	}
}

// A core that is stopped between a stamp and the queue costs no frame its stamp, however many overtake it: neither its
// own nor another, also if it is stopped before the stamp is complete.
func TestFrameThatIsOvertakenTooOften(t *testing.T) {
	for _, overtaking := range []int{window - 1, window, 300, limit - 2, ringStamps + 5000} {
		r := NewInMemory(limit)
		slow := r.reserve()
		mustPut(t, r, frameOf(1), 10)
		for i := range overtaking {
			put(t, r, 3+i, 1)
			take(t, r, 3+i, 1)
			r.Release(0, false)
			if i == min(overtaking, limit)-1 {
				r.write(slow, frameOf(2), 20)
			}
		}
		mustPut(t, r, frameOf(0), 0)
		mustTake(t, r, frameOf(1), 10)
		if overtaking < ringStamps { // else its place in the ring has another stamp
			mustTake(t, r, frameOf(2), 20)
		}
		mustTake(t, r, frameOf(0), 0)
		if overtaking < ringStamps {
			expectGivenUp(t, r, 0)
		}
		mustTake(t, r, frameOf(1), none)
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	r := NewInMemory(limit)
	full, short := frameOf(1), []byte("short")
	assert.Equal(t, testing.AllocsPerRun(1000, func() {
		r.Put(full, 1)
		r.Put(short, 2)
		r.Take(short, false)
		r.Take(full, false)
		r.Release(3, true)
	}), 0, "allocations")
}
