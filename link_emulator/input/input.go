// Package input reads what other programs send, JSON, and refuses everything that is unknown or out of range.
package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Bounds of names and process ids.
const (
	MaxNameBytes = 128
	maxPID       = 1 << 22
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
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		return err
	}
	allowed := wrong.Type.Kind().String()
	if wrong.Type == reflect.TypeFor[Limit]() {
		allowed = "a positive integer, or null"
	}
	return fmt.Errorf("%s: got %s, allowed: %s", wrong.Field, wrong.Value, allowed)
}

// Number is an integer with the default 0, which null stands for.
type Number int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(data []byte) error {
	*n = 0 // null changes nothing in the next line
	return json.Unmarshal(data, (*int64)(n))
}

// Limit is a positive integer, or 0 for no limit, which is null in JSON.
type Limit int64

// UnmarshalJSON implements json.Unmarshaler.
func (l *Limit) UnmarshalJSON(data []byte) error {
	err := (*Number)(l).UnmarshalJSON(data)
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
	if err := Range(field, int64(l), low, high); l != 0 && err != nil {
		return fmt.Errorf("%w, or null", err)
	}
	return nil
}

// Range refuses a number that is not in a range.
func Range(field string, got, low, high int64) error {
	if got < low || got > high {
		return fmt.Errorf("%s: got %d, allowed: %d to %d", field, got, low, high)
	}
	return nil
}

// PID refuses what is no process id.
func PID(field string, pid int) error { return Range(field, int64(pid), 1, maxPID) }

// Name refuses a text that is empty or longer than so many bytes.
func Name(field, text string, maxBytes int) error {
	if text == "" || len(text) > maxBytes {
		return fmt.Errorf("%s: got %.60q, allowed: 1 to %d bytes", field, text, maxBytes)
	}
	return nil
}
