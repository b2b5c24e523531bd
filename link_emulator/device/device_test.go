package device

import (
	"testing"

	"containernet-env/link_emulator/assert"
)

func TestParseDrops(t *testing.T) {
	const table = "Inter-| Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" +
		"h1-eth0:  1000 10 0 3 0 0 0 0  2000 20 0 7 0 0 0 0\n"
	drops, err := parseDrops(table, "h1-eth0")
	want := (Drops{Queue: 7, Receive: 3})
	assert.That(t, err == nil && drops == want, "got %+v and %v, want %+v", drops, err, want)
	for _, bad := range []string{"", table + "e: 1 2 3", "e: a b c d e f g h i j k l m n o p", "e: 1"} {
		_, err := parseDrops(bad, "e")
		assert.That(t, err != nil, "%q was accepted", bad)
	}
}
