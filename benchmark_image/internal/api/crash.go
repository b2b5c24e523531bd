package api

import (
	"bytes"
	"regexp"
)

// How the Go runtime begins to tell a crash (runtime/panic.go, signal_unix.go, proc.go, malloc.go), and lines with its
// details that come before that one. The driver has the same in base/programs.py.
var (
	crashHead   = regexp.MustCompile(`^(?:panic|fatal error|SIG[A-Z0-9]+): `)
	crashDetail = regexp.MustCompile(`^(?:runtime(?:/cgo)?: |unexpected fault address )`)
)

// crashLine finds the first line of a Go crash, the one that says what happened, among lines as they come: a dump of
// any length follows it.
type crashLine struct {
	detail []byte
	first  []byte // nil until a crash was seen
}

func (c *crashLine) take(line []byte) {
	switch {
	case c.first != nil:
	case crashHead.Match(line):
		if c.first = c.detail; c.first == nil {
			c.first = bytes.Clone(line)
		}
	case !crashDetail.Match(line):
		c.detail = nil
	case c.detail == nil:
		c.detail = bytes.Clone(line)
	}
}
