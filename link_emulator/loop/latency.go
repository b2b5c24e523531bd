package loop

import "slices"

const (
	maxTimerNS = int64(60e3)
	// earlyNS: a wake-up is compensated up to so much above the shortest recent one. A frame with the shortest wake-up
	// is then early by at most as much.
	earlyNS = int64(5e3)
)

// Latencies are what the machine currently adds to each frame, in ns.
type Latencies struct {
	// from a timer's expiry until the thread runs: the timer is set so much earlier, then the thread busy-waits
	TimerNS int64
	WakeNS  int64 // from a frame's arrival until the sleeping thread runs, where that is reckoned; see reckoning
}

// timerLatency belongs to the data thread.
type timerLatency struct {
	window
	ns int64
}

func (l *timerLatency) took(ns int64) {
	if l.add(ns) {
		l.ns = min(l.quantile(50), maxTimerNS)
	}
}

// window is a sliding window over a series.
type window struct {
	values [64]int64
	sorted [64]int64
	count  uint
}

// add adds a value. It reports true every 8 values, when the quantiles have been updated.
func (w *window) add(ns int64) bool {
	w.values[w.count%uint(len(w.values))] = max(ns, 0)
	w.count++
	if w.count%8 != 0 {
		return false
	}
	w.sorted = w.values
	slices.Sort(w.filled())
	return true
}

func (w *window) filled() []int64 { return w.sorted[:min(w.count, uint(len(w.sorted)))] }

// quantile is the nearest-rank percentile of the values as of the last update.
func (w *window) quantile(percent int) int64 {
	filled := w.filled()
	return filled[min(len(filled)*percent/100, len(filled)-1)]
}
