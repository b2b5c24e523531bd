// Package input reads what other programs send, JSON, and refuses everything that is unknown or out of range.
package input

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
)

// Bounds of names, process ids and hosts.
const (
	MaxNameBytes = 128
	maxPID       = 1 << 22
	maxHosts     = 256
)

// Decode reads JSON into a struct; fields that are left out keep their values. A field that the struct lacks is an
// error; errors begin with the field's path.
func Decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		return nil
	}
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return fmt.Errorf("%s: unknown field", strings.Trim(field, `"`))
	}
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	if !is || wrong.Field == "" {
		return err
	}
	allowed := wrong.Type.Kind().String()
	if wrong.Type == reflect.TypeFor[Limit]() {
		allowed = "a positive integer, or null"
	}
	return fmt.Errorf("%s: got %s, allowed: %s", wrong.Field, wrong.Value, allowed)
}

// Limit is a positive integer, or 0 for no limit, which is null in JSON.
type Limit int64

// UnmarshalJSON implements json.Unmarshaler.
func (l *Limit) UnmarshalJSON(data []byte) error {
	*l = 0 // null changes nothing in the next line
	err := json.Unmarshal(data, (*int64)(l))
	if err == nil && *l == 0 && string(data) != "null" {
		err = &json.UnmarshalTypeError{Value: string(data), Type: reflect.TypeFor[Limit]()}
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (l Limit) MarshalJSON() ([]byte, error) {
	if l == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(l), 10), nil
}

// Check refuses a limit that is not in a range.
func (l Limit) Check(field string, low, high int64) error {
	if err := Range(field, l, Limit(low), Limit(high)); l != 0 && err != nil {
		return fmt.Errorf("%w, or null", err)
	}
	return nil
}

// Range refuses a number that is not in a range.
func Range[N ~int | ~int64](field string, got, low, high N) error {
	if got < low || got > high {
		return fmt.Errorf("%s: got %d, allowed: %d to %d", field, got, low, high)
	}
	return nil
}

// Ratio refuses a number that is no share.
func Ratio(field string, got float64) error {
	if !(got >= 0 && got <= 1) {
		return fmt.Errorf("%s: got %v, allowed: 0 to 1", field, got)
	}
	return nil
}

// PID refuses a number that is no process id.
func PID(field string, pid int) error { return Range(field, pid, 1, maxPID) }

// Name refuses a text that is empty or longer than so many bytes.
func Name(field, text string, maxBytes int) error {
	if text == "" || len(text) > maxBytes {
		return fmt.Errorf("%s: got %.60q, allowed: 1 to %d bytes", field, text, maxBytes)
	}
	return nil
}

// Host is one that a prober measures from and to.
type Host struct {
	Name string     `json:"name"`
	PID  int        `json:"pid"` // a process in the host's network namespace
	IP   netip.Addr `json:"ip"`  // of the interface to use there
}

// Hosts refuses fewer than two hosts, and two with the same name or address.
func Hosts(hosts []Host) error {
	if err := Range("hosts", len(hosts), 2, maxHosts); err != nil {
		return err
	}
	for i, host := range hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		if err := cmp.Or(Name(path+".name", host.Name, MaxNameBytes), PID(path+".pid", host.PID)); err != nil {
			return err
		}
		if !host.IP.Is4() {
			return fmt.Errorf("%s.ip: got %v, allowed: an IPv4 address", path, host.IP)
		}
		for j, other := range hosts[:i] {
			if other.Name == host.Name || other.IP == host.IP {
				return fmt.Errorf("%s: hosts[%d] has the same name or address", path, j)
			}
		}
	}
	return nil
}

// Nonce is a random number that marks the frames of one measurement.
func Nonce() uint64 {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	return binary.NativeEndian.Uint64(nonce[:])
}
