// Package hang is the only real time of tests that gate: a deadline against hanging, which decides nothing else.
package hang

import (
	"context"
	"testing"
	"time"
)

// Limit is after how long something hangs, rather than being slow.
const Limit = time.Minute

func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := Deadline(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", Limit, what)
		}
	}
}

// Deadline is when what begins now hangs.
func Deadline() time.Time { return time.Now().Add(Limit) }

// Context is a test's, and ends when what begins now hangs.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Midway is readable in the middle of a real load that has lasted for d, or later: no test judges when.
func Midway(d time.Duration) <-chan time.Time { return time.After(d) }
