package keys

import (
	"bytes"
	"fmt"
)

// poolSpan is how many different starting points values have inside the pool.
const poolSpan = 1 << 16

// Values gives the values of each key: size printable bytes without a pattern that a compressor could use. That of a
// data set depends only on the seed and the number of the key, and a version of it also on its writer, so that a reader
// can tell what every writer wrote. Values share one read-only pool, so making one costs no copy and no allocation.
type Values struct {
	pool []byte
	size int
	seed uint64
}

// NewValues prepares values of exactly size bytes (0 or more).
func NewValues(size int, seed int64) *Values {
	v := &Values{pool: make([]byte, poolSpan+size), size: size, seed: mix(uint64(seed))}
	for i := range v.pool {
		v.pool[i] = alphabet[mix(v.seed+uint64(i))%base]
	}
	return v
}

// At gives the value of a key in a data set. The caller must not change it. It is safe for concurrent use.
func (v *Values) At(key uint64) []byte {
	start := mix(v.seed^key) % poolSpan
	return v.pool[start : start+uint64(v.size) : start+uint64(v.size)]
}

// How many digits of the alphabet each part of an ID takes, and the check after it.
const (
	runDigits    = 6
	clientDigits = 3
	numberDigits = 6
	checkDigits  = 5
)

const (
	// NameSize is the length of an ID as text, in bytes.
	NameSize = runDigits + clientDigits + numberDigits
	// VersionSize is how many bytes at the start of a value tell which write it comes from; no smaller value does.
	VersionSize = NameSize + checkDigits
	// MaxRun is the largest number of a run.
	MaxRun = 62*62*62*62*62*62 - 1
	// checks is how many different checks there are.
	checks = 62 * 62 * 62 * 62 * 62
)

// ID names the write that a value comes from. The zero value is that of a data set: a value that is the same whoever
// writes it.
type ID struct {
	Run    uint64 // 1..MaxRun, drawn for each run
	Client int
	Number int // of the request within its run
}

// String gives NameSize digits and letters, or "=" for a data set's value.
func (id ID) String() string {
	if id == (ID{}) {
		return "="
	}
	return string(id.append(make([]byte, 0, NameSize)))
}

func (id ID) append(dst []byte) []byte {
	dst = Append(dst, id.Run, runDigits)
	dst = Append(dst, uint64(id.Client), clientDigits)
	return Append(dst, uint64(id.Number), numberDigits)
}

// ParseID is the inverse of String.
func ParseID(name string) (ID, error) {
	if name == "=" {
		return ID{}, nil
	}
	if id, ok := parseID([]byte(name)); ok && len(name) == NameSize {
		return id, nil
	}
	return ID{}, fmt.Errorf("%.50q is not the name of a write", name)
}

// parseID reads the ID that a text begins with.
func parseID(text []byte) (id ID, ok bool) {
	if len(text) < NameSize {
		return ID{}, false
	}
	run, ok := Number(text[:runDigits], "", runDigits)
	client, ok2 := Number(text[runDigits:runDigits+clientDigits], "", clientDigits)
	number, ok3 := Number(text[runDigits+clientDigits:NameSize], "", numberDigits)
	return ID{Run: run, Client: int(client), Number: int(number)}, ok && ok2 && ok3 && run > 0
}

// Version gives the value that a write makes of a key, in two parts: its ID with a check, and what fills it up, which
// follows from key and ID. head is appended to dst; the caller must not change tail. It panics where values are smaller
// than VersionSize.
func (v *Values) Version(dst []byte, key uint64, id ID) (head, tail []byte) {
	mark := mix(mix(mix(v.seed^mix(key))^id.Run<<18^uint64(id.Client)) ^ uint64(id.Number))
	start := mark % poolSpan
	return Append(id.append(dst), mark%checks, checkDigits), v.pool[start : start+uint64(v.size-VersionSize)]
}

// Writer tells which write of the key a value comes from; false where no write made it.
func (v *Values) Writer(key uint64, value []byte) (id ID, ok bool) {
	if bytes.Equal(value, v.At(key)) {
		return ID{}, true
	}
	if len(value) != v.size || v.size < VersionSize {
		return ID{}, false
	}
	if id, ok = parseID(value); !ok {
		return ID{}, false
	}
	var room [VersionSize]byte
	head, tail := v.Version(room[:0], key, id)
	if !bytes.Equal(value[:VersionSize], head) || !bytes.Equal(value[VersionSize:], tail) {
		return ID{}, false
	}
	return id, true
}
