// Package assert has the assertions of tests.
package assert

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// That reports, by what is found instead, that something does not hold.
func That(t testing.TB, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, found...)
	}
}

// Must is That, and ends the test.
func Must(t testing.TB, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, found...)
	}
}

// Equal reports a value that is another one than the wanted one, also in what it points to.
func Equal[T any](t testing.TB, got, want T, format string, of ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", fmt.Sprintf(format, of...), got, want)
	}
}

// OK ends a test in which what must succeed has failed.
func OK(t testing.TB, problems ...error) {
	t.Helper()
	if err := errors.Join(problems...); err != nil {
		t.Fatal(err)
	}
}

// Got is the value of a call that must succeed: Got(os.Open(name))(t).
func Got[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}
