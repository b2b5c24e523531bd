package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Parameter is one parameter of a load.
type Parameter struct {
	Name       string      // in JSON
	Field      string      // of Spec, where that has another name
	Flag       string      // of the commands for people; in capitals: an argument of theirs
	RangeFlag  string      // of the command range, where that is another one
	Operations []Operation // that have it; nil in the table: all
	Required   bool        // in a body

	Min, Max float64  // in Unit, of a text its length in bytes; Max 0: no upper bound
	Open     bool     // Min is not allowed itself
	Zero     string   // what zero means, where it is allowed outside the bounds
	Optional bool     // the zero value means: not given; it cannot be given
	Choices  []string // of a text
	Form     string   // what is allowed, where the fields above do not say it
	Store    string   // that alone has it; empty: all do

	// Valid tells whether a text has its form, and what is allowed where Allowed does not say it; nil: all texts have.
	Valid func(text string) (allowed string, ok bool)

	Unit    string
	Default string // text of the default, where the zero value does not say it
	Usage   string
	Rule    string // what it depends on

	index []int // of its field, whose type is the parameter's
}

// Kind is the type of a parameter's values.
type Kind string

// The kinds, by their names in JSON, but for Seconds: a number in JSON, a duration with its unit as a flag.
const (
	KindInteger Kind = "integer"
	KindNumber  Kind = "number"
	KindSeconds Kind = "seconds"
	KindText    Kind = "string"
	KindBoolean Kind = "boolean"
)

func (p *Parameter) at(s *Spec) any {
	return reflect.ValueOf(s).Elem().FieldByIndex(p.index).Addr().Interface()
}

// Kind tells what values the parameter has.
func (p *Parameter) Kind() Kind {
	switch p.at(&Spec{}).(type) {
	case *int, *int64:
		return KindInteger
	case *float64:
		return KindNumber
	case *time.Duration:
		return KindSeconds
	case *bool:
		return KindBoolean
	}
	return KindText
}

// Of tells whether the operation has the parameter.
func (p *Parameter) Of(operation Operation) bool { return slices.Contains(p.Operations, operation) }

// Shared tells whether it is the same flag of every command.
func (p *Parameter) Shared() bool { return len(p.Operations) == len(Operations) && p.RangeFlag == "" }

// FlagOf is the flag of an operation's command.
func (p *Parameter) FlagOf(operation Operation) string {
	if operation == Range && p.RangeFlag != "" {
		return p.RangeFlag
	}
	return p.Flag
}

// Argument tells whether the commands take it as an argument, and not as a flag.
func (p *Parameter) Argument() bool { return strings.ToUpper(p.Flag) == p.Flag }

// Bounded tells whether it is a number with an upper bound.
func (p *Parameter) Bounded() bool { return p.Max > 0 && p.Kind() != KindText }

// Value is what JSON holds of it: a number of seconds for a duration.
func (p *Parameter) Value(s *Spec) any {
	switch place := p.at(s).(type) {
	case *time.Duration:
		return place.Seconds()
	case *[]string:
		return strings.Join(*place, ",")
	default:
		return reflect.ValueOf(place).Elem().Interface()
	}
}

// set takes a JSON value; false if it is of another type.
func (p *Parameter) set(s *Spec, raw json.RawMessage) bool {
	if string(raw) == "null" {
		return false
	}
	text, seconds := "", 0.0
	place := p.at(s)
	target := place
	switch place.(type) {
	case *time.Duration:
		target = &seconds
	case *string, *[]string:
		target = &text
	}
	if json.Unmarshal(raw, target) != nil {
		return false
	}
	switch place := place.(type) {
	case *time.Duration:
		*place = Seconds(seconds)
		if *place == 0 && seconds != 0 {
			return false // 0 may have a meaning of its own
		}
	case *string:
		*place = text
	case *[]string:
		*place = strings.Split(text, ",")
	}
	// encoding/json puts U+FFFD where an escape is half a surrogate pair.
	return !strings.ContainsRune(text, utf8.RuneError)
}

