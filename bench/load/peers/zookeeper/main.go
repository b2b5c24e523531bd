// Command zookeeper-peer is the load of bench/load through go-zookeeper: a closed loop of creates, or of reads of one
// znode, of the same sizes and numbers as benchmark-client's.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"containernet-env/bench/load/peers"
)

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "zookeeper-peer: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	endpoint := flag.String("endpoint", "", "host:port of a member")
	operation := flag.String("operation", "put", "put, range-s or range-l")
	conns := flag.Int("conns", 1, "sessions")
	clients := flag.Int("clients", 1, "clients, each with one request in flight")
	total := flag.Int("total", 1, "requests")
	prefix := flag.String("prefix", "", "in front of each key's number, or the key to read")
	size := flag.Int("val-size", 64, "bytes of a value")
	flag.Parse()

	sessions := make([]*zk.Conn, *conns)
	for i := range sessions {
		c, events, err := zk.Connect([]string{*endpoint}, 30*time.Second, zk.WithLogger(quiet{}))
		if err != nil {
			return err
		}
		defer c.Close()
		sessions[i] = c
		for e := range events {
			if e.State == zk.StateHasSession {
				break
			}
		}
		go func() {
			for range events { // nobody else takes them
			}
		}()
	}
	value := make([]byte, *size)
	return peers.Run(*clients, *total, func(client, number int) error {
		return request(sessions[client%*conns], *operation, *prefix, number, value)
	})
}

func request(c *zk.Conn, operation, prefix string, number int, value []byte) error {
	switch operation {
	case "put":
		_, err := c.Create(fmt.Sprintf("/%s%08d", prefix, number), value, 0, zk.WorldACL(zk.PermAll))
		return err
	case "range-l":
		if _, err := c.Sync("/" + prefix); err != nil {
			return err
		}
	}
	data, _, err := c.Get("/" + prefix)
	if err == nil && len(data) != len(value) {
		err = fmt.Errorf("a value of %d bytes", len(data))
	}
	return err
}
