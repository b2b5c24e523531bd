package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestTheLastHistoryIsKept fetches what a benchmark left, also after one that kept none, until the next one that does.
func TestTheLastHistoryIsKept(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	url, h := start(t)
	write := func(more string) {
		t.Helper()
		body := fmt.Sprintf(`{"endpoints":%q,"keySize":4,"valSize":64%s}`, cluster.Members[0].Endpoint, more)
		if status, _, answer := send(t, http.MethodPost, url+"/benchmark/write", body); status != http.StatusOK {
			t.Fatalf("%d: %s", status, answer)
		}
	}
	operations := func() (count int) {
		t.Helper()
		response, err := http.Get(url + "/benchmark/history")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || response.ContentLength != int64(len(all)) ||
			response.Header.Get("Content-Type") != "application/gzip" {
			t.Fatalf("%d, %d bytes of %d, %v", response.StatusCode, len(all), response.ContentLength, err)
		}
		if _, err := history.Read(bytes.NewReader(all), func(history.Operation) { count++ }); err != nil {
			t.Error(err)
		}
		return count
	}
	if status, _, answer := send(t, http.MethodGet, url+"/benchmark/history",
		""); status != http.StatusNotFound || !strings.Contains(string(answer), "no benchmark") {
		t.Errorf("before any: %d: %s", status, answer)
	}
	write(`,"total":30,"history":true`)
	write(`,"total":5`)
	if got := operations(); got != 30 {
		t.Errorf("%d operations, want 30", got)
	}
	write(`,"total":40,"history":true`)
	if got := operations(); got != 40 {
		t.Errorf("%d operations, want 40", got)
	}
	h.Runner.Forget()
	left, err := filepath.Glob(filepath.Join(h.Runner.Results.dir, "*history*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if status, _, _ := send(t, http.MethodGet, url+"/benchmark/history", ""); status != http.StatusNotFound {
		t.Errorf("afterwards: %d", status)
	}
}
