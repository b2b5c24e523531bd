package loop

import (
	"testing"
	"time"

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

// One outlier among wake-ups, such as a short one on an idle core, bounds what is taken out.
func TestWakeUpIsNotTakenOutFarAboveTheShortest(t *testing.T) {
	var l latencies
	for range 63 {
		l.wakeTook(40_000)
	}
	l.wakeTook(3_000)
	if got := l.now.WakeNS; got != 3_000+earlyNS {
		t.Errorf("got %d, want %d", got, 3_000+earlyNS)
	}
}

func TestLatenciesAreMeasured(t *testing.T) {
	r := newRig(t, 2, model.Params{DelayNS: int64(200e3)})
	for range 60 {
		r.send(0, testFrame(0, "x"))
		r.receive(1)
	}
	var got Latencies
	r.Do(func(int64) { got = r.Latencies() })
	if got.TimerNS <= 0 || got.TimerNS > mostTimerNS || got.WakeNS <= 0 || got.WriteNS <= 0 || got.WriteNS > mostWriteNS {
		t.Errorf("got %+v", got)
	}
}

func TestProbesEndWithTheLoop(t *testing.T) {
	r := newRig(t, 1, model.Params{})
	r.Stop()
	ended := make(chan struct{})
	go func() {
		r.probeWakeUps(make(chan struct{}))
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("it goes on")
	}
}
