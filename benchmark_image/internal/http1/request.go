package http1

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"containernet-env/benchmark_image/internal/store"
)

// AppendKey appends a key as a part of a URL: all but what RFC 3986 section 2.3 calls unreserved is encoded.
func AppendKey(to, key []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range key {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' ||
			c == '~' {
			to = append(to, c)
		} else {
			to = append(to, '%', hex[c>>4], hex[c&15])
		}
	}
	return to
}

// Ending gives what follows the target of each request to a member, of which host:port is given.
func Ending(member string) string { return " HTTP/1.1\r\nHost: " + member + "\r\n" }

// AppendEnd appends the rest of the header of a request whose body has that many bytes; -1: it has none.
func AppendEnd(to []byte, ending string, body int) []byte {
	to = append(to, ending...)
	if body >= 0 {
		to = append(to, "Content-Length: "...)
		to = append(strconv.AppendInt(to, int64(body), 10), '\r', '\n')
	}
	return append(to, '\r', '\n')
}

// codes are what answers that tell of no success mean.
var codes = map[int]store.Code{
	400: store.InvalidArgument, 401: store.Unauthenticated, 403: store.PermissionDenied, 404: store.NotFound,
	405: store.Unimplemented, 408: store.DeadlineExceeded, 409: store.Aborted, 412: store.FailedPrecondition,
	413: store.InvalidArgument, 414: store.InvalidArgument, 429: store.ResourceExhausted, 500: store.Internal,
	501: store.Unimplemented, 502: store.Unavailable, 503: store.Unavailable, 504: store.DeadlineExceeded,
}

// Failure is what an answer means that tells of no success. A member that says that the request is wrong has not
// carried it out (RFC 9110 section 15.5); one that says that something else went wrong may have.
func (a *Answer) Failure() *store.Failure {
	code, known := codes[a.Status]
	if !known {
		code = store.Unknown
	}
	refused := a.Status >= 300 && a.Status < 500 && a.Status != 408
	return &store.Failure{Code: code, Text: a.Text(), Unknown: !refused}
}

// Text is the answer as a message has it; the body of a status of success is a value, and tells nothing.
func (a *Answer) Text() string {
	text := "HTTP status " + strconv.Itoa(a.Status)
	if body := a.Body[:min(len(a.Body), maxText)]; len(body) > 0 && a.Status >= 300 {
		text += ": " + printable(string(body))
	}
	return text
}

// printable leaves out what would break a line.
func printable(text string) string {
	clean := func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return ' '
		}
		return r
	}
	return strings.TrimSpace(strings.Map(clean, text))
}
