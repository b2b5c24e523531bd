package consul

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/store"
)

// The parts of a transaction that writes a key if it exists: 'get' of a key that is not there rolls it back. Its answer
// has the old value.
const (
	whichKey = `[{"KV":{"Verb":"get","Key":"`
	setKey   = `"}},{"KV":{"Verb":"set","Key":"`
	setValue = `","Value":"`
	setEnd   = `"}}]`
)

// notThere is in the answer to a transaction that found no key.
const notThere = "doesn't exist"

// appendRewrite appends the whole request.
func appendRewrite(to []byte, ending string, r *store.Request) []byte {
	value := base64.StdEncoding.EncodedLen(len(r.Head) + len(r.Value))
	size := len(whichKey) + len(setKey) + len(setValue) + len(setEnd) + 2*jsonLength(r.Key) + value
	to = http1.AppendEnd(append(to, "PUT /v1/txn"...), ending, size)
	to = appendJSON(append(to, whichKey...), r.Key)
	to = appendJSON(append(to, setKey...), r.Key)
	to = appendBase64(append(to, setValue...), r.Head, r.Value)
	return append(to, setEnd...)
}

// appendBase64 appends head and tail as one value.
func appendBase64(to, head, tail []byte) []byte {
	whole := len(head) / 3 * 3
	to = base64.StdEncoding.AppendEncode(to, head[:whole])
	var seam [3]byte
	n := copy(seam[:], head[whole:])
	if n > 0 {
		taken := copy(seam[n:], tail)
		to, tail = base64.StdEncoding.AppendEncode(to, seam[:n+taken]), tail[taken:]
	}
	return base64.StdEncoding.AppendEncode(to, tail)
}

// appendJSON appends a key, which is Unicode text, as the inside of a JSON string.
func appendJSON(to, key []byte) []byte {
	for _, c := range key {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c < ' ':
			const hex = "0123456789abcdef"
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			to = append(to, c)
		}
	}
	return to
}

// jsonLength is how many bytes appendJSON appends.
func jsonLength(key []byte) int {
	n := len(key)
	for _, c := range key {
		switch {
		case c == '"' || c == '\\':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		}
	}
	return n
}

// lastIndex is at what index of the log a transaction was carried out: that of the last of its results; 0: it tells
// none. No text in the answer can look like the field's name, because quotes within texts are escaped.
func lastIndex(body []byte) int64 {
	const field = `"ModifyIndex":`
	at := bytes.LastIndex(body, []byte(field))
	if at < 0 {
		return 0
	}
	digits := bytes.TrimLeft(body[at+len(field):], " ")
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		end++
	}
	revision, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
