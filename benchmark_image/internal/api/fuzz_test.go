package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"containernet-env/benchmark_image/internal/inputtest"
)

// FuzzRequest sends requests of any form to the server. Whatever is accepted is a benchmark that the client reads;
// nothing makes the server fail (500), panic or wait for more than its own deadlines. What net/http itself answers to
// what is no request of HTTP/1 (400, 431, 501, 505) is its own.
func FuzzRequest(native *testing.F) {
	f := inputtest.F{F: native}
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
	f.Fuzz(func(t *testing.T, method, path, header string, body []byte) {
		request := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method, path, header)
		if !strings.Contains(strings.ToLower(header), "transfer-encoding") {
			request = fmt.Appendf(request, "Content-Length: %d\r\n", len(body))
		}
		request = append(append(request, "\r\n"...), body...)
		synctest.Test(t, func(t *testing.T) {
			for _, response := range exchange(t, simulate(t, decodeOnly), request) {
				if response.StatusCode == http.StatusInternalServerError {
					t.Errorf("%q: %s", request, response.Status)
				}
			}
		})
	})
}

// pipes is a listener for one connection without a network.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// exchange sends bytes, in a bubble, and returns the answers that come until the server closes the connection or is
// silent for a minute. Every answer of ours is JSON, a line or several.
func exchange(t *testing.T, s *server, request []byte) (answers []*http.Response) {
	t.Helper()
	serving := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if fault := recover(); fault != nil {
					t.Errorf("%q: panic: %v", request, fault)
				}
			}()
			s.ServeHTTP(w, r)
		}),
		ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: MaxBody, ReadHeaderTimeout: bodyTimeout,
	}
	ours, theirs := net.Pipe()
	listener := make(pipes, 1)
	listener <- theirs
	go serving.Serve(listener)
	defer func() {
		close(listener)
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		if err := serving.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	}()
	if err := ours.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go ours.Write(request) // which may be refused while it is sent
	for reader := bufio.NewReader(ours); ; {
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
