package spec

import (
	"encoding/json"
	"fmt"
	"strings"
)

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
