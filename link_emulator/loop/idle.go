package loop

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// latencyDevice takes a request for the longest wake-up of idle processors, in us as a native int32; it holds as long as the file is open
// (Documentation/power/pm_qos_interface.rst in the kernel's sources).
const latencyDevice = "/dev/cpu_dma_latency"

// stayAwake asks that idle processors stay in their shallowest state, where they look for work all the time. Waking one from a deeper state takes
// some 30 us in a virtual machine and up to 200 us on a laptop, other times on every occasion, so that it cannot be taken out of a delay.
// Close the descriptor to give it back; the kernel does when the process ends.
func stayAwake() (fd int, err error) {
	fd, err = unix.Open(latencyDevice, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", latencyDevice, err)
	}
	var none [4]byte
	binary.NativeEndian.PutUint32(none[:], 0)
	if _, err := unix.Write(fd, none[:]); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("write to %s: %w", latencyDevice, err)
	}
	return fd, nil
}
