package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
)

// seeds are answers of all kinds.
var seeds = []string{
	good, good + good, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nT: x\r\n\r\n",
	"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 200 OK\r\n\r\nto the end",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
	"HTTP/1.1 200 OK\nContent-Length: 2\n\nab", "HTTP/1.1 200\r\ncontent-length:  2\r\n\r\nab",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
	"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
}

// FuzzAnswers compares with net/http: what both take has the same status, body and header, in one piece or in any two.
// Where ours refuses an answer that net/http takes, it is stricter; where it takes one that net/http refuses, it is
// wrong.
func FuzzAnswers(native *testing.F) {
	f := inputtest.F{F: native}
	for _, seed := range seeds {
		f.Add([]byte(seed), uint16(20))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		read := func(pieces ...[]byte) (*Conn, *outcome, error) {
			c, got := started(true)
			for _, piece := range pieces {
				if len(got.failures) == 0 {
					if err := c.Feed(piece); err != nil {
						return c, got, err
					}
				}
			}
			if len(got.failures) > 0 {
				return c, got, nil
			}
			return c, got, c.EOF()
		}
		_, whole, err := read(b)
		split := min(int(cut), len(b))
		_, parts, partsErr := read(bytes.Clone(b[:split]), bytes.Clone(b[split:]))
		if (err == nil) != (partsErr == nil) || !slices.Equal(whole.answers, parts.answers) {
			t.Fatalf("in one piece %q, %v; in two %q, %v", whole.answers, err, parts.answers, partsErr)
		}
		if len(whole.answers) == 0 {
			return
		}
		from := bufio.NewReader(bytes.NewReader(b))
		theirs, err := http.ReadResponse(from, nil)
		for err == nil && theirs.StatusCode < 200 {
			theirs, err = http.ReadResponse(from, nil)
		}
		if err != nil {
			t.Skip("net/http checks names and values of all headers")
		}
		body, err := io.ReadAll(theirs.Body)
		if err != nil && strings.Contains(err.Error(), "MIME header") {
			t.Skip("net/http checks names and values of all trailers, too")
		}
		if err != nil {
			t.Fatalf("ours takes %q, net/http says %v", whole.answers, err)
		}
		var mine Answer
		c, _ := started(true)
		c.owner = keeper{&mine}
		if c.Feed(b) == nil && mine.Status == 0 {
			_ = c.EOF()
		}
		if mine.Status != theirs.StatusCode || !bytes.Equal(mine.Body, body) || int(mine.Size) != len(body) {
			t.Errorf("ours: %d %q, net/http: %d %q", mine.Status, mine.Body, theirs.StatusCode, body)
		}
	})
}

// FuzzConn has a connection carry requests of several sizes, written in part, cancelled and lost, while anything comes.
// Each request that is not cancelled has exactly one outcome.
func FuzzConn(native *testing.F) {
	f := inputtest.F{F: native}
	for i, seed := range seeds {
		f.Add([]byte(seed+seed), []byte{byte(i), 200, 3, 30, 255, 7, 60, 1})
	}
	f.Fuzz(func(t *testing.T, b, script []byte) {
		c, got, begun, cancelled := NewConn("x-index"), &outcome{}, 0, 0
		value := make([]byte, maxCopied+100)
		start := func() {
			if begun < 50 && c.CanStart() {
				begun++
				c.Start(got, append(c.Space(), "GET / HTTP/1.1\r\n\r\n"...), value[:begun%3*(len(value)/2)], begun%2 == 0)
			}
		}
		got.again = start
		var err error
		for _, step := range script {
			start()
			switch step % 4 {
			case 0, 1:
				c.Wrote(min(len(c.Output()), 1+int(step)*100))
			case 2:
				if n := min(len(b), int(step)); err == nil {
					err = c.Feed(b[:n])
					b = b[n:]
				}
			case 3:
				if c.Active() > 0 && step > 200 {
					cancelled++
					c.Cancel()
				}
			}
			if err != nil {
				c.Leave(err)
				break
			}
		}
		got.again = nil
		if err == nil {
			_ = c.EOF()
		}
		c.Lost("over")
		if len(got.failures)+cancelled != begun || c.Active() != 0 || c.CanStart() || len(c.Output()) > 0 {
			t.Errorf("%d requests, %d outcomes, %d cancelled, %d under way", begun, len(got.failures), cancelled, c.Active())
		}
	})
}

// keeper copies the answer.
type keeper struct{ to *Answer }

func (k keeper) Answered(a *Answer, f *store.Failure) {
	if f == nil {
		*k.to = Answer{Status: a.Status, Body: bytes.Clone(a.Body), Size: a.Size}
	}
}
