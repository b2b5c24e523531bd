package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

// TestFlagsAreCheckedBeforeAnythingIsServed has a folder with one of the two clients.
func TestFlagsAreCheckedBeforeAnythingIsServed(t *testing.T) {
	client := filepath.Join(t.TempDir(), "benchmark-client")
	assert.OK(t, os.WriteFile(client, nil, 0o700))
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"--allow=10.0.0.1", exitUsage, "--allow: \"10.0.0.1\" is not host:port"},
		{"--allow=local,10.0.0.0/40", exitUsage, "is not a subnet"},
		{"--help", 0, "(default \"127.0.0.1:8080\")"},
		{"--host=http://bench", exitUsage, "--host: \"http://bench\" is not a name alone"},
		{"--host=bench,bench:8080", exitUsage, "\"bench:8080\" is not a name alone"},
		{"--host=*", exitUsage, "is not a name alone"},
		{"--listen=nowhere --client=" + client, exitFailed, "find benchmark-client: stat " + client + "-tls: no such file"},
		{"--host=a,b --host=c.example --allow=local,etcd1:2379 --client=/nonexistent", exitFailed, "find benchmark-client"},
	} {
		var said strings.Builder
		status := run(strings.Fields(c.args), &said, &said)
		assert.That(t, status == c.status && strings.Contains(said.String(), c.want), "%s: status %d, %s", c.args, status,
			&said)
	}
}
