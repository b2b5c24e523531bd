// Package peers is what the clients have in common that bench/load compares ours with.
package peers

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Run sends total requests in a closed loop of so many clients: request sends one, by its number and that of its
// client, both from 0 on. It prints a report as JSON, with the fields of benchmark-client's that bench/load reads.
func Run(clients, total int, request func(client, number int) error) error {
	took := make([]time.Duration, total)
	var next, failed atomic.Int64
	var firstError atomic.Pointer[error]
	start := time.Now()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= total {
					return
				}
				begin := time.Now()
				if err := request(client, number); err != nil {
					failed.Add(1)
					firstError.CompareAndSwap(nil, &err)
				}
				took[number] = time.Since(begin)
			}
		})
	}
	running.Wait()
	seconds := time.Since(start).Seconds()
	slices.Sort(took)
	report := map[string]any{
		"ok": total - int(failed.Load()), "failed": failed.Load(), "reason": nil, "errors": map[string]int{},
		"total_s":        seconds,
		"requests_per_s": float64(total) / seconds,
		"percentiles_s":  map[string]float64{"50": took[total/2].Seconds(), "99": took[total*99/100].Seconds()},
	}
	if err := firstError.Load(); err != nil {
		report["errors"] = map[string]int64{(*err).Error(): failed.Load()}
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
