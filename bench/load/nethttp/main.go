// Command nethttp sends what benchmark-client sends for the store http, by Go's net/http: a closed loop of puts of
// sequential keys, or of gets of one key. Its report is JSON, with the fields of benchmark-client's that bench/load
// reads. It runs on as many cores, and lets its heap grow as much, as benchmark-client does.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	debug.SetGCPercent(400)
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	endpoints := flag.String("endpoints", "", "host:port, comma-separated: requests go to them in turn")
	path := flag.String("path", "", "target, with {key} for the key")
	conns := flag.Int("conns", 1, "connections to all endpoints together")
	clients := flag.Int("clients", 1, "clients")
	total := flag.Int("total", 1, "requests")
	prefix := flag.String("prefix", "", "of keys that are put")
	size := flag.Int("val-size", 0, "size of values that are put, in bytes; 0: get the path, which is that of one key")
	flag.Parse()
	members := strings.Split(*endpoints, ",")
	perMember := max(1, *conns/len(members))
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		MaxIdleConns: *conns + len(members), MaxIdleConnsPerHost: perMember, MaxConnsPerHost: perMember,
		DisableCompression: true,
	}}
	value := bytes.Repeat([]byte("v"), *size)
	took := make([]time.Duration, *total)
	var next, failed atomic.Int64
	var firstError atomic.Pointer[error]
	start := time.Now()
	var running sync.WaitGroup
	for range *clients {
		running.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= *total {
					return
				}
				target := "http://" + members[n%len(members)] + *path
				begin := time.Now()
				if err := send(client, target, *prefix, n, value); err != nil {
					failed.Add(1)
					firstError.CompareAndSwap(nil, &err)
				}
				took[n] = time.Since(begin)
			}
		})
	}
	running.Wait()
	seconds := time.Since(start).Seconds()
	slices.Sort(took)
	report := map[string]any{
		"ok": *total - int(failed.Load()), "failed": failed.Load(), "reason": nil, "errors": map[string]int{},
		"total_s":        seconds,
		"requests_per_s": float64(*total) / seconds,
		"percentiles_s":  map[string]float64{"50": took[*total/2].Seconds(), "99": took[*total*99/100].Seconds()},
	}
	if err := firstError.Load(); err != nil {
		report["errors"] = map[string]int64{(*err).Error(): failed.Load()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		log.Fatal(err)
	}
}

func send(client *http.Client, target, prefix string, n int, value []byte) error {
	method, body := http.MethodGet, io.Reader(nil)
	if len(value) > 0 {
		method, body = http.MethodPut, bytes.NewReader(value)
		target = strings.Replace(target, "{key}", prefix+digits(n), 1)
	}
	request, err := http.NewRequest(method, target, body)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// digits names a key as benchmark-client does.
func digits(n int) string {
	const all = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	name := []byte("00000000")
	for i := len(name) - 1; n > 0; i-- {
		name[i] = all[n%len(all)]
		n /= len(all)
	}
	return string(name)
}