// SetText takes the text of a flag or an argument.
func (p *Parameter) SetText(s *Spec, text string) error {
	var err error
	switch place := p.at(s).(type) {
	case *int:
		var n int64
		n, err = strconv.ParseInt(text, 0, strconv.IntSize)
		*place = int(n)
	case *int64:
		*place, err = strconv.ParseInt(text, 0, 64)
	case *float64:
		*place, err = strconv.ParseFloat(text, 64)
	case *time.Duration:
		*place, err = time.ParseDuration(text)
	case *bool:
		*place, err = strconv.ParseBool(text)
	case *string:
		*place = text
	case *[]string:
		*place, err = ParseEndpoints(text)
		return err
	}
	switch {
	case err == nil:
		return nil
	case p.Kind() == KindSeconds:
		return fmt.Errorf("allowed: a duration such as 1.5s, in %s seconds", p.Bounds())
	}
	return fmt.Errorf("allowed: %s", p.Allowed())
}

// Text is the inverse of SetText; empty for a parameter that is not given.
func (p *Parameter) Text(s *Spec) string {
	if p.Optional && p.zero(s) {
		return ""
	}
	if d, ok := p.at(s).(*time.Duration); ok {
		return d.String()
	}
	return fmt.Sprint(p.Value(s))
}

func (p *Parameter) zero(s *Spec) bool { return reflect.ValueOf(p.at(s)).Elem().IsZero() }

// number is what the bounds apply to: its value, or a text's length in bytes.
func (p *Parameter) number(s *Spec) float64 {
	switch value := reflect.ValueOf(p.Value(s)); {
	case value.CanInt():
		return float64(value.Int())
	case value.CanFloat():
		return value.Float()
	default:
		return float64(value.Len())
	}
}

// check checks the parameter by itself, without rules about several.
func (p *Parameter) check(s *Spec) *Problem {
	if p.Kind() == KindBoolean || (p.Optional || p.Zero != "") && p.zero(s) {
		return nil
	}
	n := p.number(s)
	allowed, ok := "", n >= p.Min && (p.Max == 0 || n <= p.Max) && !(p.Open && n == p.Min)
	if p.Choices != nil {
		ok = slices.Contains(p.Choices, p.Value(s).(string))
	}
	if ok && p.Valid != nil {
		allowed, ok = p.Valid(p.Value(s).(string))
	}
	if !ok {
		return s.problem(p, cmp.Or(allowed, p.Allowed()))
	}
	return nil
}

// Bounds tells what values are allowed, without their type; empty: all values.
func (p *Parameter) Bounds() string {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	span := number(p.Min) + ".." + number(p.Max)
	switch {
	case p.Form != "":
		return p.Form
	case len(p.Choices) == 1:
		return `"` + p.Choices[0] + `"`
	case p.Choices != nil:
		last := len(p.Choices) - 1
		return `"` + strings.Join(p.Choices[:last], `", "`) + `" or "` + p.Choices[last] + `"`
	case p.Kind() == KindText:
		return "at most " + number(p.Max) + " bytes of Unicode text"
	case p.Kind() == KindBoolean:
		return ""
	case p.Open:
		return "more than " + number(p.Min) + ", at most " + number(p.Max)
	case p.Max == 0:
		return "0 (" + p.Zero + ") or more"
	case p.Zero != "":
		return "0 (" + p.Zero + ") or " + span
	}
	return span
}

// Allowed tells what values are allowed.
func (p *Parameter) Allowed() string {
	of := map[string]string{"bytes": " bytes", "requests/s": " requests/s"}[p.Unit]
	join := " in "
	if p.Open || p.Zero != "" {
		join = ": "
	}
	switch p.Kind() {
	case KindInteger:
		return "an integer" + join + p.Bounds() + of
	case KindNumber:
		return "a number" + join + p.Bounds() + of
	case KindSeconds:
		return "a number of seconds" + join + p.Bounds()
	case KindBoolean:
		return "true or false"
	}
	return "a string: " + p.Bounds()
}
