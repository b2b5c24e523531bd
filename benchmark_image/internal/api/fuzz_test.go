package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
)

// asDecoder makes the test program a client that reads the benchmark it is given, as benchmark-client does, and reports
// one that it did not run.
const asDecoder = "TEST_AS_DECODER"

func decodeOnly() int {
	encoded, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, problem := spec.Decode(encoded); problem != nil {
		fmt.Fprintln(os.Stderr, problem.Message)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(report.New(report.Setting{})); err != nil {
		return 1
	}
	return 0
}

// answerTime is far more than any answer takes here. A request whose body is shorter than it claims has none.
const answerTime = 500 * time.Millisecond

// FuzzRequest sends requests of any form to the server. Whatever is accepted is a benchmark that the client reads;
// nothing makes the server fail (500), panic or grow. What net/http itself answers to what is no request of HTTP/1
// (400, 431, 501, 505) is its own.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{"/benchmark/read", "/benchmark/write", "/benchmark/mixed", "/benchmark/txn",
		"/benchmark/cancel"} {
		f.Add("POST", path, "", []byte(seedRead))
		f.Add("POST", path, "Content-Type: application/json\r\n", []byte(seedWrite))
	}
	f.Add("GET", "/progress", "X: y\r\n", []byte{})
	f.Add("GET", "/progress/stream", "", []byte{})
	f.Add("GET", "/healthz?x", "Expect: 100-continue\r\n", []byte{})
	f.Add("PRI", "*", "Transfer-Encoding: chunked\r\n", []byte("2\r\n{}\r\n0\r\n\r\n"))
	f.Add("POST", "/benchmark/write", "", []byte(`{"endpoints":"a:1","keyPrefix":"\u0000"}`))
	f.Add("POST", "/benchmark/read", "", []byte(`{"endpoints":"a:1","key":"\ufffd","endRange":"\u0000","limit":1e3}`))
	self, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	client := filepath.Join(f.TempDir(), "client")
	if err := os.WriteFile(client, []byte("#!/bin/sh\n"+asDecoder+"=1 exec "+self+"\n"), 0o700); err != nil {
		f.Fatal(err)
	}
	handler := &Handler{Runner: &Runner{Client: client, Children: &Children{}, Allow: "0.0.0.0/0,::/0",
		Results: openResults(f)}, Log: log.New(io.Discard, "", 0)}
	var panicked atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if fault := recover(); fault != nil {
				panicked.Store(fmt.Sprint(fault))
			}
		}()
		handler.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.MaxHeaderBytes = MaxBody
	server.Start()
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, method, path, header string, body []byte) {
		request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, path, header)
		if !strings.Contains(strings.ToLower(header), "transfer-encoding") {
			request = fmt.Appendf(request, "Content-Length: %d\r\n", len(body))
		}
		request = append(append(request, "\r\n"...), body...)
		answers := exchange(t, server.Listener.Addr().String(), request)
		for _, response := range answers {
			if response.StatusCode == http.StatusInternalServerError {
				t.Errorf("%q: %s", request, response.Status)
			}
		}
		if fault := panicked.Load(); fault != nil {
			t.Errorf("%q: panic: %v", request, fault)
		}
		var memory runtime.MemStats
		if runtime.ReadMemStats(&memory); memory.HeapInuse > 256<<20 {
			t.Errorf("%q: %d bytes in use", request, memory.HeapInuse)
		}
	})
}

// exchange sends bytes and returns the answers that come until the server closes the connection or is silent. Every
// answer of ours is JSON, a line or several.
func exchange(t *testing.T, address string, request []byte) (answers []*http.Response) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(answerTime)); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write(request); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // it was refused while it was sent
	}
	reader := bufio.NewReader(connection)
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return answers
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		ours := slices.Contains([]string{"application/json", "application/x-ndjson"}, response.Header.Get("Content-Type"))
		for line := range bytes.Lines(body) {
			if ours && err == nil && !json.Valid(line) {
				t.Errorf("%q: the answer %q", request, body)
			}
		}
		if !ours && err == nil && response.StatusCode < 400 && response.StatusCode != http.StatusContinue {
			t.Errorf("%q: %s of another type: %q", request, response.Status, body)
		}
		answers = append(answers, response)
	}
}
