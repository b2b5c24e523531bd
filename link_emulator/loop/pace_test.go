package loop

import (
	"testing"

	"containernet-env/link_emulator/assert"
)

// BehindNS for the tests in simulated time.
const BehindNS = behindNS

func TestSleepsOfAnyLengthPayOffTheDebt(t *testing.T) {
	for _, c := range []struct {
		sleepNS int64
		forced  bool
	}{{8e3, true}, {20e3, false}, {500e3, false}, {switchNS, true}} { // after 100 us of busy time each
		debt, now, forced := idleDebt{}, int64(0), false
		for range 5000 {
			now += 100e3
			debt.noteBusy(now)
			forced = forced || debt.mostlyBusy()
			now += c.sleepNS
			debt.noteIdle(now)
		}
		assert.Equal(t, forced, c.forced, "forced to sleep after sleeps of %d ns", c.sleepNS)
	}
}

// Neither the credit of a long sleep nor the debt of a stop lasts for the second over which the kernel counts.
func TestCreditAndDebtAreBounded(t *testing.T) {
	debt := idleDebt{}
	debt.noteIdle(10e9)
	for now := int64(10e9); now < 10.05e9; now += 10e3 {
		debt.noteBusy(now)
	}
	assert.That(t, debt.mostlyBusy(), "after 50 ms of busy time the debt is %d ns", debt.owedNS)
	debt = idleDebt{}
	debt.noteBusy(10e9)
	now, forced := int64(10e9), 0
	for ; debt.mostlyBusy(); forced++ {
		now += yieldNS + switchNS
		debt.noteIdle(now)
	}
	assert.That(t, forced == int(maxOwedNS/yieldNS), "%d forced sleeps, want %d", forced, maxOwedNS/yieldNS)
}

func TestTimerLatencyIsTheMedianOfTheLastValues(t *testing.T) {
	var l timerLatency
	for i := range int64(1000) {
		before := l.ns
		l.took(i)
		assert.Must(t, l.ns == before || i%8 == 7, "it changed with value %d", i)
	}
	assert.Equal(t, l.ns, 968, "of 936 to 999")
	for _, ns := range []int64{-5, 2 * maxTimerNS} {
		for range len(l.values) {
			l.took(ns)
		}
		assert.Equal(t, l.ns, max(0, min(ns, maxTimerNS)), "of %d", ns)
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
	share := float64(waited) / 1e9 * busyWaitShare
	assert.That(t, share <= 1.2 && share >= 0.5, "under steady load it busy-waited for %.3f of its share", share)
	// A single frame every 10 ms is always busy-waited for, without calls in between.
	for due := end + int64(10e6); due < end+int64(1e9); due += int64(10e6) {
		for now := due - wantNS; now < due; now += stepNS {
			assert.Equal(t, a.lead(now, due, wantNS), wantNS, "lead of a single frame")
		}
	}
	now = end + int64(1e9)
	// After a while without load there is budget for the next frame.
	assert.Equal(t, a.lead(now+int64(5e6), now+int64(6e6), wantNS), wantNS, "lead")
}
