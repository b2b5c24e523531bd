package loop

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keepOn keeps the calling thread on one core and reads that back. Threads that the runtime starts later do not inherit
// it: it starts none from a locked thread (runtime/proc.go, startTemplateThread).
func keepOn(core int) error {
	var wanted, held unix.CPUSet
	wanted.Set(core)
	if err := unix.SchedSetaffinity(0, &wanted); err != nil {
		return fmt.Errorf("sched_setaffinity of the data thread to core %d: %w", core, err)
	}
	if err := unix.SchedGetaffinity(0, &held); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	if held != wanted {
		return fmt.Errorf("the data thread is not kept on core %d: the kernel has another mask", core)
	}
	return nil
}
