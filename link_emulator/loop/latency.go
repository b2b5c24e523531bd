package loop

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
)

// Bounds of what is taken out of a delay. A wake-up is taken out up to earlyNS above the shortest that was seen lately, so that a frame
// whose wake-up was the shortest is at most so much early.
const (
	mostTimerNS = int64(60e3)
	mostWriteNS = int64(3e3)
	earlyNS     = int64(5e3)
)

// probeEvery is how often the wake-up of the data thread is measured while it runs; at start, probesAtStart times in a row.
const (
	probeEvery    = 50 * time.Millisecond
	probesAtStart = 40
	writeSample   = 4 // of so many writes, one is timed
)

// Latencies are what the machine adds to every frame, as measured lately, in ns; they are taken out of the delays.
type Latencies struct {
	TimerNS int64 // from the time a timer was set to until the thread runs: it is set so much earlier, and waits for the exact time awake
	WakeNS  int64 // from a frame's arrival at a sleeping thread until it runs: the frame counts as read so much earlier
	WriteNS int64 // a write into an interface takes this long: it begins so much earlier
}

// latencies is owned by the data thread, but for probedNS.
type latencies struct {
	timer, wake, write window
	now                Latencies
	writes             uint
	probedNS           atomic.Int64 // when the probe that is under way was sent
}

func (l *latencies) timerTook(ns int64) {
	if l.timer.add(ns) {
		l.now.TimerNS = min(l.timer.quantile(50), mostTimerNS)
	}
}

func (l *latencies) wakeTook(ns int64) {
	if l.wake.add(ns) {
		l.now.WakeNS = min(l.wake.quantile(25), l.wake.quantile(0)+earlyNS)
	}
}

func (l *latencies) writeTook(ns int64) {
	if l.write.add(ns) {
		l.now.WriteNS = min(l.write.quantile(0), mostWriteNS)
	}
}

// window keeps the last values of a series.
type window struct {
	values [64]int64
	sorted [64]int64
	count  uint
}

// add takes a value in. It reports, every 8 values, that the quantiles are new.
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

// quantile is the nearest rank of a percentage, of the values when add last reported true.
func (w *window) quantile(percent int) int64 {
	filled := w.filled()
	return filled[min(len(filled)*percent/100, len(filled)-1)]
}

// probe wakes the data thread from time to time to see how long that takes, until the loop ends.
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
		// The only error is EAGAIN, when the counter is full: after 2^64 probes. The descriptor outlives this goroutine.
		_, _ = unix.Write(l.probe, one[:])
	}
}

// measureWakeUp looks at what woke the thread, if that was one thing only, and returns by how much frames that are read now came earlier: as long as a
// wake-up takes, but not before the thread fell asleep.
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
