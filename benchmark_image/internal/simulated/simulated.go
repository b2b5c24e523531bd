// Package simulated is the time of tests in bubbles of testing/synctest, and of nothing else.
package simulated

import "time"

// inBubble refuses to run in real time: the time of a bubble begins in the year 2000.
func inBubble() {
	if time.Now().Year() > 2020 {
		panic("real time in a test: call synctest.Test")
	}
}

// Sleep is time.Sleep.
func Sleep(d time.Duration) {
	inBubble()
	time.Sleep(d)
}

// Now is time.Now.
func Now() time.Time {
	inBubble()
	return time.Now()
}

// After is time.After.
func After(d time.Duration) <-chan time.Time {
	inBubble()
	return time.After(d)
}
