package loop

import "slices"

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
