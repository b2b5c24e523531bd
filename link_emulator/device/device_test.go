package device

import (
	"testing"

	"containernet-env/link_emulator/assert"
)

func TestParseDrops(t *testing.T) {
	// A line of /proc/net/dev after the colon: receive, then transmit; "drop" is the fourth column of each.
	drops, err := parseDrops("  1000      10    0    3    0     0          0         0     2000      20    0    7    " +
		"0     0       0          0")
	want := (Drops{Queue: 7, Receive: 3})
	assert.That(t, err == nil && drops == want, "got %+v and %v, want %+v", drops, err, want)
	for _, bad := range []string{"", "1 2 3", "a b c d e f g h i j k l m n o p"} {
		_, err := parseDrops(bad)
		assert.That(t, err != nil, "%q was accepted", bad)
	}
}
