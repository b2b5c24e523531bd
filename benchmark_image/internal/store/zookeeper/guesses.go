package zookeeper

import "sync/atomic"

// guesses tell whether the znode of a key exists, before a put asks for it: ZooKeeper has no write that takes both.
// Keys that were written through this protocol do. Of all others, the last one that was written tells. Any number of
// goroutines may use it.
type guesses struct {
	// written has a bit for each key that was written, by its hash. Several keys share a bit once there are many, so
	// that the last of its kind tells here, too.
	written []atomic.Uint64
	known   atomic.Bool // the last key with its bit set did not exist
	other   atomic.Bool // the last key without its bit did exist
}

// bits is how many there are: 1 MiB, of which only what is used takes memory. One key in a hundred shares its bit with
// another one when there are 80,000.
const bits = 1 << 23

func newGuesses() guesses { return guesses{written: make([]atomic.Uint64, bits/64)} }

// hash is FNV-1a.
func hash(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func (g *guesses) has(hash uint64) bool {
	bit := hash % bits
	return g.written[bit/64].Load()>>(bit%64)&1 == 1
}

// exists guesses.
func (g *guesses) exists(hash uint64) bool {
	if g.has(hash) {
		return !g.known.Load()
	}
	return g.other.Load()
}

// wrote takes that a put of a key succeeded, and whether it existed before.
func (g *guesses) wrote(hash uint64, existed bool) {
	bit := hash % bits
	if word := &g.written[bit/64]; word.Load()>>(bit%64)&1 == 0 {
		word.Or(1 << (bit % 64))
		learn(&g.other, existed)
		return
	}
	learn(&g.known, !existed)
}

// learn stores only what changes: a store takes the cache line from all others.
func learn(b *atomic.Bool, value bool) {
	if b.Load() != value {
		b.Store(value)
	}
}
