package load

import (
	"sort"
	"time"
)

// pauses are the times in which the process did not run although it had something to do: it was stopped, or the machine
// was busy with other work. A goroutine that runs periodically detects them, because all it ever waits for is a core.
type pauses struct {
	expected time.Duration // when it is to run next; 0: it has not started
	known    []pause       // in order, without those that forget dropped
}

type pause struct{ from, to time.Duration }

// beatInterval is how often the goroutine is to run.
const beatInterval = LateAfter

// Pauses sums up the times in which the process did not run although it had something to do.
type Pauses struct {
	Longest time.Duration // also where it is too short to be counted
	Count   int           // of those longer than LateAfter
	Sum     time.Duration // of these
}

// add notes how late the goroutine ran.
func (p *Pauses) add(late time.Duration) {
	p.Longest = max(p.Longest, late)
	if late > LateAfter {
		p.Count++
		p.Sum += late
	}
}

// beat notes that the goroutine runs, and when it is to run next. It returns true when a pause has ended.
func (p *pauses) beat(now, next time.Duration) (paused bool) {
	if paused = p.expected != 0 && now-p.expected > LateAfter; paused {
		p.known = append(p.known, pause{p.expected, now})
	}
	p.expected = next
	return paused
}

// forget drops the pauses that later starts do not need.
func (p *pauses) forget(start time.Duration) {
	for len(p.known) > 0 && p.known[0].to < start {
		p.known = p.known[1:]
	}
}

// cover tells whether an intended start falls into a pause, also into one whose end the goroutine has not noted yet.
func (p *pauses) cover(start, now time.Duration) bool {
	i := sort.Search(len(p.known), func(i int) bool { return p.known[i].to >= start })
	if i < len(p.known) && p.known[i].from <= start {
		return true
	}
	return p.expected != 0 && now-p.expected > LateAfter && start >= p.expected
}
