package load

import "time"

// pauses are the times in which the process did not run although it had something to do: it was stopped, or the machine
// was busy with others. A goroutine that wants to run periodically tells, because whatever else the process
// does, it waits for nothing but a core.
type pauses struct {
	expected time.Duration // when it is to run next; 0: it has not begun
	known    []pause       // in order, without those before the latest start that was asked for
}

type pause struct{ from, to time.Duration }

// beatInterval is how often the goroutine wants to run.
const beatInterval = LateAfter

// beat notes that the goroutine runs, and when it will do so next.
func (p *pauses) beat(now, next time.Duration) {
	if p.expected != 0 && now-p.expected > LateAfter {
		p.known = append(p.known, pause{p.expected, now})
	}
	p.expected = next
}

// cover tells whether an intended start falls into a pause, also into one whose end the goroutine has not noted yet.
// Starts must not fall from one call to the next.
func (p *pauses) cover(start, now time.Duration) bool {
	for len(p.known) > 0 && p.known[0].to < start {
		p.known = p.known[1:]
	}
	if len(p.known) > 0 && p.known[0].from <= start {
		return true
	}
	return p.expected != 0 && now-p.expected > LateAfter && start >= p.expected
}
