package h2

import (
	"bytes"
	"testing"
)

// steady gives the bytes of a member's answers in the steady state, for streams 1, 3, ...
func steady(t testing.TB, calls int) (settings []byte, answers [][]byte) {
	p := newPeer(t, Options{})
	for i := range calls {
		p.answer(uint32(2*i + 1))
		answers = append(answers, bytes.Clone(p.toConn.Bytes()))
		p.toConn.Reset()
	}
	p.must(p.framer.WriteSettings())
	return bytes.Clone(p.toConn.Bytes()), answers
}

func TestCallsDoNotAllocate(t *testing.T) {
	const runs = 1000
	settings, answers := steady(t, 2*runs+2)
	c := NewConn("m:1", methods, Options{})
	if err := c.Feed(settings); err != nil {
		t.Fatal(err)
	}
	var head [64]byte
	key, value := []byte("key"), []byte("value")
	var s Stream
	s.Owner = ignore{}
	i := 0
	call := func() {
		c.Start(&s, put, append(AppendPrefix(head[:0]), key...), value)
		c.Wrote(len(c.Output()))
		if err := c.Feed(answers[i]); err != nil || s.Active() {
			t.Fatal(err)
		}
		i++
	}
	for range runs {
		call()
	}
	if n := testing.AllocsPerRun(runs, call); n != 0 {
		t.Errorf("%v allocations for each call", n)
	}
}

type ignore struct{}

func (ignore) Feed([]byte, bool) error    { return nil }
func (ignore) Finished(*Stream, *Failure) {}
