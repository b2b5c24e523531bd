package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
)

// outcome records how requests ended.
type outcome struct {
	answers  []string
	failures []*store.Failure
	again    func()
}

func (o *outcome) Answered(a *Answer, f *store.Failure) {
	if o.failures = append(o.failures, f); f == nil {
		o.answers = append(o.answers, fmt.Sprintf("%d %d %q %q", a.Status, a.Size, a.Body, a.Headers))
	}
	if o.again != nil {
		o.again()
	}
}

// started gives a connection with a request that was written.
func started(keep bool) (*Conn, *outcome) {
	c, got := NewConn("x-index"), &outcome{}
	c.Start(got, append(c.Space(), "GET / HTTP/1.1\r\n\r\n"...), nil, keep)
	c.Wrote(len(c.Output()))
	return c, got
}

// The beginnings of answers, and one that is good.
const (
	ok      = "HTTP/1.1 200 OK\r\n"
	one     = ok + "Content-Length: 1\r\n"
	chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	good    = ok + "X-Index: 7\r\nContent-Length: 5\r\n\r\nhello"
)

// answer is what a member sends, and what is made of it.
type answer struct {
	sent, want, fault string
	ends, closes      bool // the member closes the connection behind it; nothing else can be started
}

var answered = map[string]answer{
	"counted":         {sent: good, want: `200 5 "hello" ["7"]`},
	"no reason":       {sent: "HTTP/1.1 200\r\ncontent-length:  2\r\n\r\nab", want: `200 2 "ab" [""]`},
	"bare line feeds": {sent: "HTTP/1.1 200 OK\nContent-Length: 2\n\nab", want: `200 2 "ab" [""]`},
	"of HTTP/1.0, kept": {sent: "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na",
		want: `200 1 "a" [""]`},
	"the same length twice": {sent: one + "Content-Length: 1\r\n\r\na", want: `200 1 "a" [""]`},
	"no content":            {sent: "HTTP/1.1 204 No Content\r\nX-INDEX:\t8 \r\n\r\n", want: `204 0 "" ["8"]`},
	"chunked": {sent: ok + "Transfer-Encoding: Chunked\r\n\r\n3;a=b\r\nhel\r\n02 \r\nlo\r\n0\r\nT: x\r\n\r\n",
		want: `200 5 "hello" [""]`},
	"chunked and counted": {sent: ok + "Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n1\r\na\r\n0\r\n\r\n",
		want: `200 1 "a" [""]`, closes: true},
	"to the end":   {sent: ok + "\r\nhello", want: `200 5 "hello" [""]`, ends: true, closes: true},
	"of HTTP/1.0":  {sent: "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", want: `200 1 "a" [""]`, closes: true},
	"the last one": {sent: one + "Connection: x, Close\r\n\r\na", want: `200 1 "a" [""]`, closes: true},
	"informational": {sent: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX-Index: 1\r\n\r\n" + good,
		want: `200 5 "hello" ["7"]`},
	"more than the answer":       {sent: good + "more", want: `200 5 "hello" ["7"]`, closes: true},
	"an error":                   {sent: "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", want: `500 2 "no" [""]`},
	"two lengths":                {sent: one + "Content-Length: 2\r\n\r\na", fault: "length"},
	"a huge length":              {sent: ok + "Content-Length: 99999999999999999999999\r\n\r\na", fault: "length"},
	"a large length":             {sent: ok + "Content-Length: 16777217\r\n\r\n", fault: "of more than"},
	"no length at all":           {sent: ok + "Content-Length:\r\n\r\n", fault: "length"},
	"less than was said":         {sent: ok + "Content-Length: 6\r\n\r\nhello", fault: "within an answer", ends: true},
	"no answer":                  {sent: "", fault: "closed the connection", ends: true},
	"a cut chunk":                {sent: chunked + "5\r\nhel", fault: "within an answer", ends: true},
	"a chunk that is longer":     {sent: chunked + "1\r\nab\r\n0\r\n\r\n", fault: "chunk"},
	"a chunk without a size":     {sent: chunked + ";\r\n", fault: "chunk"},
	"chunks with line feeds":     {sent: chunked + "1\na\n0\n\n", fault: "chunk"},
	"a chunk that ends with one": {sent: chunked + "1\r\na\n0\r\n\r\n", fault: "chunk"},
	"a large chunk":              {sent: chunked + "1000001\r\n", fault: "of more than"},
	"a long chunk line":          {sent: chunked + "1;" + strings.Repeat("a", 300), fault: "chunk"},
	"another coding":             {sent: ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", fault: "coding"},
	"a flood of headers":         {sent: ok + strings.Repeat("A: b\r\n", 12_000), fault: "of more than"},
	"a flood of one header":      {sent: ok + "A: " + strings.Repeat("b", 70_000), fault: "of more than"},
	"a flood of trailers":        {sent: chunked + "0\r\n" + strings.Repeat("A: b\r\n", 12_000), fault: "of more than"},
	"only informational":         {sent: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), fault: "informational"},
	"another protocol":           {sent: "HTTP/1.1 101 Switching\r\n\r\n", fault: "another protocol"},
	"a folded header":            {sent: ok + "A: b\r\n c\r\n\r\n", fault: "header"},
	"a space in a name":          {sent: ok + "Content-Length : 1\r\n\r\na", fault: "header"},
	"no colon":                   {sent: ok + "hello\r\n\r\n", fault: "header"},
	"HTTP/2":                     {sent: "HTTP/2.0 200 OK\r\n\r\n", fault: "does not speak"},
	"something else":             {sent: "-ERR unknown command\r\n", fault: "does not speak"},
	"a status of two digits":     {sent: "HTTP/1.1 20 OK\r\n\r\n", fault: "does not speak"},
}

