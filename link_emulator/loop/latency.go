package loop

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
)

// Bounds of the compensation. A wake-up is compensated up to earlyNS above the shortest recent one, so a frame with the
// shortest wake-up is early by at most earlyNS.
const (
	maxTimerNS = int64(60e3)
	maxWriteNS = int64(3e3)
	earlyNS    = int64(5e3)
)

// The wake-up latency of the data thread is measured probesAtStart times at start, then every probeEvery.
const (
	probeEvery    = 50 * time.Millisecond
	probesAtStart = 40
	writeSample   = 4 // one write in writeSample is timed
)

// Latencies are what the machine currently adds to each frame, in ns. They are compensated: taken out of the delays.
type Latencies struct {
	TimerNS int64 // from a timer's expiry until the thread runs: the timer is set so much earlier, then the thread busy-waits
	WakeNS  int64 // from a frame's arrival until the sleeping thread runs: the frame counts as read so much earlier
	WriteNS int64 // how long a write into an interface takes: it begins so much earlier
}

// latencies belongs to the data thread, except probedNS.
type latencies struct {
	timer, wake, write window
	now                Latencies
	writes             uint
	probedNS           atomic.Int64 // when the current probe was sent
}

func (l *latencies) timerTook(ns int64) {
	if l.timer.add(ns) {
		l.now.TimerNS = min(l.timer.quantile(50), maxTimerNS)
	}
}

func (l *latencies) wakeTook(ns int64) {
	if l.wake.add(ns) {
		l.now.WakeNS = min(l.wake.quantile(25), l.wake.quantile(0)+earlyNS)
	}
}

func (l *latencies) writeTook(ns int64) {
	if l.write.add(ns) {
		l.now.WriteNS = min(l.write.quantile(0), maxWriteNS)
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

// probeWakeUps wakes the data thread periodically to measure how long that takes, until the loop ends.
func (l *Loop) probeWakeUps(started chan<- struct{}) {
	one := [8]byte{0: 1}
	for i := 0; ; i++ {
		switch {
		case i < probesAtStart:
			time.Sleep(time.Millisecond / 2)
		case i == probesAtStart:
			close(started)
			fallthrough
		default:
			time.Sleep(probeEvery)
		}
		select {
		case <-l.stopped:
			return
		default:
		}
		l.latency.probedNS.Store(clock.Now())
		// The only error is EAGAIN, when the counter is full: after 2^64 probes. The descriptor outlives this
		// goroutine.
		_, _ = unix.Write(l.probe, one[:])
	}
}

// measureWakeUp records the wake-up latency if a single timer or probe woke the thread. It returns by how much frames
// that are read now arrived earlier: the wake-up latency, but not before the thread fell asleep.
func (l *Loop) measureWakeUp(n int, asleepNS, nowNS int64) int64 {
	if n == 1 {
		if s := l.sources[l.events[0].Fd]; s != nil && s.generation == l.events[0].Pad {
			switch s.kind {
			case kindTimer:
				if took := nowNS - l.armedNS; l.armedNS > asleepNS {
					l.latency.timerTook(took)
				}
			case kindProbe:
				if sent := l.latency.probedNS.Load(); sent > asleepNS {
					l.latency.wakeTook(nowNS - sent)
				}
			}
		}
	}
	return min(l.latency.now.WakeNS, nowNS-asleepNS)
}
