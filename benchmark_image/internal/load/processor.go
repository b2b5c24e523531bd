package load

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processor is what this process has had of the machine's cores so far, and what it has waited for them.
type processor struct {
	used    time.Duration // CPU time, user and system
	delay   time.Duration // in which its threads were runnable and did not run, all together
	delayed bool          // whether the kernel accounts for that
}

// processorNow reads the accounts of the kernel.
func processorNow() processor {
	var p processor
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		p.used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	p.delay, p.delayed = runDelay("/proc/self/task")
	return p
}

// runDelay adds up the second field of every thread's schedstat; false where the kernel has no such account
// (CONFIG_SCHED_INFO). A thread that has ended is in it no more; the threads of a Go process seldom end.
func runDelay(tasks string) (delay time.Duration, known bool) {
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0, false
	}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "schedstat"))
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(text))
		if len(fields) != 3 {
			return 0, false
		}
		ns, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, false
		}
		delay, known = delay+time.Duration(ns), true
	}
	return delay, known
}

// since is what has been used and waited for since before; the delay is nil where it is not known.
func (p processor) since(before processor) (used time.Duration, delay *time.Duration) {
	if p.delayed && before.delayed {
		waited := max(p.delay-before.delay, 0)
		delay = &waited
	}
	return p.used - before.used, delay
}
