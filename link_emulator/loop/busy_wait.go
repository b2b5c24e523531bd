package loop

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
