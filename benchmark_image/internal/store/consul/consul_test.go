package consul

import (
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/store"
)

// TestReadsAskForTheirConsistency: Consul's default one has a parameter of neither of the others.
func TestReadsAskForTheirConsistency(t *testing.T) {
	for _, c := range []struct {
		protocol     Protocol
		serializable bool
		want         string
	}{
		{Protocol{}, false, "GET /v1/kv/k?raw&consistent HTTP/1.1\r\n"},
		{Protocol{}, true, "GET /v1/kv/k?raw&stale HTTP/1.1\r\n"},
		{Protocol{Default: true}, true, "GET /v1/kv/k?raw HTTP/1.1\r\n"},
	} {
		conn := c.protocol.NewConn("m:1")
		read := &store.Request{Operation: store.Get, Key: []byte("k"), Serializable: c.serializable}
		if !conn.Start(c.protocol.NewCall(nil), read, new([]byte)) {
			t.Fatal("it takes no request")
		}
		if sent := string(conn.Output()); !strings.HasPrefix(sent, c.want) {
			t.Errorf("%+v: %q, want %q", c.protocol, sent, c.want)
		}
	}
}
