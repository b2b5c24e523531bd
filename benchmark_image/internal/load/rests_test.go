package load

import (
	"testing"
	"time"
)

func TestRests(t *testing.T) {
	const ms = time.Millisecond
	var r rests
	if r.mostlyBusy(0, time.Hour) {
		t.Error("a transport that does not tell its rests is judged")
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
	r.forget(time.Hour)
	if len(r.marks) != 1 {
		t.Errorf("%d marks are kept", len(r.marks))
	}
	// It works from the last mark on.
	if now := 2200 * ms; !r.mostlyBusy(2100*ms, now) {
		t.Error("100 ms of work are not seen")
	}
}
