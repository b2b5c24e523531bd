package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"containernet-env/benchmark_image/internal/spec"
)

// schema has one definition for each operation, with one line for each field.
func schema() string {
	var references, definitions []string
	for _, operation := range spec.Operations {
		var properties, required []string
		for _, p := range spec.Parameters {
			if !p.Of(operation) {
				continue
			}
			properties = append(properties, fmt.Sprintf("        %q: %s", p.Name, encoded(property(p, operation))))
			if p.Required {
				required = append(required, p.Name)
			}
		}
		references = append(references, fmt.Sprintf(`    {"$ref": "#/$defs/%s"}`, operation.Name()))
		definitions = append(definitions, fmt.Sprintf(`    %q: {
      "title": "Body of POST %s",
      "type": "object",
      "additionalProperties": false,
      "required": %s,
      "properties": {
%s
      }
    }`, operation.Name(), operation.Path(), encoded(required), strings.Join(properties, ",\n")))
	}
	return fmt.Sprintf(`{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Request for a benchmark",
  "description": "Made by %s. What fields demand of each other is in their descriptions only, and in benchmark_image/README.md.",
  "anyOf": [
%s
  ],
  "$defs": {
%s
  }
}
`, howToMake, strings.Join(references, ",\n"), strings.Join(definitions, ",\n"))
}

// rule is what JSON Schema says of one field, in the order of its members here.
type rule struct {
	Type             string   `json:"type,omitempty"`
	Enum             []string `json:"enum,omitempty"`
	Minimum          *float64 `json:"minimum,omitempty"`
	ExclusiveMinimum *float64 `json:"exclusiveMinimum,omitempty"`
	Maximum          *float64 `json:"maximum,omitempty"`
	MinLength        int      `json:"minLength,omitempty"`
	AnyOf            []any    `json:"anyOf,omitempty"`
	Default          any      `json:"default,omitempty"`
	Description      string   `json:"description,omitempty"`
}

func property(p *spec.Parameter, operation spec.Operation) rule {
	r := rule{Type: jsonType(p), Enum: p.Choices, Description: description(p)}
	defaults := spec.Default(operation)
	if value := p.Value(&defaults); !p.Required && value != "" && (!p.Optional || value != 0 && value != 0.0) {
		r.Default = value
	}
	if p.Kind() == spec.KindText {
		if p.Optional && p.Choices == nil || p.Required {
			r.MinLength = 1
		}
		return r
	}
	if p.Kind() == spec.KindBoolean {
		return r
	}
	bounds := rule{Minimum: &p.Min}
	if p.Open {
		bounds = rule{ExclusiveMinimum: &p.Min}
	}
	if p.Max > 0 {
		bounds.Maximum = &p.Max
	}
	if p.Zero != "" && p.Min > 0 {
		r.AnyOf = []any{map[string]int{"const": 0}, bounds}
		return r
	}
	r.Minimum, r.ExclusiveMinimum, r.Maximum = bounds.Minimum, bounds.ExclusiveMinimum, bounds.Maximum
	return r
}

// encoded gives the JSON of a value that always has one, without HTML escapes.
func encoded(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
