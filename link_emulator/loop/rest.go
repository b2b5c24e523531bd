package loop

const (
	// restShare: of so many parts of the time, the loop leaves its processor to others for one, 7 %. The kernel stops real-time threads that leave less
	// than 5 % of a second to the others, for what is missing, at once (sched_rt_runtime_us; since Linux 6.12 the fair server of each processor):
	// many short rests are better than a gap of 50 ms. A thread that was pushed off this core holding a lock, such as a receiver its socket's, gets
	// on with it meanwhile.
	restShare = 14
	// restNS is how long a rest is.
	restNS = int64(60e3)
	// mostOwedNS bounds what is owed: a thread that was stopped for seconds has worked in none of them.
	mostOwedNS = 5 * restNS
	// savedNS: so much of longer sleeps is remembered.
	savedNS = int64(2e6)
	// switchNS is what falling asleep and waking take of a sleep: nobody else can use that.
	switchNS = int64(5e3)
)

// rests is the account of how long the thread has to leave its processor to others. Sleeps of any length count, so a thread that sleeps often enough by itself never rests.
type rests struct {
	owedNS  int64 // negative: saved
	sinceNS int64 // up to then it is reckoned
}

// worked: the thread was busy until nowNS.
func (r *rests) worked(nowNS int64) {
	r.owedNS = min(r.owedNS+(nowNS-r.sinceNS)/(restShare-1), mostOwedNS)
	r.sinceNS = nowNS
}

// slept: the thread has slept until nowNS. A wait that takes long is no sleep where the kernel moved frames on the thread's time meanwhile (softirqs); see gaps.awoke.
func (r *rests) slept(nowNS int64) {
	if free := nowNS - r.sinceNS - switchNS; free > 0 {
		r.owedNS = max(r.owedNS-free, -savedNS)
		r.sinceNS = nowNS
	}
}

// due is whether it is time to rest.
func (r *rests) due() bool { return r.owedNS >= restNS }
