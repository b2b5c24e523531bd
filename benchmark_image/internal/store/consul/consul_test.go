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

// TestRequests carry the token of a connection that has one. Consul's default consistency has a parameter of neither of
// the others.
func TestRequests(t *testing.T) {
	for begin, c := range map[string]struct {
		r         store.Request
		byDefault bool
	}{
		"GET /v1/kv/k?raw&consistent ": {store.Request{Operation: store.Get}, false},
		"GET /v1/kv/k?raw&stale ":      {store.Request{Operation: store.Get, Serializable: true}, false},
		"GET /v1/kv/k?raw ":            {store.Request{Operation: store.Get, Serializable: true}, true},
		"PUT /v1/kv/k ":                {store.Request{Operation: store.Put}, false},
		"PUT /v1/txn ":                 {store.Request{Operation: store.Transaction}, false},
		"GET /v1/agent/self ":          {store.Request{Operation: store.Status}, false},
		"GET /v1/status/leader ":       {store.Request{Operation: store.Locate}, false},
	} {
		for _, token := range []string{"t-1", ""} {
			protocol := Protocol{Token: token, Default: c.byDefault}
			conn := protocol.NewConn("m:1")
			c.r.Key = []byte("k")
			assert.Must(t, conn.Start(protocol.NewCall(nil), &c.r, new([]byte)), "it takes no request")
			head, _, _ := strings.Cut(string(conn.Output()), "\r\n\r\n")
			assert.That(t, strings.HasPrefix(head, begin+"HTTP/1.1\r\n") &&
				strings.Contains(head+"\r\n", "\r\nX-Consul-Token: t-1\r\n") == (token != "") &&
				strings.Contains(head, "X-Consul-Token") == (token != ""), "the token %q: %q, want %s", token, head, begin)
		}
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
