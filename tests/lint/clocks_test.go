package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLint has small packages in which some lines, those that end in "// NAME", must be found, and no others.
func TestLint(t *testing.T) {
	for name, files := range map[string][]string{
		"each clock": {`//go:build plumbing

package p
import (
	"context"
	"net"
	"time"
	rt "example/link_emulator/realtime"
	"golang.org/x/sys/unix"
)
const short = 2 * time.Second
var began = time.Now() // time.Now
func TestX(t *testing.T) {
	time.Sleep(short) // time.Sleep
	wait := time.After // time.After
	_ = rt.Now() // realtime.Now
	unix.ClockGettime(1, nil) // unix.ClockGettime
	context.WithTimeout(nil, 10*short+time.Duration(39)*time.Second) // context.WithTimeout of 59s
	context.WithTimeout(nil, 30*short)
	context.WithTimeout(nil, unknown)
	net.DialTimeout("tcp", "a:1", time.Millisecond) // net.DialTimeout of 1ms
	time.Unix(0, 0)
	thing.Now()
}`},
		"bubbles": {`package p
import (
	"testing/synctest"
	"time"
)
func TestX(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { time.Sleep(1); simulated(); mixed(); s := sleeper{} })
	mixed()
	synctest.Test(t, named)
	synctest.Test(t, both)
	both(t)
	simulate(t, inside, time.Now()) // time.Now
	notOnly(t, outside)
}
func simulated() { time.Sleep(1); deeper() }
func simulate(t *testing.T, run func(), at time.Time) { synctest.Test(t, func(*testing.T) { run() }) }
func notOnly(t *testing.T, run func()) {
	run()
	synctest.Test(t, func(*testing.T) { run() })
}
func inside() { time.Sleep(1) }
func outside() { time.Sleep(1) } // time.Sleep
func named(t *testing.T) { time.Sleep(1) }
func both(t *testing.T) { time.Sleep(1) } // time.Sleep
`, `package p
import "time"
func deeper() { time.Now(); simulated() }
func mixed() { time.Now() } // time.Now
type sleeper struct{}
func (s *sleeper) Read() { time.Sleep(1) }
type loop[T any] struct{}
func (l *loop[T]) Read() { time.Sleep(1) } // time.Sleep
var _ = loop[int]{}
`},
		"benchmarks": {`package p
import "time"
func BenchmarkX(b *testing.B) { time.Now(); helper() }
func helper() { time.Now() }
`},
		"exact": {`package p
import (
	"net/http/httptest"
	"os/exec"
)
func TestX(t *testing.T) {
	httptest.NewServer(nil) // httptest.NewServer
	start := exec.Command // exec.Command
	httptest.NewRecorder()
}
`},
		"measurements": {"//go:build measure && root\n\npackage p\nimport \"time\"\nfunc TestX() { time.Now() }\n"},
		"plumbing": {"//go:build plumbing\n\npackage p\nimport \"time\"\nfunc TestX() { time.Now() } // time.Now\n",
			"//go:build plumbing || measure\n\npackage p\nimport \"net\"\nfunc TestY() { net.Dial() } // net.Dial\n",
			"//go:build plumbing || root\n\npackage p\nimport \"net\"\nfunc TestZ() { net.Dial() }\n"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var paths []string
			var want, got []string
			for i, text := range files {
				path := filepath.Join(t.TempDir(), fmt.Sprintf("%d_test.go", i))
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				paths = append(paths, path)
				for line, code := range strings.Split(text, "\n") {
					if _, finding, found := strings.Cut(code, " // "); found {
						want = append(want, fmt.Sprintf("%s:%d: %s", path, line+1, finding))
					}
				}
			}
			found, err := lint(paths)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				got = append(got, fmt.Sprintf("%s:%d: %s", f.at.Filename, f.at.Line, f.name))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
