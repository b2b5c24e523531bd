package loop

import (
	"testing"

	"containernet-env/link_emulator/model"
)

func TestWindowHasTheQuantilesOfTheLastValues(t *testing.T) {
	var w window
	for i := range int64(1000) {
		if fresh := w.add(i); fresh != (i%8 == 7) {
			t.Fatalf("value %d: fresh %v", i, fresh)
		}
	}
	if low, middle, high := w.quantile(0), w.quantile(50), w.quantile(100); low != 936 || middle != 968 || high != 999 {
		t.Errorf("got %d, %d, %d of 936 to 999", low, middle, high)
	}
	var few window
	for i := range int64(8) {
		few.add(i)
	}
	if low, high := few.quantile(0), few.quantile(100); low != 0 || high != 7 {
		t.Errorf("got %d and %d of 0 to 7", low, high)
	}
}

func TestTimerLatencyIsMeasured(t *testing.T) {
	for _, stamps := range []bool{true, false} {
		r := newRig(t, stamps, 2, model.Params{DelayNS: int64(200e3)})
		for range 60 {
			r.send(0, testFrame(0, "x"))
			r.receive(1)
		}
		var got Latencies
		r.Do(func(int64) { got = r.Latencies() })
		if got.TimerNS <= 0 || got.TimerNS > maxTimerNS || (got.WakeNS > 0) == stamps || got.WakeNS > maxShiftNS {
			t.Errorf("stamps %v: got %+v", stamps, got)
		}
	}
}

func TestBusyWaitIsBounded(t *testing.T) {
	const stepNS, wantNS, gapNS = int64(200), int64(20e3), int64(24e3)
	var a busyWait
	now, waited := int64(1e9), int64(0)
	end := now + int64(1e9)
	for due := now + gapNS; now < end; {
		if lead := a.lead(now, due, wantNS); due-lead <= now && now < due {
			waited += stepNS
		}
		if now += stepNS; now >= due {
			due += gapNS
		}
	}
	if share := float64(waited) / 1e9; share > 1.2/busyWaitShare || share < 0.5/busyWaitShare {
		t.Errorf("busy-waited for %.3f of the time under steady load, want about %.3f", share, 1.0/busyWaitShare)
	}
	// A single frame every 10 ms is always busy-waited for, without calls in between.
	for due := end + int64(10e6); due < end+int64(1e9); due += int64(10e6) {
		for now := due - wantNS; now < due; now += stepNS {
			if lead := a.lead(now, due, wantNS); lead != wantNS {
				t.Fatalf("a single frame: lead %d, want %d", lead, wantNS)
			}
		}
	}
	now = end + int64(1e9)
	// After a while without load there is budget for the next frame.
	if lead := a.lead(now+int64(5e6), now+int64(6e6), wantNS); lead != wantNS {
		t.Errorf("lead %d, want %d", lead, wantNS)
	}
}
