package http1

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// part is the part of an answer that is read next.
type part uint8

const (
	statusLine part = iota
	headerLine
	counted   // so many bytes of a body
	toTheEnd  // a body that ends with the connection
	chunkSize // the line before a chunk
	chunk     // so many bytes of it
	chunkEnd  // the line behind it, which is empty
	trailer   // a line behind the last chunk
)

const (
	noLength     = int64(-1)
	mostAhead    = 8   // informational answers
	maxChunkLine = 256 // bytes of the line before a chunk
	maxDigits    = 12  // of a chunk's size, which are more than that of maxBody has
)

// answers reads one answer after the other, in any pieces.
type answers struct {
	names  []string
	answer Answer
	next   part
	left   int64  // bytes of a body or a chunk
	line   []byte // the beginning of a line whose rest has not come
	header int    // bytes of lines so far
	ahead  int    // informational answers so far
	body   []byte // the array behind a body that came in pieces
	fresh  bool   // none of it has come yet

	length   int64 // as the header tells
	chunked  bool
	lasts    bool // the connection can be used again
	minor    byte
	started  bool
	finished bool
}

func (a *answers) reset() {
	a.next, a.line, a.header, a.ahead, a.started, a.finished = statusLine, a.line[:0], 0, 0, false, false
	if cap(a.body) > keptBody {
		a.body = nil
	}
}

// feed takes what has come. whole tells that the answer is; rest is what came behind it. keep: the whole body is
// wanted.
func (a *answers) feed(b []byte, keep bool) (rest []byte, whole bool, err error) {
	a.started = true
	for !a.finished {
		switch a.next {
		case counted, chunk, toTheEnd:
			if len(b) == 0 {
				return nil, false, nil
			}
			if b, err = a.take(b, keep); err != nil {
				return nil, false, err
			}
			continue
		}
		line, rest, found, err := a.readLine(b)
		if err != nil || !found {
			return nil, false, err
		}
		b = rest
		if err := a.takeLine(line); err != nil {
			return nil, false, err
		}
		a.line = a.line[:0]
	}
	return b, true, nil
}

// readLine gives the next line without its end, which is valid until the next call.
func (a *answers) readLine(b []byte) (line, rest []byte, found bool, err error) {
	end := bytes.IndexByte(b, '\n')
	if found = end >= 0; !found {
		end = len(b)
	}
	if a.next == chunkSize || a.next == chunkEnd {
		if len(a.line)+end > maxChunkLine {
			return nil, nil, false, errChunk
		}
	} else if a.header += end + 1; a.header > maxHeader {
		return nil, nil, false, errHeaders
	}
	if !found {
		a.line = append(a.line, b...)
		return nil, nil, false, nil
	}
	line = b[:end]
	if len(a.line) > 0 {
		a.line = append(a.line, line...)
		line = a.line
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	} else if a.next > headerLine {
		return nil, nil, false, errChunk // in the header, line feeds alone are common
	}
	return line, b[end+1:], true, nil
}

var (
	errSpeech  = errors.New("the member does not speak HTTP/1.1")
	errHeader  = errors.New("the member sent a malformed header")
	errHeaders = fmt.Errorf("the member sent a header of more than %d bytes", maxHeader)
	errLength  = errors.New("the member sent a malformed or contradicting length of an answer")
	errChunk   = errors.New("the member sent a malformed chunk of an answer")
	errCoding  = errors.New("the member sent an answer in a transfer coding that is not supported")
	errSwitch  = errors.New("the member wants to speak another protocol")
	errAhead   = fmt.Errorf("the member sent more than %d informational answers", mostAhead)
	errLarge   = fmt.Errorf("the member sent an answer of more than %d bytes", maxBody)
)

func (a *answers) takeLine(line []byte) error {
	switch a.next {
	case statusLine:
		return a.begin(line)
	case headerLine:
		if len(line) == 0 {
			return a.headerEnds()
		}
		return a.takeHeader(line)
	case chunkSize:
		return a.beginChunk(line)
	case chunkEnd:
		if len(line) > 0 {
			return errChunk
		}
		a.next = chunkSize
	case trailer:
		if len(line) == 0 {
			a.end()
			return nil
		}
		_, _, err := field(line)
		return err
	}
	return nil
}

// field splits a line of a header.
func field(line []byte) (name, value []byte, err error) {
	name, value, found := bytes.Cut(line, []byte{':'})
	if !found || len(name) == 0 || bytes.IndexByte(name, ' ') >= 0 || bytes.IndexByte(name, '\t') >= 0 {
		return nil, nil, errHeader
	}
	return name, bytes.Trim(value, " \t"), nil
}

