package loop

// Of all time, the thread may wait awake for the exact moment 1/awakeShare; what it does not use it saves up to mostAwakeNS.
const (
	awakeShare  = 25
	mostAwakeNS = int64(200e3)
)

// awake keeps the account of waiting awake. Under steady load, with a frame due every few us, there would else be no rest at all; then the
// timer is set to the moment itself, and frames are late by a wake-up, which is short on a core that is kept busy.
type awake struct {
	leftNS int64 // may be waited awake from now on
	seenNS int64 // time of the last call
	forNS  int64 // the due time that is being waited for awake; 0: none
}

// lead is how much earlier than dueNS the thread is to be awake: wantNS, or 0 if it has been waiting awake too much.
func (a *awake) lead(nowNS, dueNS, wantNS int64) int64 {
	// Waiting awake ended with the due time at the latest, however long ago the last call was.
	a.leftNS -= max(min(nowNS, a.forNS)-a.seenNS, 0)
	a.leftNS = min(a.leftNS+(nowNS-a.seenNS)/awakeShare, mostAwakeNS)
	a.seenNS = nowNS
	if a.forNS != dueNS {
		a.forNS = 0
		if a.leftNS < wantNS {
			return 0
		}
		if dueNS-wantNS <= nowNS {
			a.forNS = dueNS
		}
	}
	return wantNS
}
