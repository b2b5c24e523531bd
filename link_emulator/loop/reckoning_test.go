package loop

import (
	"runtime"
	"testing"
	"time"

	"containernet-env/link_emulator/clock"
	"containernet-env/link_emulator/histogram"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/realtime"
)

func TestParseWaited(t *testing.T) {
	for text, want := range map[string]int64{"92525 827388 2\n": 827388, "1 2 3": 2, "0 0 1\n": 0} {
		if got, known := parseRunDelay([]byte(text)); got != want || !known {
			t.Errorf("%q: got %d (%v), want %d", text, got, known, want)
		}
	}
	for _, text := range []string{"0 0 0\n", "", "junk"} {
		if _, known := parseRunDelay([]byte(text)); known {
			t.Errorf("%q was accepted", text)
		}
	}
}

// How long frames can have waited, for each kind of wait before their read.
func TestPollDelayByKindOfWait(t *testing.T) {
	p := pollDelays{schedstat: -1}
	expect := func(what string, wantNS int64) {
		t.Helper()
		if p.sinceNS != wantNS {
			t.Errorf("%s: since %d, want %d", what, p.sinceNS, wantNS)
		}
		p.sinceNS = p.polledNS // as a turn begins
	}
	p.notePoll(1000e3, 1)
	expect("the first poll", 0)
	p.notePoll(1500e3, 2)
	expect("two polls in a row", 1000e3)
	p.notePoll(1600e3, 0)
	p.noteWake(1601e3, 1610e3, 1, 1)
	expect("an event right after a poll without one", 1600e3)
	p.noteWake(1700e3, 90_000e3, 0, 1)
	p.noteWake(90_001e3, 90_002e3, 1, 1)
	expect("an interrupted wait", 1601e3)
	p.noteWake(91_000e3, 99_000e3, 1, 1)
	expect("a sleep without an account of the run delay", 91_000e3)
	p.notePoll(99_500e3, maxEvents)
	expect("a full event buffer", 91_000e3)
	p.notePoll(99_900e3, 1)
	expect("after that", 91_000e3)
	runtime.LockOSThread() // the kernel's account is per thread
	defer runtime.UnlockOSThread()
	if p.schedstat = openSchedstat(); p.schedstat < 0 {
		t.Skip("this kernel has no account of the run delay")
	}
	for times, most := range map[int]int64{1: 50_000e3, 2: 100_000e3} {
		p.runDelay(0)
		realtime.Pin() // the Go scheduler must not add a context switch
		var leaves coreLeaves
		leaves.waits()
		for range times {
			realtime.Sleep(1e6)
		}
		leaves.waited()
		realtime.Unpin()
		realtime.Sleep(1e6) // a forced sleep, after the wait
		p.noteWake(100_000e3, 200_000e3, 1, leaves.inWait)
		waited := 200_000e3 - p.sinceNS
		if waited < 0 || waited > most || (times == 2 && waited != most) {
			t.Errorf("in 100 ms with %d voluntary context switches: got a delay of %d ns", times, waited)
		}
		if p.polledNS != p.sinceNS {
			t.Errorf("%d switches: polled at %d, since %d", times, p.polledNS, p.sinceNS)
		}
	}
}

func TestPollDelaysDoNotAllocate(t *testing.T) {
	p := pollDelays{schedstat: openSchedstat()}
	var delay histogram.Histogram
	var leaves coreLeaves
	now := int64(0)
	if got := testing.AllocsPerRun(100, func() {
		now += 1e6
		p.notePoll(now, 0)
		leaves.waits()
		leaves.waited()
		p.noteWake(now, now+500e3, 1, leaves.inWait)
		delay.Record(now - p.sinceNS)
	}); got != 0 {
		t.Errorf("got %v allocations a turn, want 0", got)
	}
}

func (r *rig) pollDelay(host int) (delay histogram.Histogram) {
	r.Do(func(int64) { delay = r.ports[host].IngressPollDelay() })
	return delay
}

// A frame that waits in a device while the thread is busy elsewhere is timed from its read; the poll delay bounds how
// long it waited.
func TestPollDelayShowsABusyThread(t *testing.T) {
	r := newRig(t, false, 2, model.Params{})
	const away = 30 * time.Millisecond
	r.Do(func(int64) {
		r.send(0, testFrame(1, "meanwhile"))
		time.Sleep(away)
	})
	if payload, _ := r.receive(1); payload != "meanwhile" {
		t.Fatalf("got %q", payload)
	}
	if delay := r.pollDelay(0); delay.Count() != 1 || delay.MaxNS() < away.Nanoseconds() {
		t.Errorf("read %d times, longest poll delay %d ns, want once, at least %v", delay.Count(), delay.MaxNS(), away)
	}
	r.Do(func(int64) { r.ports[0].ResetIngressPollDelay() })
	if delay := r.pollDelay(0); delay.Count() != 0 {
		t.Errorf("read %d times after a reset", delay.Count())
	}
}

// A thread that sleeps until a frame wakes it does not delay the frame.
func TestSleepIsNoPollDelay(t *testing.T) {
	r := newRig(t, false, 2, model.Params{})
	if r.reckoning.schedstat < 0 {
		t.Skip("this kernel has no account of the run delay")
	}
	for range 21 {
		time.Sleep(10 * time.Millisecond)
		r.send(0, testFrame(1, "x"))
		r.receive(1)
	}
	if delay := r.pollDelay(0); delay.Count() != 21 || delay.PercentileNS(50) > 5e6 {
		t.Errorf("read %d times, median poll delay %d ns, want 21 and much less than the 10 ms between frames",
			delay.Count(), delay.PercentileNS(50))
	}
}

// One short outlier among the wake-ups bounds the compensation, and so does README's bound of how early a frame can be.
func TestCompensationIsBounded(t *testing.T) {
	for _, c := range []struct{ shortestNS, wantNS int64 }{{3_000, 3_000 + earlyNS}, {40_000, maxShiftNS}} {
		r := reckoning{}
		for i := range int64(64) {
			sentNS, tookNS := 1e9+1e6*i, int64(40_000)
			if i == 63 {
				tookNS = c.shortestNS
			}
			r.probedNS.Store(sentNS)
			r.awoke(sentNS-1, sentNS+tookNS, true)
		}
		if r.wakeNS != c.wantNS {
			t.Errorf("shortest %d: got %d, want %d", c.shortestNS, r.wakeNS, c.wantNS)
		}
		if early := r.wakeNS + maxReadNS; early > maxEarlyNS {
			t.Errorf("shortest %d: a frame can be %d ns early", c.shortestNS, early)
		}
	}
}

// A read that is interrupted does not make the frame that it returns early.
func TestInterruptedReadDoesNotBackdate(t *testing.T) {
	r := reckoning{}
	r.awoke(1, 2, false)
	beforeNS := clock.Now()
	got := r.arrival(&Port{}, beforeNS-int64(50e6))
	if got < beforeNS-maxReadNS {
		t.Errorf("a frame counts as %d ns earlier than the end of its read", clock.Now()-got)
	}
}

func TestProbesEndWithTheLoop(t *testing.T) {
	r := newRig(t, false, 1, model.Params{})
	r.Stop()
	ended := make(chan struct{})
	go func() {
		r.reckoning.probeWakeUps(make(chan struct{}), r.stopped)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Fatal("it keeps running")
	}
}