// begin takes a status line (RFC 9112 section 4).
func (a *answers) begin(line []byte) error {
	const version = "HTTP/1."
	if len(line) < len("HTTP/1.1 200") || string(line[:len(version)]) != version {
		return errSpeech
	}
	a.minor = line[len(version)] - '0'
	digits := line[len(version)+2:]
	if a.minor > 1 || line[len(version)+1] != ' ' || len(digits) > 3 && digits[3] != ' ' {
		return errSpeech
	}
	status := 0
	for _, d := range digits[:3] {
		if d < '0' || d > '9' {
			return errSpeech
		}
		status = 10*status + int(d-'0')
	}
	if status < 100 {
		return errSpeech
	}
	a.answer.Status, a.answer.Size, a.answer.Body = status, 0, nil
	for i := range a.answer.Headers {
		a.answer.Headers[i] = a.answer.Headers[i][:0]
	}
	a.next, a.length, a.chunked, a.lasts, a.body, a.fresh = headerLine, noLength, false, a.minor == 1, a.body[:0], true
	return nil
}

// takeHeader takes a line of the header (RFC 9112 section 5).
func (a *answers) takeHeader(line []byte) error {
	name, value, err := field(line)
	if err != nil {
		return err
	}
	switch {
	case is(name, "content-length"):
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil || a.length != noLength && a.length != int64(n) {
			return errLength
		}
		a.length = int64(n)
	case is(name, "transfer-encoding"):
		if !is(value, "chunked") || a.chunked || a.minor == 0 {
			return errCoding
		}
		a.chunked = true
	case is(name, "connection"):
		a.takeConnection(value)
	}
	for i, wanted := range a.names {
		if is(name, wanted) {
			a.answer.Headers[i] = append(a.answer.Headers[i][:0], value...)
		}
	}
	return nil
}

// takeConnection looks for what the member says of the connection (RFC 9112 section 9.3), in a list.
func (a *answers) takeConnection(value []byte) {
	for len(value) > 0 {
		option, rest, _ := bytes.Cut(value, []byte{','})
		option = bytes.Trim(option, " \t")
		switch {
		case is(option, "close"):
			a.lasts, a.minor = false, 1 // whatever else it says
		case is(option, "keep-alive") && a.minor == 0:
			a.lasts = true
		}
		value = rest
	}
}

// headerEnds tells how long the body is (RFC 9112 section 6.3).
func (a *answers) headerEnds() error {
	switch status := a.answer.Status; {
	case status == 101:
		return errSwitch
	case status < 200:
		if a.ahead++; a.ahead > mostAhead {
			return errAhead
		}
		a.next = statusLine
	case status == 204 || status == 304:
		a.end()
	case a.chunked:
		if a.length != noLength {
			a.lasts = false // a proxy in between may read it otherwise
		}
		a.next = chunkSize
	case a.length > maxBody:
		return errLarge
	case a.length == 0:
		a.end()
	case a.length > 0:
		a.next, a.left = counted, a.length
	default:
		a.next, a.left, a.lasts = toTheEnd, maxBody+1, false
	}
	return nil
}

// beginChunk takes the line before a chunk (RFC 9112 section 7.1).
func (a *answers) beginChunk(line []byte) error {
	size, _, _ := bytes.Cut(line, []byte{';'})
	size = bytes.TrimRight(size, " \t")
	n, err := strconv.ParseUint(string(size), 16, 63)
	if err != nil || len(size) > maxDigits {
		return errChunk
	}
	if a.left = int64(n); a.left > maxBody || a.answer.Size+a.left > maxBody {
		return errLarge
	}
	a.next = chunk
	if a.left == 0 {
		a.next = trailer
	}
	return nil
}

// take takes bytes of the body, and gives those behind it.
func (a *answers) take(b []byte, keep bool) (rest []byte, err error) {
	n := int(min(int64(len(b)), a.left))
	now := b[:n]
	a.left -= int64(n)
	a.answer.Size += int64(n)
	whole := a.next == counted && a.left == 0
	if whole && a.fresh {
		a.answer.Body = now // it has come at once
	} else {
		if !keep {
			now = now[:min(n, max(maxText-len(a.body), 0))]
		}
		a.body = append(a.body, now...)
	}
	a.fresh = false
	switch {
	case a.next == toTheEnd && a.left == 0:
		return nil, errLarge
	case whole:
		if a.answer.Body == nil {
			a.answer.Body = a.body
		}
		a.finished = true
	case a.next == chunk && a.left == 0:
		a.next = chunkEnd
	}
	return b[n:], nil
}

// end ends an answer whose body has been read, or that has none.
func (a *answers) end() {
	a.answer.Body = a.body
	a.finished = true
}

// is compares a text with one in small letters, without regard to case.
func is(text []byte, small string) bool {
	if len(text) != len(small) {
		return false
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != small[i] {
			return false
		}
	}
	return true
}
