package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"containernet-env/benchmark_image/internal/spec"
)

// Refusal is a request that cannot be carried out; it is the body of every 4xx answer.
type Refusal struct {
	Message string `json:"error"`
	Field   string `json:"field,omitempty"`
	Got     any    `json:"got,omitempty"`
	Allowed string `json:"allowed,omitempty"`

	status int
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// required are the fields without a default.
var required = []string{"endpoints"}

// ParseBody reads the body of a benchmark of the given operation. It accepts one JSON object and nothing
// else: unknown fields, fields given twice and values of other types are refused.
func ParseBody(operation spec.Operation, body []byte) (*spec.Spec, *Refusal) {
	values, refusal := parseObject(body)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := checkNames(operation, values); refusal != nil {
		return nil, refusal
	}
	s := spec.Default(operation)
	if given(values, "keySpace") && operation == spec.Range && !given(values, "keySize") {
		return nil, missing("keySize", "the size in bytes of the keys that keySpace counts")
	}
	if given(values, "duration") {
		s.Total = 0 // a total beside it is refused below
	}
	for _, name := range sortedNames(values) {
		f := fields[name]
		if err := f.set(&s, values[name]); err != nil {
			return nil, refuse(name, show(values[name]), f.allowed)
		}
	}
	if refusal := checkZeros(&s, values); refusal != nil {
		return nil, refusal
	}
	if problem := s.Validate(); problem != nil {
		if text, ok := problem.Got.(string); ok {
			problem.Got = clip(text)
		}
		return nil, refuse(problem.Field, problem.Got, problem.Allowed)
	}
	return &s, nil
}

// checkZeros refuses zeros that a Spec could not tell from a field that is not there.
func checkZeros(s *spec.Spec, values map[string]json.RawMessage) *Refusal {
	if given(values, "keySize") && s.KeySize == 0 {
		return refuse("keySize", 0, fmt.Sprintf("an integer in 1..%d, bytes", spec.MaxKeySize))
	}
	if given(values, "keySpace") && s.KeySpace == 0 {
		return refuse("keySpace", 0, fmt.Sprintf("an integer in 1..%d", spec.MaxKeySpace))
	}
	if given(values, "runTimeout") && s.RunTimeout == 0 {
		return refuse("runTimeout", 0, fmt.Sprintf("%v..%v seconds", spec.MinTimeout.Seconds(), spec.MaxRunTimeout.Seconds()))
	}
	duration := fmt.Sprintf("%v..%v seconds", spec.MinTimeout.Seconds(), spec.MaxRunTimeout.Seconds())
	for _, value := range []struct {
		name    string
		zero    bool
		allowed string
	}{
		{"spanKeys", s.SpanKeys == 0, fmt.Sprintf("an integer in 1..%d", spec.MaxKeySpace)},
		{"total", s.Total == 0, fmt.Sprintf("an integer in 1..%d", spec.MaxTotal)},
		{"duration", s.Duration == 0, duration},
		{"warmupDuration", s.WarmupDuration == 0, duration},
		{"steps", s.Steps.Kind == "", fields["steps"].allowed},
		{"keyOrder", s.KeyOrder == "", fields["keyOrder"].allowed},
		{"targetMember", s.TargetMember == "", fields["targetMember"].allowed},
	} {
		if given(values, value.name) && value.zero {
			return refuse(value.name, show(values[value.name]), value.allowed)
		}
	}
	return nil
}

// parseObject splits a JSON object into its fields. encoding/json would take the last of two fields with
// the same name, ignore case, and replace what is not UTF-8.
func parseObject(body []byte) (map[string]json.RawMessage, *Refusal) {
	broken := func(format string, args ...any) (map[string]json.RawMessage, *Refusal) {
		return nil, &Refusal{Message: "the body is not one JSON object: " + fmt.Sprintf(format, args...), status: 400}
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
		if given(values, name) {
			return nil, &Refusal{Message: fmt.Sprintf("%.100q is given twice", name), Field: clip(name), status: 400}
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

// checkNames refuses fields that this operation does not have. A field of the other operation most
// likely means that the request went to the wrong path.
func checkNames(operation spec.Operation, values map[string]json.RawMessage) *Refusal {
	here := paths[operation]
	for _, name := range sortedNames(values) {
		f, known := fields[name]
		if known && !slices.Contains(f.operations, operation) {
			r := refuse(name, show(values[name]), "fields of "+here+": "+namesOf(operation))
			r.Message = fmt.Sprintf("%q belongs to POST %s; this is %s", name, paths[f.operations[0]], here)
			return r
		}
	}
	for _, name := range sortedNames(values) {
		if _, known := fields[name]; !known {
			r := refuse(clip(name), show(values[name]), namesOf(operation))
			r.Message = fmt.Sprintf("%.100q is not a field of %s; its fields: %s", name, here, r.Allowed)
			return r
		}
	}
	for _, name := range required {
		if !given(values, name) {
			return missing(name, fields[name].allowed)
		}
	}
	if operation == spec.Range && !given(values, "key") && !given(values, "keySize") {
		return missing("key", "a key to read, or keySize and keySpace to read generated keys in turn")
	}
	return nil
}

func refuse(name string, got any, allowed string) *Refusal {
	message := fmt.Sprintf("%s: got %s, allowed: %s", name, quote(got), allowed)
	return &Refusal{Message: message, Field: name, Got: got, Allowed: allowed, status: 400}
}

func missing(name, allowed string) *Refusal {
	return &Refusal{Message: fmt.Sprintf("%s is missing: %s", name, allowed), Field: name, Allowed: allowed, status: 400}
}

// textOf refuses U+FFFD: encoding/json puts it where an escape is half a surrogate pair.
func textOf(raw json.RawMessage) (string, error) {
	var t *string
	if err := json.Unmarshal(raw, &t); err != nil || t == nil {
		return "", fmt.Errorf("not a string")
	}
	if strings.ContainsRune(*t, utf8.RuneError) {
		return "", fmt.Errorf("not Unicode text")
	}
	return *t, nil
}

func given(values map[string]json.RawMessage, name string) bool {
	_, ok := values[name]
	return ok
}

func sortedNames(values map[string]json.RawMessage) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func namesOf(operation spec.Operation) string {
	var names []string
	for name, f := range fields {
		if slices.Contains(f.operations, operation) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// maxShown bounds how much of a wrong value an answer repeats, in bytes.
const maxShown = 200

func clip(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}

// show gives a JSON value as it was sent.
func show(raw []byte) any {
	var value any
	if len(raw) <= maxShown && json.Unmarshal(raw, &value) == nil && value != nil {
		return value
	}
	return clip(string(bytes.TrimSpace(raw)))
}

func quote(v any) string {
	encoded, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(encoded))
}
