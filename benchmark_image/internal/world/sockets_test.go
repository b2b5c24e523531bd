//go:build plumbing

package world

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestASocketIsNotConnectedToItself gives a socket the port that it is to reach, as the kernel may.
func TestASocketIsNotConnectedToItself(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := connect(fd, addressOf(own)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connected to itself: %v", err)
	}
}