// TestAnswers has each answer come in pieces of every size. FuzzAnswers compares what is made of many more with
// net/http.
func TestAnswers(t *testing.T) {
	for name, c := range answered {
		for _, keep := range []bool{true, false} {
			for size := 1; size <= max(len(c.sent), 1); size += 1 + size/7*size/11 {
				conn, got := started(keep)
				var err error
				for rest := []byte(c.sent); len(rest) > 0 && err == nil && len(got.failures) == 0; {
					n := min(size, len(rest))
					err = conn.Feed(bytes.Clone(rest[:n]))
					rest = rest[n:]
				}
				if err == nil && c.ends {
					err = conn.EOF()
				}
				if c.fault != "" {
					assert.Must(t, err != nil && strings.Contains(err.Error(), c.fault) && len(got.answers) == 0,
						"%s, pieces of %d: %v, %v", name, size, err, got.answers)
					conn.Leave(err)
					conn.Lost(err.Error())
					assert.Must(t, len(got.failures) == 1 && got.failures[0].Unknown &&
						got.failures[0].Code == store.Unavailable, "%s: %+v", name, got.failures)
					continue
				}
				assert.Must(t, err == nil && len(got.answers) == 1 && got.answers[0] == c.want && len(got.failures) == 1,
					"%s, pieces of %d, keep %v: %v, %q, expected %q", name, size, keep, err, got.answers, c.want)
				// In small pieces, what follows has not been read yet.
				assert.Must(t, conn.Closing() == c.closes || (size != len(c.sent) && strings.HasPrefix(c.sent, good)),
					"%s, pieces of %d: closing %v", name, size, conn.Closing())
			}
		}
	}
}

// TestChunksAreNoHeader: however many there are, their lines do not count for its bound.
func TestChunksAreNoHeader(t *testing.T) {
	c, got := started(false)
	err := c.Feed([]byte(chunked + strings.Repeat("1\r\na\r\n", maxHeader) + "0\r\n\r\n"))
	assert.That(t, err == nil && len(got.answers) == 1 &&
		strings.HasPrefix(got.answers[0], fmt.Sprintf("200 %d ", maxHeader)), "%v, %.50q", err, got.answers)
}

// TestNothingIsTakenForAnAnswer that comes without a request; it may be the end of the connection.
func TestNothingIsTakenForAnAnswer(t *testing.T) {
	err := NewConn().Feed([]byte(good))
	assert.That(t, err != nil && strings.Contains(err.Error(), "HTTP/1.1 200"), "%v", err)
	assert.Equal(t, NewConn().EOF(), nil, "a connection that is idle may be closed")
}

// TestOutcomesOfRequestsThatAreNotWritten: a member carries out what it has as a whole.
func TestOutcomesOfRequestsThatAreNotWritten(t *testing.T) {
	value := bytes.Repeat([]byte("v"), maxCopied+1)
	for _, written := range []int{0, 1, 10, maxCopied, len("header") + len(value) - 1, len("header") + len(value)} {
		for _, how := range []string{"lost", "cancelled", "answered"} {
			c, got := NewConn(), &outcome{}
			c.Start(got, append(c.Space(), "header"...), value, false)
			assert.Must(t, &c.tail[0] == &value[0], "a large value was copied")
			for left := written; left > 0; {
				n := min(left, len(c.Output()))
				c.Wrote(n)
				left -= n
			}
			all := written == len("header")+len(value)
			switch how {
			case "lost":
				if c.Lost("lost"); got.failures[0].Unknown != all {
					t.Errorf("lost after %d bytes: %+v", written, got.failures[0])
				}
			case "cancelled":
				if unknown := c.Cancel(nil); unknown != all || c.Active() != 0 || c.Closing() != (written > 0) {
					t.Errorf("cancelled after %d bytes: unknown %v, closing %v", written, unknown, c.Closing())
				}
				err := c.Feed([]byte(good))
				assert.That(t, (err == nil) == (written > 0), "a late answer after %d bytes: %v", written, err)
			case "answered":
				if err := c.Feed([]byte("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")); (err == nil) != (written > 0) {
					t.Errorf("answered after %d bytes: %v", written, err)
				} else if err == nil && (got.failures[0] != nil || c.Closing() == all || len(c.Output()) > 0) {
					t.Errorf("answered after %d bytes: %+v, closing %v", written, got.failures, c.Closing())
				}
			}
		}
	}
}

