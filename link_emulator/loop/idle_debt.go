package loop

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
