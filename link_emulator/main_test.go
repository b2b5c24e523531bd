package main

import (
	"bytes"
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		arguments string
		stdin     string
		status    int
		stdout    string // what it begins with
		stderr    string // what it contains
	}{
		{arguments: "--version", stdout: "link-emulator dev\n"},
		{arguments: "--help", stdout: "usage:"},
		{arguments: "", status: exitUsage, stderr: "usage:"},
		{arguments: "nonsense", status: exitUsage, stderr: "usage:"},
		{arguments: "--version x", status: exitUsage, stderr: "usage:"},
		{arguments: "serve", status: exitUsage, stderr: "--control-fd"},
		{arguments: "serve --control-fd 1", status: exitUsage, stderr: "--control-fd"},
		{arguments: "serve --control-fd 9999", status: exitUsage, stderr: "--control-fd"},
		{arguments: "serve --control-fd 3 more", status: exitUsage, stderr: `"more"`},
		{arguments: "serve --control-fd 3 --buffer-bytes 1", status: exitUsage, stderr: "--buffer-bytes"},
		{arguments: "serve --control-fd 3 --stamps none", status: exitUsage,
			stderr: `--stamps: got "none", allowed: kernel, read`},
		{arguments: "serve --control-fd 3 --core -2", status: exitUsage, stderr: "--core"},
		{arguments: "serve --nonsense", status: exitUsage, stderr: "nonsense"},
		{arguments: "rtt", stdin: "{}", status: exitUsage, stderr: "hosts: got 0, allowed: 2 to 256"},
		{arguments: "rtt more", status: exitUsage, stderr: `"more"`},
		{arguments: "rtt --life-fd 1", status: exitUsage, stderr: "--life-fd"},
		{arguments: "rtt --life-fd 9999", status: exitUsage, stderr: "--life-fd"},
		{arguments: "probe", stdin: "{}", status: exitUsage, stderr: "probe: hosts: got 0, allowed: 2 to 256"},
		{arguments: "simulate", stdin: "{}", status: exitUsage, stderr: "simulate: hosts: got 0, allowed: 2 to 256"},
		{arguments: "probe more", status: exitUsage, stderr: `probe: unexpected argument "more"`},
	} {
		var stdout, stderr bytes.Buffer
		status := run(strings.Fields(c.arguments), strings.NewReader(c.stdin), &stdout, &stderr)
		assert.That(t, status == c.status && strings.HasPrefix(stdout.String(), c.stdout) &&
			strings.Contains(stderr.String(), c.stderr), "%q: exit %d, stdout %q, stderr %q; want exit %d, %q, %q",
			c.arguments, status, stdout.String(), stderr.String(), c.status, c.stdout, c.stderr)
	}
}
