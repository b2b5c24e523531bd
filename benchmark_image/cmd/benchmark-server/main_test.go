package main

import (
	"io"
	"strings"
	"testing"
)

func TestFlagsAreCheckedBeforeAnythingIsServed(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"--allow=10.0.0.1", exitUsage, "--allow: \"10.0.0.1\" is not host:port"},
		{"--allow=local,10.0.0.0/40", exitUsage, "is not a subnet"},
		{"--host=http://bench", exitUsage, "--host: \"http://bench\" is not a name alone"},
		{"--host=bench,bench:8080", exitUsage, "\"bench:8080\" is not a name alone"},
		{"--host=*", exitUsage, "is not a name alone"},
		{"--host=a,b --host=c.example --allow=local,etcd1:2379 --client=/nonexistent", exitFailed, "find benchmark-client"},
	} {
		var said strings.Builder
		if status := run(strings.Fields(c.args), io.Discard, &said); status != c.status || !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: status %d, %s", c.args, status, &said)
		}
	}
}
