package fabric

import "containernet-env/link_emulator/histogram"

// tooEarlyNS: no frame is early; one that is by more than this is counted as well.
const tooEarlyNS = int64(20e3)

// Lateness is how much after, or before, their scheduled times frames reached hosts. The zero value is empty and ready.
type Lateness struct {
	histogram.Histogram        // how late; an early frame counts as 0
	EarlyMaxNS          int64  // the most by which one was early
	TooEarly            uint64 // frames that were more than tooEarlyNS early
}

// Record counts one frame; negative: it was early.
func (l *Lateness) Record(lateNS int64) {
	l.Histogram.Record(lateNS)
	l.EarlyMaxNS = max(l.EarlyMaxNS, -lateNS)
	if -lateNS > tooEarlyNS {
		l.TooEarly++
	}
}

// Add counts everything that other holds.
func (l *Lateness) Add(other *Lateness) {
	l.Histogram.Add(&other.Histogram)
	l.EarlyMaxNS = max(l.EarlyMaxNS, other.EarlyMaxNS)
	l.TooEarly += other.TooEarly
}
