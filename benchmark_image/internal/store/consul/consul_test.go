package consul

import (
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/store"
)

// TestEveryRequestCarriesTheToken: of a connection that has one.
func TestEveryRequestCarriesTheToken(t *testing.T) {
	const header = "\r\nX-Consul-Token: t-1\r\n"
	for operation := range map[store.Operation]bool{store.Put: true, store.Get: true, store.Transaction: true,
		store.Status: true, store.Locate: true} {
		for _, token := range []string{"t-1", ""} {
			protocol := Protocol{Token: token}
			conn := protocol.NewConn("m:1")
			if !conn.Start(protocol.NewCall(nil), &store.Request{Operation: operation, Key: []byte("k")}, new([]byte)) {
				t.Fatal("it takes no request")
			}
			head, _, _ := strings.Cut(string(conn.Output()), "\r\n\r\n")
			carried := strings.Contains(head+"\r\n", header)
			if carried != (token != "") || strings.Contains(head, "X-Consul-Token") != carried {
				t.Errorf("operation %v with the token %q: %q", operation, token, head)
			}
		}
	}
}

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
