// Package refusal holds the one error kind that reaches the user of the control protocol and of the prober:
// a request that is refused, with the JSON path of the field that is at fault.
package refusal

import (
	"errors"
	"fmt"
)

// Error is a refused request. Field is a JSON path such as "a_to_b.delay_ns", empty where no single field is at fault.
// Text is one line: what was asked, what was got, what is allowed.
type Error struct {
	Field string
	Text  string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Text
	}
	return e.Field + ": " + e.Text
}

// New makes a refusal that blames field.
func New(field, format string, args ...any) error {
	return &Error{Field: field, Text: fmt.Sprintf(format, args...)}
}

// Under returns err with its field moved below prefix ("rate_bps" under "a_to_b" is "a_to_b.rate_bps").
// An error of another kind is returned as it is.
func Under(prefix string, err error) error {
	var r *Error
	if !errors.As(err, &r) {
		return err
	}
	switch {
	case prefix == "":
		return r
	case r.Field == "":
		return &Error{Field: prefix, Text: r.Text}
	}
	return &Error{Field: prefix + "." + r.Field, Text: r.Text}
}

// Parts splits any error into the field at fault (may be empty) and the text.
func Parts(err error) (field, text string) {
	var r *Error
	if errors.As(err, &r) {
		return r.Field, r.Text
	}
	return "", err.Error()
}
