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

func TestRests(t *testing.T) {
	const ms = time.Millisecond
	var r rests
	if r.mostlyBusy(0, time.Hour) {
		t.Error("a transport that does not report its rests is judged")
	}
	r.add(0, 0)
	for at := time.Duration(0); at < 1000*ms; at += 10 * ms { // works for 8 ms, rests for 2 ms
		r.add(at+8*ms, at+10*ms)
	}
	r.add(1000*ms, 2000*ms) // the members stand still
	for at := 2000 * ms; at < 2100*ms; at += 10 * ms {
		r.add(at+2*ms, at+10*ms)
	}
	early := rests{total: 24 * ms, marks: r.marks[:13:13]} // as at 120 ms
	if !early.mostlyBusy(100*ms, 120*ms) {
		t.Error("16 ms of work in 20 are not seen")
	}
	for start := 100 * ms; start < 2090*ms; start += 10 * ms {
		if r.mostlyBusy(start, 2100*ms) { // from 100 ms on 1260 ms of rest in 2000 ms, and later more than that
			t.Errorf("from %v on it had much to do", start)
		}
	}
	if r.mostlyBusy(500*ms, 2100*ms) {
		t.Error("an earlier start than before is not judged any more")
	}
	r.forget(time.Hour)
	if len(r.marks) != 1 {
		t.Errorf("%d marks are kept", len(r.marks))
	}
	// It works from the last mark on.
	if now := 2200 * ms; !r.mostlyBusy(2100*ms, now) {
		t.Error("100 ms of work are not seen")
	}
}

// TestRestsWhileAMemberStallsForLong: no mark may be dropped, but there is not one for each millisecond either.
func TestRestsWhileAMemberStallsForLong(t *testing.T) {
	const ms, minutes = time.Millisecond, 5
	var r rests
	for at := time.Duration(0); at < minutes*time.Minute; at += ms { // half idle in the first minute, then nearly always
		idle := ms / 2
		if at > time.Minute {
			idle = ms * 9 / 10
		}
		if r.add(at+ms-idle, at+ms); len(r.marks) > maxMarks {
			r.forget(0)
		}
	}
	if len(r.marks) > maxMarks {
		t.Errorf("%d marks", len(r.marks))
	}
	if r.mostlyBusy(0, minutes*time.Minute) || r.mostlyBusy(59*time.Second, minutes*time.Minute) || !r.mostlyBusy(0,
		10*minutes*time.Minute) {
		t.Errorf("%v of rest in %d minutes, with marks %v...", r.total, minutes, r.marks[:3])
	}
}
