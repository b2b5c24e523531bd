package fabric

import "containernet-env/link_emulator/histogram"

// tooEarlyNS is by how much a frame may be early at the most, as the README promises.
const tooEarlyNS = int64(20e3)

// Lateness is by how much frames reached hosts after, or before, their scheduled times. The zero value is empty and ready.
type Lateness struct {
	histogram.Histogram        // how late; a frame that was early counts as 0
	EarlyMaxNS          int64  // by how much the earliest came early at the most
	TooEarly            uint64 // frames that may have come more than tooEarlyNS early
}

// Record counts one frame; see Sink for what the two are.
func (l *Lateness) Record(lateNS, earlyNS int64) {
	l.Histogram.Record(lateNS)
	if earlyNS > l.EarlyMaxNS {
		l.EarlyMaxNS = earlyNS
	}
	if earlyNS > tooEarlyNS {
		l.TooEarly++
	}
}

// Add counts everything that other holds.
func (l *Lateness) Add(other *Lateness) {
	l.Histogram.Add(&other.Histogram)
	l.EarlyMaxNS = max(l.EarlyMaxNS, other.EarlyMaxNS)
	l.TooEarly += other.TooEarly
}
