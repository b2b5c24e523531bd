package realtime

import _ "unsafe" // for go:linkname

// Pin disables preemption of the calling goroutine by the Go scheduler until Unpin. In between, the goroutine must not
// block on a channel, a mutex or an ordinary system call.
//
// Reason: every 10 ms the runtime asks a running goroutine to yield. A goroutine that is locked to its thread then
// sleeps until another runtime thread hands control back to it. That thread has ordinary priority, so on a busy machine
// the data path could stall for an unbounded time in spite of its own priority. The names are among those that the
// runtime keeps stable for outside users ("hall of shame" in runtime/proc.go).
//
//go:linkname Pin runtime.procPin
func Pin() int

// Unpin enables preemption again.
//
//go:linkname Unpin runtime.procUnpin
func Unpin()
