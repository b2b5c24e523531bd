package strictjson

import (
	"errors"
	"strings"
	"testing"

	"containernet-env/link_emulator/refusal"
)

// read takes one document of a fixed form apart.
func read(text string) error {
	o, err := Parse([]byte(text))
	if err != nil {
		return err
	}
	o.Int("n", 1, 10)
	o.IntOr("optional", 5, 0, 10)
	o.Bool("flag")
	if o.Has("f") {
		o.Float("f", 0, 1)
	}
	o.Object("inner", func(o *Object) { o.String("s", 3) })
	o.Objects("list", 1, 2, func(o *Object) { o.Int("x", 0, 1) })
	return o.Done()
}

func TestAcceptsWhatWasAskedFor(t *testing.T) {
	if err := read(` {"n":10,"flag":false,"inner":{"s":"abc"},"list":[{"x":0},{"x":1}]} `); err != nil {
		t.Error(err)
	}
}

func TestRefusalsNameThePath(t *testing.T) {
	const good = `{"n":1,"flag":true,"inner":{"s":"a"},"list":[{"x":0}]}`
	for _, c := range []struct{ old, new, field string }{
		{`{"n"`, `{"N":1,"n"`, "N"},
		{`{"n":1`, `{"n":1,"n":1`, "n"},
		{`"n":1`, `"n":11`, "n"},
		{`"n":1`, `"n":1.0`, "n"},
		{`"n":1`, `"n":99999999999999999999`, "n"},
		{`"n":1`, `"n":null`, "n"},
		{`"n":1`, `"n":1,"optional":"x"`, "optional"},
		{`true`, `"true"`, "flag"},
		{`"n":1`, `"n":1,"f":1.5`, "f"},
		{`"n":1`, `"n":1,"f":-1e-9`, "f"},
		{`"n":1`, `"n":1,"f":"0.5"`, "f"},
		{`"n":1`, `"n":1,"f":null`, "f"},
		{`"n":1`, `"n":1,"f":1e999`, "f"},
		{`"s":"a"`, ``, "inner.s"},
		{`"s":"a"`, `"s":"abcd"`, "inner.s"},
		{`"s":"a"`, `"s":"a","t":1`, "inner.t"},
		{`{"s":"a"}`, `7`, "inner"},
		{`[{"x":0}]`, `[]`, "list"},
		{`[{"x":0}]`, `{}`, "list"},
		{`[{"x":0}]`, `[{"x":0},{"x":2}]`, "list[1].x"},
		{`[{"x":0}]`, `[{"x":0},{"y":2}]`, "list[1].x"},
		{`[{"x":0}]`, `[null]`, "list[0]"},
		{good, `null`, ""},
		{good, good + "x", ""},
		{good, "", ""},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		err := read(text)
		var refused *refusal.Error
		if !errors.As(err, &refused) || refused.Field != c.field || strings.Contains(refused.Text, "\n") {
			t.Errorf("%s: got %v, want a refusal of %q on one line", text, err, c.field)
		}
	}
}
