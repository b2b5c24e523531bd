package device

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/netns"
)

// TestEnd is a device and its host side: frames written to one are read from the other.
type TestEnd struct{ Near, Far Device }

// OpenTestEnds creates two TAPs that are up, each with a packet socket on its interface, in a network namespace of
// their own that disappears when they are closed. stamps: the kernel is to stamp their frames.
func OpenTestEnds(stamps bool) (ends [2]TestEnd, err error) {
	err = netns.New(func() (err error) {
		for i := 0; i < len(ends) && err == nil; i++ {
			ends[i], err = openTestEnd(i, stamps)
		}
		return err
	})
	if err == nil {
		return ends, nil
	}
	for _, end := range ends {
		for _, opened := range [...]Device{end.Near, end.Far} {
			if opened != nil {
				err = errors.Join(err, opened.Close())
			}
		}
	}
	return [2]TestEnd{}, err
}

func openTestEnd(number int, stamps bool) (end TestEnd, err error) {
	spec := TapSpec{IfName: fmt.Sprintf("test%d", number), MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(number + 1)},
		MTU: 1500, Stamps: stamps}
	tap, err := openHere(spec)
	if err != nil {
		return end, err
	}
	end.Near = tap
	const etherType = 0xb588 // local experimental, in network byte order
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, etherType)
	if err != nil {
		return end, fmt.Errorf("open a packet socket: %w", err)
	}
	end.Far = FrameFD(socket)
	request, err := unix.NewIfreq(spec.IfName)
	if err != nil {
		return end, err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return end, fmt.Errorf("bring %q up: %w", spec.IfName, err)
	}
	device, err := net.InterfaceByName(spec.IfName)
	if err != nil {
		return end, err
	}
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: etherType, Ifindex: device.Index}); err != nil {
		return end, fmt.Errorf("bind a packet socket to %q: %w", spec.IfName, err)
	}
	return end, nil
}
