//go:build plumbing

package loop

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAThreadIsKeptOnOneCore(t *testing.T) {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var allowed unix.CPUSet
		if err := unix.SchedGetaffinity(0, &allowed); err != nil {
			failed <- err
			return
		}
		last := -1
		for core := range len(allowed) * 64 {
			if allowed.IsSet(core) {
				last = core
			}
		}
		if err := keepOn(last); err != nil {
			failed <- err
			return
		}
		var held unix.CPUSet
		err := unix.SchedGetaffinity(0, &held)
		if held.Count() != 1 || !held.IsSet(last) {
			t.Errorf("held %v, want core %d alone", held, last)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if err := keepOn(1023); err == nil {
		t.Error("a core that this machine does not have was accepted")
	}
}
