package emulator

import (
	"bytes"
	"hash/fnv"
	"net"
	"strconv"
)

// deriveMAC derives a stable address from the names of a port: locally administered and unicast (first octet 02), and
// not the address of another port.
func (e *Emulator) deriveMAC(name, ifName string) net.HardwareAddr {
	for attempt := 0; ; attempt++ {
		hash := fnv.New64a()
		hash.Write([]byte(name + "\x00" + ifName + "\x00" + strconv.Itoa(attempt)))
		sum := hash.Sum64()
		mac := net.HardwareAddr{0x02, byte(sum >> 32), byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
		if e.ownerOf(mac) == "" {
			return mac
		}
	}
}

// ownerOf is the port with an address, or empty.
func (e *Emulator) ownerOf(mac net.HardwareAddr) string {
	for name, p := range e.ports {
		if bytes.Equal(p.MAC, mac) {
			return name
		}
	}
	return ""
}
