//go:build root

package stamp

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/hang"
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("stamp: skipped, it needs root")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t testing.TB, limit int) *Ring {
	t.Helper()
	r, err := Open(limit)
	assert.OK(t, err)
	t.Cleanup(func() { assert.OK(t, r.Close()) })
	return r
}

// The kernel's stamp of a frame is the one that Go expects: for all lengths, over several laps, with the right time.
func TestProgramStampsEveryFrame(t *testing.T) {
	r := open(t, limit)
	random := rand.New(rand.NewPCG(1, 1))
	lastNS := hang.StampNS()
	for i := range 3 * ringStamps {
		frame := make([]byte, 1+i%1600)
		for at := 0; at < min(len(frame), 80); at++ {
			frame[at] = byte(random.Uint32())
		}
		kept, err := r.run(frame)
		assert.OK(t, err)
		nowNS := hang.StampNS()
		atNS, ok := r.Take(frame, false)
		assert.Must(t, kept == len(frame) && ok, "frame %d of %d bytes: %d bytes stay, stamped %v", i, len(frame), kept, ok)
		// The two readings of the clock differ by some 100 ns.
		assert.Must(t, atNS >= lastNS-1000 && atNS <= nowNS+1000, "frame %d: %d, %d, %d", i, lastNS, atNS, nowNS)
		lastNS = nowNS
		r.Release(nowNS, true)
	}
	expectGivenUp(t, r, 0)
}

func TestProgramDropsFramesAtTheLimit(t *testing.T) {
	const few = 100
	r := open(t, few)
	frame := frameOf(1)
	for i := range 3 * few {
		kept, err := r.run(frame)
		assert.OK(t, err)
		want := len(frame)
		assert.Must(t, (i < few || kept == 0) && (i >= few || kept == want), "frame %d: %d bytes stay", i, kept)
	}
	for range few {
		_, ok := r.Take(frame, false)
		assert.Must(t, ok, "a stamp was overwritten")
	}
	r.Release(0, false)
	kept, err := r.run(frame)
	assert.That(t, err == nil && kept != 0, "dropped although there is room: %v", err)
}
