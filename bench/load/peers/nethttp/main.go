// Command nethttp sends what benchmark-client sends for the store http, by Go's net/http: a closed loop of puts of
// sequential keys, or of gets of one key. It runs on as many cores, and lets its heap grow as much, as benchmark-client
// does.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"containernet-env/bench/load/peers"
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
	if err := peers.Run(*clients, *total, func(_, n int) error {
		return send(client, "http://"+members[n%len(members)]+*path, *prefix, n, value)
	}); err != nil {
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
