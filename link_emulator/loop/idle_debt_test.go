package loop

import "testing"

// A thread that is always busy leaves its core to others for more than 5 % of every second.
func TestForcedSleepsOfABusyThread(t *testing.T) {
	const turnNS, secondNS = int64(7e3), int64(1e9)
	debt := idleDebt{}
	idleNS, busyNS, longestNS := int64(0), int64(0), int64(0)
	for now := int64(0); now < secondNS; {
		now += turnNS
		busyNS += turnNS
		debt.noteBusy(now)
		if debt.mostlyBusy() {
			longestNS, busyNS = max(longestNS, busyNS), 0
			now += yieldNS + switchNS
			idleNS += yieldNS
			debt.noteIdle(now)
		}
	}
	if share := float64(idleNS) / float64(secondNS); share < 0.06 || share > 0.08 {
		t.Errorf("it slept for %.3f of the time, want 0.06 to 0.08", share)
	}
	if longestNS > 1e6 {
		t.Errorf("it was busy for %d ns without a sleep", longestNS)
	}
}

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
		if forced != c.forced {
			t.Errorf("sleeps of %d ns: forced to sleep: %v, want %v", c.sleepNS, forced, c.forced)
		}
	}
}

// The credit of a long sleep does not last for the second over which the kernel counts.
func TestCreditIsBounded(t *testing.T) {
	debt := idleDebt{}
	debt.noteIdle(10e9)
	for now := int64(10e9); now < 10.05e9; now += 10e3 {
		debt.noteBusy(now)
	}
	if !debt.mostlyBusy() {
		t.Errorf("after 50 ms of busy time the debt is %d ns", debt.owedNS)
	}
}

func TestDebtIsBoundedAfterAStop(t *testing.T) {
	debt := idleDebt{}
	debt.noteBusy(10e9)
	now, forced := int64(10e9), 0
	for ; debt.mostlyBusy(); forced++ {
		now += yieldNS + switchNS
		debt.noteIdle(now)
	}
	if forced != int(maxOwedNS/yieldNS) {
		t.Errorf("%d forced sleeps, want %d", forced, maxOwedNS/yieldNS)
	}
}
