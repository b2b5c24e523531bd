package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxEncoded is more than MarshalJSON gives for any valid Spec, in bytes: 100 endpoints of 260, and three texts of
// 4096, four of 512 and one of 256 bytes, that take six each.
const MaxEncoded = 128 << 10

// encode appends the parameters to an object whose beginning is given.
func (s *Spec) encode(object []byte) []byte {
	for _, p := range Parameters {
		_, isText := p.Value(s).(string)
		emptyPrefix := p == paramKey && s.KeyIsPrefix
		if !p.Of(s.Operation) || p.zero(s) && (p.Optional || isText) && !emptyPrefix {
			continue
		}
		if object[len(object)-1] != '{' {
			object = append(object, ',')
		}
		object = append(appendValue(object, p.Name), ':')
		object = appendValue(object, p.Value(s))
	}
	return append(object, '}')
}

// appendValue appends the JSON of a value that always has one.
func appendValue(to []byte, value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode %v: %v", value, err))
	}
	return append(to, encoded...)
}

// Decode reads what MarshalJSON gives, as strictly as ParseBody.
func Decode(encoded []byte) (*Spec, *Problem) {
	values, problem := parseObject(encoded)
	if problem != nil {
		return nil, problem
	}
	var operation Operation
	if json.Unmarshal(values["operation"], &operation) != nil || !slices.Contains(Operations, operation) {
		return nil, refuse("operation", show(values["operation"]), fmt.Sprintf("one of %q", Operations))
	}
	delete(values, "operation")
	return parse(operation, values)
}

// ParseBody reads the body of a benchmark of the given operation. It accepts one JSON object and nothing
// else: unknown fields, fields given twice and values of other types are refused.
func ParseBody(operation Operation, body []byte) (*Spec, *Problem) {
	values, problem := parseObject(body)
	if problem != nil {
		return nil, problem
	}
	return parse(operation, values)
}

func parse(operation Operation, values map[string]json.RawMessage) (*Spec, *Problem) {
	if problem := checkNames(operation, values); problem != nil {
		return nil, problem
	}
	s := Default(operation)
	for _, p := range Parameters {
		if raw, ok := values[p.Name]; ok && (!p.set(&s, raw) || p.Optional && p.zero(&s)) {
			return nil, refuse(p.Name, show(raw), p.Allowed())
		}
	}
	s.Complete(func(name string) bool { return values[name] != nil })
	if problem := s.Validate(); problem != nil {
		return nil, problem
	}
	return &s, nil
}

// parseObject splits a JSON object into its fields. encoding/json would take the last of two fields with
// the same name, ignore case, and replace what is not UTF-8.
func parseObject(body []byte) (map[string]json.RawMessage, *Problem) {
	broken := func(format string, args ...any) (map[string]json.RawMessage, *Problem) {
		return nil, &Problem{Message: "the body is not one JSON object: " + fmt.Sprintf(format, args...)}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return broken("it is empty")
	}
	if !utf8.Valid(body) {
		return broken("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	token, err := decoder.Token()
	if err != nil {
		return broken("%v", err)
	}
	if token != json.Delim('{') {
		return broken("it starts with %v", show(body))
	}
	values := make(map[string]json.RawMessage)
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return broken("%v", err)
		}
		name, ok := token.(string)
		if !ok {
			return broken("a field name was expected, not %v", token)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return broken("the value of %.100q: %v", name, err)
		}
		if values[name] != nil {
			return nil, &Problem{Message: fmt.Sprintf("%.100q is given twice", name), Field: Clip(name)}
		}
		values[name] = value
	}
	if _, err := decoder.Token(); err != nil {
		return broken("%v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return broken("something follows after the object")
	}
	return values, nil
}

// checkNames refuses fields that this operation does not have. A field of another operation most
// likely means that the request went to the wrong path.
func checkNames(operation Operation, values map[string]json.RawMessage) *Problem {
	here := operation.Path()
	unknown := make(map[string]bool)
	for name := range values {
		unknown[name] = true
	}
	for _, p := range Parameters {
		delete(unknown, p.Name)
		raw, given := values[p.Name]
		if given && !p.Of(operation) {
			problem := refuse(p.Name, show(raw), "fields of "+here+": "+namesOf(operation))
			problem.Message = fmt.Sprintf("%q belongs to POST %s; this is %s", p.Name, p.Operations[0].Path(), here)
			return problem
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		got := show(values[name])
		if strings.Contains(strings.ToLower(name), "password") {
			got = "..." // it may be one
		}
		problem := refuse(Clip(name), got, namesOf(operation))
		problem.Message = fmt.Sprintf("%.100q is not a field of %s; its fields: %s", name, here, problem.Allowed)
		return problem
	}
	for _, p := range Parameters {
		if p.Required && values[p.Name] == nil {
			return missing(p, p.Allowed())
		}
	}
	if operation == Range && values["keySize"] == nil {
		switch {
		case values["keySpace"] != nil:
			return missing(paramKeySize, "the size in bytes of the keys that keySpace counts")
		case values["key"] == nil:
			return missing(paramKey, "a key to read, or keySize and keySpace to read generated keys in turn")
		}
	}
	return nil
}

func missing(p *Parameter, allowed string) *Problem {
	return &Problem{Message: fmt.Sprintf("%s is missing: %s", p.Name, allowed), Field: p.Name, Allowed: allowed}
}

func namesOf(operation Operation) string {
	var names []string
	for _, p := range Parameters {
		if p.Of(operation) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// show gives a JSON value as it was sent: 1000.0 is not 1000.
func show(raw []byte) any {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if len(raw) <= maxShown && decoder.Decode(&value) == nil && value != nil {
		return value
	}
	return Clip(string(bytes.TrimSpace(raw)))
}

// Problem is the reason for which a benchmark is refused; as JSON it is the body of an HTTP answer.
type Problem struct {
	Message string `json:"error"`
	Field   string `json:"field,omitempty"`
	Got     any    `json:"got,omitempty"`
	Allowed string `json:"allowed,omitempty"`

	flag string // what the command line calls Field
}

// Error names the field as the HTTP interface does.
func (p *Problem) Error() string { return p.Message }

// FlagError names the field as the command line does.
func (p *Problem) FlagError() string {
	if p.flag == "" {
		return p.Message
	}
	return refusal(p.flag, p.Got, p.Allowed)
}

// refuse gives the problem of a field that the table of parameters does not, or not alone, decide.
func refuse(field string, got any, allowed string) *Problem {
	return &Problem{Message: refusal(field, got, allowed), Field: field, Got: got, Allowed: allowed}
}

// problem gives the problem of a parameter of s.
func (s *Spec) problem(p *Parameter, allowed string) *Problem {
	got := p.Value(s)
	if text, ok := got.(string); ok {
		got = Clip(text)
	}
	problem := refuse(p.Name, got, allowed)
	if problem.flag = p.FlagOf(s.Operation); !p.Argument() {
		problem.flag = "--" + problem.flag
	}
	return problem
}

func refusal(name string, got any, allowed string) string {
	shown := fmt.Sprint(got) // for a number that JSON cannot express
	if encoded, err := json.Marshal(got); err == nil {
		shown = Clip(string(encoded))
	}
	return fmt.Sprintf("%s: got %s, allowed: %s", name, shown, allowed)
}

// maxShown bounds how much of a wrong value a problem quotes, in bytes.
const maxShown = 200

// Clip bounds a text that a caller chose.
func Clip(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}
