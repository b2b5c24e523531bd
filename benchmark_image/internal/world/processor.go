package world

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Processor is what this process has had of the machine's cores so far, and what its threads have waited for them.
type Processor struct {
	used  time.Duration         // CPU time, user and system
	waits map[string]threadWait // by thread; nil where the kernel does not account for that
}

// threadWait is how long a thread was runnable and did not run, and how often it got a core.
type threadWait struct {
	delay  time.Duration
	slices int64
}

// RunDelay is how long the generator's threads waited for a core.
type RunDelay struct {
	Sum  time.Duration // of all of them
	Mean time.Duration // each time that it woke, of the thread that waited longest in all: the one that sends and receives
}

// processorNow reads the accounts of the kernel.
func processorNow() Processor {
	var p Processor
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		p.used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	p.waits = waitsOf("/proc/self/task")
	return p
}

// waitsOf reads the second and third field of every thread's schedstat; nil where the kernel has no such account
// (CONFIG_SCHED_INFO). A thread that has ended is in it no more; the threads of a Go process seldom end.
func waitsOf(tasks string) map[string]threadWait {
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	var waits map[string]threadWait
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "schedstat"))
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(text))
		if len(fields) != 3 {
			return nil
		}
		ns, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return nil
		}
		slices, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil
		}
		if waits == nil {
			waits = make(map[string]threadWait, len(threads))
		}
		waits[thread.Name()] = threadWait{time.Duration(ns), slices}
	}
	return waits
}

// Since is what has been used and waited for since before; the delay is nil where it is not known.
func (p Processor) Since(before Processor) (used time.Duration, delay *RunDelay) {
	if p.waits != nil && before.waits != nil {
		delay = &RunDelay{}
		longest := time.Duration(0)
		for thread, now := range p.waits {
			was := before.waits[thread] // of a thread that was not there before: nothing
			waited := max(now.delay-was.delay, 0)
			delay.Sum += waited
			if waited > longest {
				longest = waited
				delay.Mean = waited / time.Duration(max(now.slices-was.slices, 1))
			}
		}
	}
	return p.used - before.used, delay
}
