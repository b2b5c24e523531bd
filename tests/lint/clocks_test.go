package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLint has small files in which some lines, those that end in "// NAME", must be found, and no others.
func TestLint(t *testing.T) {
	for name, text := range map[string]string{
		"each clock": `//go:build plumbing

package p
import (
	"context"
	"net"
	"time"
	rt "example/link_emulator/realtime"
	"golang.org/x/sys/unix"
)
var began = time.Now() // time.Now
func TestX(t *testing.T) {
	time.Sleep(1) // time.Sleep
	wait := time.After // time.After
	_ = rt.Now() // realtime.Now
	unix.ClockGettime(1, nil) // unix.ClockGettime
	context.WithTimeout(nil, time.Hour) // context.WithTimeout
	net.DialTimeout("tcp", "a:1", time.Millisecond) // net.DialTimeout
	time.Unix(0, 0)
	thing.Now()
	net.Dial()
}
func (b thing) Benchmark() { time.Tick(1) } // time.Tick
`,
		"benchmarks": `package p
import "time"
func BenchmarkX(b *testing.B) { time.Now() }
func helper() { time.Now() } // time.Now
`,
		"exact": `package p
import (
	"net/http/httptest"
	"os/exec"
)
func TestX(t *testing.T) {
	httptest.NewServer(nil) // httptest.NewServer
	start := exec.Command // exec.Command
	httptest.NewRecorder()
}
`,
		"measurements":         "//go:build measure && root\n\npackage p\nimport \"time\"\nfunc TestX() { time.Now() }\n",
		"plumbing or measured": "//go:build plumbing || measure\n\npackage p\nimport \"net\"\nfunc TestY() { net.Dial() } // net.Dial\n",
		"plumbing or root":     "//go:build plumbing || root\n\npackage p\nimport \"net\"\nfunc TestZ() { net.Dial() }\n",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a_test.go")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var want []string
			for line, code := range strings.Split(text, "\n") {
				if _, finding, found := strings.Cut(code, " // "); found {
					want = append(want, fmt.Sprintf("%s:%d: %s", path, line+1, finding))
				}
			}
			if found, err := lint(path); err != nil || !slices.Equal(found, want) {
				t.Errorf("found %q, %v; want %q", found, err, want)
			}
		})
	}
}
