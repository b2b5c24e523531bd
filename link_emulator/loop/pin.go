package loop

import _ "unsafe" // for go:linkname

// pin keeps the Go scheduler from taking the calling goroutine off its thread until unpin; between the two the goroutine must
// not block on a channel, a mutex or an ordinary system call.
//
// Reason: every 10 ms the runtime asks a running goroutine to yield. One that is locked to its thread then sleeps until another
// runtime thread hands control back to it. That other thread has ordinary priority, so on a busy machine the data
// path would stand still for as long as the load pleases, whatever its own priority. The names are among those that the
// runtime keeps for outside users ("hall of shame" in runtime/proc.go).
//
//go:linkname pin runtime.procPin
func pin() int

// unpin ends what pin began.
//
//go:linkname unpin runtime.procUnpin
func unpin()
