package load

import "time"

// pauses are the times in which the process did not run although it had something to do: it was stopped, or the machine
// was busy with other work. A goroutine that runs periodically detects them, because all it ever waits for is a core.
type pauses struct {
	expected time.Duration // when it is to run next; 0: it has not started
	known    []pause       // in order, without those before the latest start passed to cover
}

type pause struct{ from, to time.Duration }

const (
	// beatInterval is how often the goroutine is to run.
	beatInterval = LateAfter
	// closedBeatInterval is the same in a closed loop, where no request is late and only long pauses matter: so rarely that
	// it costs nothing.
	closedBeatInterval = 100 * time.Millisecond
)

// beat notes that the goroutine runs, and when it is to run next.
func (p *pauses) beat(now, next time.Duration) {
	if p.expected != 0 && now-p.expected > LateAfter {
		p.known = append(p.known, pause{p.expected, now})
	}
	p.expected = next
}

// cover tells whether an intended start falls into a pause, also into one whose end the goroutine has not noted yet.
// Starts must not decrease from one call to the next.
func (p *pauses) cover(start, now time.Duration) bool {
	for len(p.known) > 0 && p.known[0].to < start {
		p.known = p.known[1:]
	}
	if len(p.known) > 0 && p.known[0].from <= start {
		return true
	}
	return p.expected != 0 && now-p.expected > LateAfter && start >= p.expected
}
