package loop

import (
	"runtime"
	"testing"
	"time"

	"containernet-env/link_emulator/histogram"
	"containernet-env/link_emulator/model"
)

func TestParseWaited(t *testing.T) {
	for text, want := range map[string]int64{"92525 827388 2\n": 827388, "1 2 3": 2, "0 0 1\n": 0} {
		if got, known := parseWaited([]byte(text)); got != want || !known {
			t.Errorf("%q: got %d (%v), want %d", text, got, known, want)
		}
	}
	for _, text := range []string{"0 0 0\n", "", "junk"} {
		if _, known := parseWaited([]byte(text)); known {
			t.Errorf("%q was taken for an account", text)
		}
	}
}

// What each way of waiting says of the frames that are read after it; times in us.
func TestGapsByWayOfWaiting(t *testing.T) {
	g := gaps{schedstat: -1}
	expect := func(what string, wantNS int64) {
		t.Helper()
		if g.sinceNS != wantNS {
			t.Errorf("%s: since %d, want %d", what, g.sinceNS, wantNS)
		}
		g.sinceNS = g.lookedNS // as a turn begins
	}
	g.looked(1000e3, 1)
	expect("the first look", 0)
	g.looked(1500e3, 2)
	expect("two looks one after the other", 1000e3)
	g.looked(1600e3, 0)
	g.slept(1601e3, 1610e3, 1)
	expect("something came right after a look that found nothing", 1600e3)
	g.slept(1700e3, 90_000e3, 0)
	g.slept(90_001e3, 90_002e3, 1)
	expect("a wait that was broken off", 1601e3)
	g.slept(91_000e3, 99_000e3, 1)
	expect("a sleep of which nothing is known", 91_000e3)
	g.looked(99_500e3, mostEvents)
	expect("more events than fit", 91_000e3)
	g.looked(99_900e3, 1)
	expect("after that", 91_000e3)
	if g.schedstat = openSchedstat(); g.schedstat < 0 {
		t.Skip("this kernel does not tell how long a thread waited")
	}
	runtime.LockOSThread() // the kernel's account is of the thread
	defer runtime.UnlockOSThread()
	for times, most := range map[int]int64{1: 50_000e3, 2: 100_000e3} {
		g.waited(0)
		g.sleeps()
		for range times {
			sleep(1e6)
		}
		g.awoke()
		sleep(1e6) // a rest, after the wait
		g.slept(100_000e3, 200_000e3, 1)
		waited := 200_000e3 - g.sinceNS
		if waited < 0 || waited > most || (times == 2 && waited != most) {
			t.Errorf("of 100 ms in which the thread left its processor %d times, %d ns are said to be unseen", times, waited)
		}
		if g.lookedNS != g.sinceNS {
			t.Errorf("%d times: looked at %d, unseen since %d", times, g.lookedNS, g.sinceNS)
		}
	}
}

func TestGapsDoNotAllocate(t *testing.T) {
	g := gaps{schedstat: openSchedstat()}
	var gap histogram.Histogram
	now := int64(0)
	if got := testing.AllocsPerRun(100, func() {
		now += 1e6
		g.looked(now, 0)
		g.sleeps()
		g.awoke()
		g.slept(now, now+500e3, 1)
		gap.Record(now - g.sinceNS)
	}); got != 0 {
		t.Errorf("got %v allocations a turn, want 0", got)
	}
}

func (r *rig) readGap(host int) (gap histogram.Histogram) {
	r.Do(func(int64) { gap = r.ports[host].ReadGap() })
	return gap
}

// A frame that lies in a device while the thread is busy elsewhere, or stands still, is due from when it is read; the gap says how long that may have been.
func TestReadGapShowsThatNobodyLooked(t *testing.T) {
	r := newRig(t, 2, model.Params{})
	const away = 30 * time.Millisecond
	r.Do(func(int64) {
		r.send(0, testFrame(1, "meanwhile"))
		time.Sleep(away)
	})
	if payload, _ := r.receive(1); payload != "meanwhile" {
		t.Fatalf("got %q", payload)
	}
	if gap := r.readGap(0); gap.Count() != 1 || gap.MaxNS() < away.Nanoseconds() {
		t.Errorf("read %d times, longest gap %d ns, want once after %v at the least", gap.Count(), gap.MaxNS(), away)
	}
	r.Do(func(int64) { r.ports[0].ResetReadGap() })
	if gap := r.readGap(0); gap.Count() != 0 {
		t.Errorf("read %d times after a reset", gap.Count())
	}
}

// A thread that sleeps until the frame comes was looking all the time.
func TestSleepIsNoReadGap(t *testing.T) {
	r := newRig(t, 2, model.Params{})
	if r.gaps.schedstat < 0 {
		t.Skip("this kernel does not tell how long a thread waited")
	}
	for range 21 {
		time.Sleep(10 * time.Millisecond)
		r.send(0, testFrame(1, "x"))
		r.receive(1)
	}
	if gap := r.readGap(0); gap.Count() != 21 || gap.PercentileNS(50) > 5e6 {
		t.Errorf("read %d times, median gap %d ns, want 21 and much less than the 10 ms between frames", gap.Count(), gap.PercentileNS(50))
	}
}