func TestTheNextRequest(t *testing.T) {
	for sent, want := range map[string]bool{good: true, good + "x": false, one + "Connection: close\r\n\r\na": false} {
		c, got := started(true)
		got.again = func() {
			if got.again = nil; c.CanStart() != want {
				t.Errorf("%q: CanStart %v", sent, c.CanStart())
			} else if want {
				c.Start(got, append(c.Space(), "GET /next HTTP/1.1\r\n\r\n"...), nil, true)
			}
		}
		err := c.Feed([]byte(sent))
		assert.That(t, err == nil && (c.Active() == 1) == want, "%q: %v, %d under way", sent, err, c.Active())
		assert.That(t, !want || bytes.HasPrefix(c.Output(), []byte("GET /next")), "%q is written", c.Output())
	}
}

func TestWhatARequestLooksLike(t *testing.T) {
	head := AppendEnd(AppendKey([]byte("PUT /v1/kv/"), []byte("a/ü %?&+~.-_Z9")), Ending("[::1]:8500"), 12)
	r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("twelve bytes"))))
	assert.That(t, err == nil && r.URL.Path == "/v1/kv/a/ü %?&+~.-_Z9" && r.Host == "[::1]:8500" &&
		r.ContentLength == 12 && len(r.Header) == 1, "%q: %+v, %v", head, r, err)
	head = AppendEnd([]byte("GET /"), Ending("m:1"), -1)
	bare, problem := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	assert.That(t, problem == nil && bare.ContentLength == 0 && len(bare.Header) == 0, "%q: %+v, %v", head, bare, problem)
}

func TestWhatAnswersMean(t *testing.T) {
	for status, want := range map[int]string{
		400: "InvalidArgument false", 403: "PermissionDenied false", 404: "NotFound false", 408: "DeadlineExceeded true",
		409: "Aborted false", 429: "ResourceExhausted false", 500: "Internal true", 502: "Unavailable true",
		503: "Unavailable true", 504: "DeadlineExceeded true", 301: "Unknown false", 202: "Unknown true", 599: "Unknown true",
	} {
		f := (&Answer{Status: status, Body: []byte("why\n\x01so")}).Failure()
		text := fmt.Sprintf("HTTP status %d: why  so", status)
		if status < 300 {
			text = fmt.Sprintf("HTTP status %d", status) // its body is a value
		}
		got := fmt.Sprintf("%v %v", f.Code, f.Unknown)
		assert.That(t, got == want && f.Text == text, "%d: %s, %q", status, got, f.Text)
	}
}

// seeds are the answers that are good.
func seeds() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(answered)) {
		if c := answered[name]; c.fault == "" {
			all = append(all, c.sent)
		}
	}
	return all
}

// FuzzAnswers compares with net/http: what both take has the same status, body and header, in one piece or in any two.
// Where ours refuses an answer that net/http takes, it is stricter; where it takes one that net/http refuses, it is
// wrong.
func FuzzAnswers(native *testing.F) {
	f := inputtest.F{F: native}
	for _, seed := range seeds() {
		f.Add([]byte(seed), uint16(20))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		read := func(pieces ...[]byte) (got *outcome, err error) {
			c, got := started(true)
			for i := 0; i < len(pieces) && err == nil && len(got.failures) == 0; i++ {
				err = c.Feed(pieces[i])
			}
			if err == nil && len(got.failures) == 0 {
				err = c.EOF()
			}
			return got, err
		}
		whole, err := read(b)
		split := min(int(cut), len(b))
		parts, partsErr := read(bytes.Clone(b[:split]), bytes.Clone(b[split:]))
		assert.Must(t, (err == nil) == (partsErr == nil) && slices.Equal(whole.answers, parts.answers),
			"in one piece %q, %v; in two %q, %v", whole.answers, err, parts.answers, partsErr)
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
		assert.Must(t, err == nil, "ours takes %q, net/http says %v", whole.answers, err)
		want := fmt.Sprintf("%d %d %q ", theirs.StatusCode, len(body), body)
		assert.That(t, strings.HasPrefix(whole.answers[0], want), "ours: %s, net/http: %s", whole.answers[0], want)
	})
}
