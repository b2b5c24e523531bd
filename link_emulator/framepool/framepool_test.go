package framepool

import (
	"bytes"
	"testing"

	"containernet-env/link_emulator/assert"
)

func newPool(t *testing.T, limit, mapped int64) *Pool {
	t.Helper()
	pool, err := New(limit, mapped)
	assert.OK(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestFramesOfEveryLengthComeBackAsStored(t *testing.T) {
	pool := newPool(t, 16<<20, 0)
	var handles []Handle
	lengths := []int{0, 1, 14, 255, 256, 257, 1514, 2048, 2049, 9018, 16384, 16385, MaxFrame}
	for i, length := range lengths {
		handle, ok := pool.Store(bytes.Repeat([]byte{byte(i + 1)}, length), uint32(i))
		assert.Must(t, ok, "%d bytes were refused", length)
		handles = append(handles, handle)
	}
	for i, length := range lengths {
		assert.That(t, bytes.Equal(pool.Frame(handles[i], length), bytes.Repeat([]byte{byte(i + 1)}, length)),
			"the frame of %d bytes was changed", length)
		assert.Equal(t, pool.Owner(handles[i]), uint32(i), "owner of the frame of %d bytes", length)
		pool.Release(handles[i])
	}
	assert.Equal(t, pool.Usage().Frames, 0, "frames that are still held")
	_, tooLong := pool.Store(make([]byte, MaxFrame+1), 0)
	assert.That(t, !tooLong, "a frame beyond MaxFrame was stored")
}

func TestRoomIsStoredWithoutCopying(t *testing.T) {
	pool := newPool(t, 1<<20, 0)
	held, _ := pool.Store(make([]byte, 1000), 0)
	for _, length := range []int{100, 1514, 2048} {
		room := pool.Room()[:length]
		room[0], room[length-1] = 7, 9
		handle, ok := pool.Store(room, 3)
		assert.Must(t, ok, "refused")
		stored := pool.Frame(handle, length)
		assert.That(t, stored[0] == 7 && stored[length-1] == 9 && pool.Owner(handle) == 3,
			"%d bytes: the frame was changed", length)
		same := &stored[0] == &room[0]
		assert.That(t, same == (length > 256), "%d bytes: in place: %v", length, same)
		again := pool.Room()
		assert.That(t, length <= 256 || &again[0] != &room[0], "the room was given away twice")
	}
	// A slot that is freed meanwhile is used first: then the frame is copied, and right all the same.
	room := pool.Room()[:1000]
	room[0] = 5
	pool.Release(held)
	handle, _ := pool.Store(room, 0)
	assert.Equal(t, pool.Frame(handle, 1000)[0], 5, "the first byte")
}

func TestHeldTwiceIsFreedByTheSecondRelease(t *testing.T) {
	pool := newPool(t, 1<<20, 1<<18) // some is mapped at once
	handle, _ := pool.Store([]byte("frame"), 0)
	pool.Retain(handle)
	pool.Release(handle)
	assert.That(t, string(pool.Frame(handle, 5)) == "frame", "the frame was lost while still held")
	pool.Release(handle)
	defer func() {
		assert.That(t, recover() != nil, "a third release went unnoticed")
	}()
	pool.Release(handle)
}

// However many frames of one size there are, frames of every other size still find room: each size has a share that no
// other gets.
func TestNoSizeStarvesAnother(t *testing.T) {
	const limit = 32 << 20
	lengths := []int{60, 1514, 9018, MaxFrame}
	for _, flood := range lengths {
		pool := newPool(t, limit, 0)
		fill := func(length int) (stored int64) {
			for {
				if _, ok := pool.Store(make([]byte, length), 0); !ok {
					return stored
				}
				stored++
			}
		}
		found := fill(flood) * int64(flood)
		assert.That(t, found >= limit/8, "frames of %d bytes alone: stored %d bytes of %d", flood, found, limit)
		for i, length := range lengths {
			want := (limit/shares - int64(sizes[i].bytes)<<sizes[i].chunkShift) / int64(sizes[i].bytes)
			got := fill(length)
			assert.That(t, length == flood || got >= want, "after a flood of frames of %d bytes: stored %d of %d, want %d",
				flood, got, length, want)
		}
		mapped := pool.Usage().MappedBytes
		assert.That(t, mapped <= limit, "mapped %d of %d bytes", mapped, limit)
	}
}
