package loop

import "slices"

// How the data thread shares its core: when it wakes up for a frame, busy-waits, and sleeps.

const maxTimerNS = int64(60e3)

// timerLatency is the median of the last 64 times from a timer's expiry until the thread ran, at most maxTimerNS. It is
// updated every 8 times.
type timerLatency struct {
	ns     int64
	values [64]int64
	sorted [64]int64
	count  uint
}

func (l *timerLatency) took(ns int64) {
	l.values[l.count%uint(len(l.values))] = ns
	l.count++
	if l.count%8 != 0 {
		return
	}
	l.sorted = l.values
	filled := l.sorted[:min(l.count, uint(len(l.sorted)))]
	slices.Sort(filled)
	l.ns = max(0, min(filled[len(filled)/2], maxTimerNS))
}

// The thread may busy-wait for 1/busyWaitShare of the time. It saves up what it does not use, up to maxBudgetNS.
const (
	busyWaitShare = 25
	maxBudgetNS   = int64(200e3)
)

// busyWait is the budget for busy-waiting until a frame is due. Without a budget the thread would never sleep under
// steady load, with a frame due every few us. When the budget is used up, the timer is set to the due time itself and
// frames are late by a wake-up, which is short on a busy core.
type busyWait struct {
	budgetNS  int64 // time left for busy-waiting
	updatedNS int64 // time of the last call
	dueNS     int64 // the due time that is being busy-waited for; 0: none
}

// lead is how much earlier than dueNS the thread has to wake up: wantNS, or 0 when the budget is used up.
func (b *busyWait) lead(nowNS, dueNS, wantNS int64) int64 {
	// The busy-wait ended at the due time at the latest, however long ago the last call was.
	b.budgetNS -= max(min(nowNS, b.dueNS)-b.updatedNS, 0)
	b.budgetNS = min(b.budgetNS+(nowNS-b.updatedNS)/busyWaitShare, maxBudgetNS)
	b.updatedNS = nowNS
	if b.dueNS != dueNS {
		b.dueNS = 0
		if b.budgetNS < wantNS {
			return 0
		}
		if dueNS-wantNS <= nowNS {
			b.dueNS = dueNS
		}
	}
	return wantNS
}

const (
	// idleShare: the loop leaves one part in idleShare (7 %) of its core to other threads. The kernel throttles
	// real-time threads that leave less than 5 % of a second to others, in one piece (sched_rt_runtime_us; since Linux
	// 6.12 the fair server of each core). Many short sleeps are better than one stall of 50 ms. They also let a thread
	// run that was preempted on this core while it held a lock, such as a receiver its socket's.
	idleShare = 14
	// yieldNS is the length of one forced sleep.
	yieldNS = int64(60e3)
	// maxOwedNS bounds the debt: a thread that was stopped for seconds was not busy in them.
	maxOwedNS = 5 * yieldNS
	// maxSavedNS bounds the credit from long sleeps.
	maxSavedNS = int64(2e6)
	// switchNS is the part of a sleep that falling asleep and waking take: no other thread can use it.
	switchNS = int64(5e3)
)

// idleDebt is how long the thread still has to leave its core to others. Sleeps of any length pay it off, so a thread
// that sleeps often enough by itself is never forced to.
type idleDebt struct {
	owedNS  int64 // negative: credit
	sinceNS int64 // accounted up to here
}

// noteBusy records that the thread was busy until nowNS.
func (d *idleDebt) noteBusy(nowNS int64) {
	d.owedNS = min(d.owedNS+(nowNS-d.sinceNS)/(idleShare-1), maxOwedNS)
	d.sinceNS = nowNS
}

// noteIdle records that the thread slept until nowNS. A long wait is no sleep if the kernel processed frames in it on
// the thread's own time (softirqs): then the thread has not given up its core.
func (d *idleDebt) noteIdle(nowNS int64) {
	if free := nowNS - d.sinceNS - switchNS; free > 0 {
		d.owedNS = max(d.owedNS-free, -maxSavedNS)
		d.sinceNS = nowNS
	}
}

// mostlyBusy reports whether the thread was busy for so long that it has to sleep now.
func (d *idleDebt) mostlyBusy() bool { return d.owedNS >= yieldNS }
