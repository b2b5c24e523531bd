package load

import (
	"testing"
	"time"
)

func TestPauses(t *testing.T) {
	const ms = time.Millisecond
	var p pauses
	if p.cover(5*ms, 500*ms) {
		t.Error("a pause before the first beat")
	}
	for at := ms; at < 100*ms; at += 10 * ms { // to run again at 101 ms
		p.beat(at, at+10*ms)
	}
	p.beat(111*ms, 121*ms) // 10 ms late is not a pause
	for _, c := range []struct {
		start, now time.Duration
		want       bool
	}{
		{105 * ms, 120 * ms, false},
		{120 * ms, 400 * ms, false},
		{121 * ms, 131 * ms, false}, // the next beat may still come
		{121 * ms, 400 * ms, true},  // it has not come
		{200 * ms, 400 * ms, true},
	} {
		if got := p.cover(c.start, c.now); got != c.want {
			t.Errorf("due at %v, at %v: %v", c.start, c.now, got)
		}
	}
	p.beat(1121*ms, 1131*ms)
	p.beat(1131*ms, 1141*ms)
	p.beat(1641*ms, 1651*ms)
	for start := 500 * ms; start < 1700*ms; start += ms {
		want := start <= 1121*ms || start >= 1141*ms && start <= 1641*ms
		if got := p.cover(start, 1650*ms); got != want {
			t.Errorf("due at %v: %v", start, got)
		}
	}
	if got := p.cover(500*ms, 1650*ms); !got {
		t.Error("an earlier start than before is not judged any more")
	}
	if p.forget(1700 * ms); len(p.known) != 0 {
		t.Errorf("%d pauses are kept", len(p.known))
	}
}
