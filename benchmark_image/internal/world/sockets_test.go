//go:build plumbing

package world

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/benchmark_image/internal/assert"
)

// TestASocketIsNotConnectedToItself gives a socket the port that it is to reach, as the kernel may.
func TestASocketIsNotConnectedToItself(t *testing.T) {
	fd := assert.Got(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer func() { _ = unix.Close(fd) }()
	assert.OK(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	own := assert.Got(unix.Getsockname(fd))(t)
	problem := connect(fd, addressOf(own))
	assert.That(t, errors.Is(problem, unix.ECONNREFUSED), "connected to itself: %v", problem)
}
