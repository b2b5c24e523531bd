package loop

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// latencyDevice takes the longest exit latency allowed for idle cores, in us as a native int32. The request holds while
// the file is open (Documentation/power/pm_qos_interface.rst in the kernel's sources).
const latencyDevice = "/dev/cpu_dma_latency"

// limitCStates keeps idle cores in their shallowest C-state, where they poll for work. Leaving a deeper state takes
// some 30 us in a virtual machine and up to 200 us on a laptop, and varies too much to be compensated. Closing the
// descriptor ends the request; the kernel closes it when the process ends.
func limitCStates() (fd int, err error) {
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
