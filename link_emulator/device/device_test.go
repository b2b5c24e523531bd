package device

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseDrops(t *testing.T) {
	// A line of /proc/net/dev after the colon: receive, then transmit; "drop" is the fourth column of each.
	drops, err := parseDrops("  1000      10    0    3    0     0          0         0     2000      20    0    7    " +
		"0     0       0          0")
	if want := (Drops{Queue: 7, Receive: 3}); err != nil || drops != want {
		t.Errorf("got %+v and %v, want %+v", drops, err, want)
	}
	for _, bad := range []string{"", "1 2 3", "a b c d e f g h i j k l m n o p"} {
		if _, err := parseDrops(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestFakeKeepsTheContract(t *testing.T) {
	near, far, err := NewFakePair(false)
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	if _, errno := near.Read(buffer); errno != unix.EAGAIN {
		t.Errorf("read of nothing: got %v, want EAGAIN", errno)
	}
	for _, frame := range []string{"one", "another"} { // frames keep their borders
		if errno := far.Write([]byte(frame)); errno != 0 {
			t.Fatal(errno)
		}
	}
	for _, want := range []string{"one", "another"} {
		if n, errno := near.Read(buffer); errno != 0 || string(buffer[:n]) != want {
			t.Errorf("got %q and %v, want %q", buffer[:n], errno, want)
		}
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	if _, errno := near.Read(buffer); errno != unix.EBADFD {
		t.Errorf("read after the other end closed: got %v, want EBADFD", errno)
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
}
