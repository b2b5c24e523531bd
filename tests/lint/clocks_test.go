package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = `package p
import (
	"context"
	"net"
	"net/http/httptest"
	"os/exec"
	"time"
	rt "example/link_emulator/realtime"
	"golang.org/x/sys/unix"
)
var began = time.Now() // time.Now
func TestX(t *testing.T) {
	wait := time.After // time.After
	_ = rt.Now() // realtime.Now
	unix.ClockGettime(1, nil) // unix.ClockGettime
	context.WithTimeout(nil, time.Hour) // context.WithTimeout
	net.DialTimeout("tcp", "a:1", time.Millisecond) // net.DialTimeout
	time.Unix(0, 0)
	thing.Now()
	net.Dial() // exact net.Dial
	httptest.NewServer(nil) // exact httptest.NewServer
	start := exec.Command // exact exec.Command
	httptest.NewRecorder()
}
func (b thing) Benchmark() { time.Tick(1) } // time.Tick
func BenchmarkX(b *testing.B) { time.Now() }
`

// TestLint has a file, with each build tag, in which the lines that end in "// NAME" must be found, and no others;
// those with "// exact NAME" only where the file is one of exact tests.
func TestLint(t *testing.T) {
	for tags, kind := range map[string]string{
		"": "exact", "plumbing": "plumbing", "plumbing || measure": "exact", "plumbing || root": "plumbing",
		"measure && root": "measured",
	} {
		text := "\n\n" + source
		if tags != "" {
			text = "//go:build " + tags + text
		}
		path := filepath.Join(t.TempDir(), "a_test.go")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var want []string
		for line, code := range strings.Split(text, "\n") {
			_, finding, found := strings.Cut(code, " // ")
			name, ofExact := strings.CutPrefix(finding, "exact ")
			if found && kind != "measured" && (!ofExact || kind == "exact") {
				want = append(want, fmt.Sprintf("%s:%d: %s", path, line+1, name))
			}
		}
		if found, err := lint(path); err != nil || !slices.Equal(found, want) {
			t.Errorf("%q: found %q, %v; want %q", tags, found, err, want)
		}
	}
}
