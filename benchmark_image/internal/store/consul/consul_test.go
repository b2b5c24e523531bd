package consul

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/inputtest"
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
			assert.Must(t, conn.Start(protocol.NewCall(nil), &store.Request{Operation: operation, Key: []byte("k")},
				new([]byte)), "it takes no request")
			head, _, _ := strings.Cut(string(conn.Output()), "\r\n\r\n")
			carried := strings.Contains(head+"\r\n", header)
			assert.That(t, carried == (token != "") && strings.Contains(head, "X-Consul-Token") == carried,
				"operation %v with the token %q: %q", operation, token, head)
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
		assert.Must(t, conn.Start(c.protocol.NewCall(nil), read, new([]byte)), "it takes no request")
		sent := string(conn.Output())
		assert.That(t, strings.HasPrefix(sent, c.want), "%+v: %q, want %q", c.protocol, sent, c.want)
	}
}

// FuzzRewrite has net/http and encoding/json read a transaction.
func FuzzRewrite(native *testing.F) {
	f := inputtest.F{F: native}
	f.Add("key", []byte("head"), []byte("the rest"))
	f.Add("", []byte(nil), []byte(nil))
	f.Add("ключ \"\\\x01\n\u2028<&>", []byte("1"), []byte("2"))
	f.Add("k", []byte("12"), []byte(nil))
	f.Add("k", make([]byte, 20), make([]byte, 30_000))
	f.Fuzz(func(t *testing.T, key string, head, tail []byte) {
		if !utf8.ValidString(key) {
			t.Skip("keys are Unicode text")
		}
		r := store.Request{Key: []byte(key), Head: head, Value: tail}
		sent := appendRewrite(nil, http1.Ending("m:1"), &r)
		from := bufio.NewReader(bytes.NewReader(sent))
		request, err := http.ReadRequest(from)
		assert.Must(t, err == nil, "%q: %v", sent, err)
		body, err := io.ReadAll(request.Body)
		if left := from.Buffered(); err != nil || left > 0 || request.URL.Path != "/v1/txn" || request.Method != "PUT" {
			t.Fatalf("%q: %v, %d bytes left", sent, err, left)
		}
		var operations []struct {
			KV struct {
				Verb, Key string
				Value     []byte
			}
		}
		problem := json.Unmarshal(body, &operations)
		assert.Must(t, problem == nil && len(operations) == 2, "%q: %v", body, problem)
		get, set := operations[0].KV, operations[1].KV
		assert.That(t, get.Verb == "get" && set.Verb == "set" && get.Key == key && set.Key == key &&
			bytes.Equal(set.Value, append(append([]byte(nil), head...), tail...)), "%q", body)
	})
}

func TestTheIndexOfATransaction(t *testing.T) {
	for body, want := range map[string]int64{
		`{"Results":[{"KV":{"Key":"k","Value":"djE=","CreateIndex":14,"ModifyIndex":17}},` +
			`{"KV":{"Key":"k","Value":null,"ModifyIndex":23}}],"Errors":null}`: 23,
		`{"Results": [{"KV": {"Key": "\"ModifyIndex\":99", "ModifyIndex": 23, "CreateIndex": 14}}]}`: 23,
		`{"Results":[]}`:                        0,
		``:                                      0,
		`"ModifyIndex":`:                        0,
		`"ModifyIndex":99999999999999999999999`: 0,
	} {
		got := lastIndex([]byte(body))
		assert.That(t, got == want, "%s: %d, expected %d", body, got, want)
	}
}
