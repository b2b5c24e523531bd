//go:build plumbing

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// startReal serves the interface with the real benchmark-client.
func startReal(t testing.TB) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "benchmark-client")
	if text, err := exec.Command("go", "build", "-o", path, "../../cmd/benchmark-client").CombinedOutput(); err != nil {
		t.Fatalf("build the client: %v: %s", err, text)
	}
	return serve(t, path)
}

// peak is the largest resident memory of the client so far, in bytes; false once it has ended.
func (c *Children) peak() (bytes int64, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid := range c.own {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, after, found := strings.Cut(string(text), "VmHWM:")
		if err != nil || !found {
			return 0, false
		}
		kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
		return kib << 10, err == nil
	}
	return 0, false
}

// BenchmarkTwelveMillionRanges measures, once, what the client takes for a long run, and how long its report takes
// after a cancel:
//
//	go test -tags plumbing -run - -bench TwelveMillion -benchtime 1x ./internal/api
func BenchmarkTwelveMillionRanges(b *testing.B) {
	const total, most = 12_000_000, 64 << 20
	for name, c := range map[string]struct {
		fields string
		cancel bool
	}{
		"closed": {fmt.Sprintf(`"total":%d`, total), false},
		"open":   {`"rate":20000,"arrival":"poisson","duration":75`, false},
		"cancel": {fmt.Sprintf(`"total":%d`, 10*total), true},
	} {
		b.Run(name, func(b *testing.B) {
			s := startReal(b)
			children := &Children{}
			s.Runner.Start = children.Start
			body := fmt.Sprintf(`{"endpoints":%q,"clients":1000,"conns":10,"key":"k","consistency":"s",`+
				`"timelineInterval":0.1,%s}`, etcdtest.CannedMember(b, []byte("value")), c.fields)
			ctx, leave := context.WithCancel(b.Context())
			defer leave()
			request, err := http.NewRequestWithContext(ctx, "POST", s.url+"/benchmark/read", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			answered := make(chan error, 1)
			go func() {
				response, err := http.DefaultClient.Do(request)
				if err == nil {
					err = response.Body.Close()
				}
				answered <- err
			}()
			job := runningJob(b, s.Handler)
			var largest int64
			var ended time.Time
			for running := true; running; {
				now, known := children.peak()
				if largest = max(largest, now); known && c.cancel && ended.IsZero() && s.Runner.Status().Done > total/4 {
					ended = time.Now()
					leave()
				}
				time.Sleep(2 * time.Millisecond)
				status := s.Runner.Status()
				running = status.Running
			}
			if err := <-answered; (err != nil) != c.cancel {
				b.Error(err)
			}
			status, _, answer := s.send("GET", spec.ResultPath+job, "")
			result := new(report.Result)
			if c.cancel {
				failed := failure{Result: result}
				err = json.Unmarshal(answer, &failed)
				b.ReportMetric(float64(time.Since(ended).Milliseconds()), "ms-to-report")
			} else {
				err = json.Unmarshal(answer, result)
				reporttest.Check(b, answer)
			}
			if err != nil || status != map[bool]int{false: 200,
				true: 500}[c.cancel] || result.Percentiles != report.InHistogram {
				b.Fatalf("%d %v, %s", status, err, slices.Sorted(maps.Keys(result.Errors)))
			}
			b.ReportMetric(float64(largest)/1e6, "MB-RSS")
			b.ReportMetric(result.RequestsPerS, "requests/s")
			b.ReportMetric(result.CPUS/float64(result.OK)*1e6, "us-CPU/request")
			b.ReportMetric(float64(result.OK), "requests")
			if largest > most {
				b.Errorf("the client had %d bytes, at most %d are allowed", largest, most)
			}
		})
	}
}
