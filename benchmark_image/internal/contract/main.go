// Command contract generates what follows from the table of parameters in package spec: the JSON Schema of the
// requests, the tables of fields in the documentation, and the bounds and paths that the driver reads.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
)

//go:generate go run .

// The files that are written, from this directory.
const (
	schemaFile = "../../../docs/benchmark-request.schema.json"
	docsFile   = "../../README.md"
	driverFile = "../../../containernet_env/model/load_contract.json"
)

const howToMake = "`go generate ./...` in benchmark_image"

func main() {
	files, err := generated()
	for path, content := range files {
		err = errors.Join(err, os.WriteFile(path, []byte(content), 0o644))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "contract: %v\n", err)
		os.Exit(1)
	}
}

func generated() (map[string]string, error) {
	docs, err := os.ReadFile(docsFile)
	if err != nil {
		return nil, err
	}
	withTables, err := replaceTables(string(docs))
	if err != nil {
		return nil, err
	}
	return map[string]string{schemaFile: schema(), driverFile: driver(), docsFile: withTables}, nil
}

// driver gives the bounds of numbers and the paths as JSON.
func driver() string {
	least, most := make(map[string]json.Number), make(map[string]json.Number)
	for _, p := range spec.Parameters {
		if p.Bounded() {
			least[p.Name], most[p.Name] = plain(p.Min), plain(p.Max)
		}
	}
	paths := map[string]string{"result": spec.ResultPath}
	for _, operation := range spec.Operations {
		paths[operation.Name()] = operation.Path()
	}
	text, err := json.MarshalIndent(map[string]any{
		"least": least, "most": most, "paths": paths, "keySpaceOfDuration": spec.DurationKeySpace,
		"uniqueValSizeMin": keys.VersionSize,
	}, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

func plain(n float64) json.Number { return json.Number(strconv.FormatFloat(n, 'f', -1, 64)) }

var fieldTable = regexp.MustCompile(`(?s)<!-- FIELDS of (\w+) -->\n.*?<!-- END OF FIELDS -->\n`)

// replaceTables puts new tables between the marks of the documentation: one for the parameters that all operations
// have, and one for the others.
func replaceTables(docs string) (string, error) {
	tables := map[string]string{"all": table(true), "some": table(false)}
	found := 0
	docs = fieldTable.ReplaceAllStringFunc(docs, func(old string) string {
		name := fieldTable.FindStringSubmatch(old)[1]
		found++
		return fmt.Sprintf("<!-- FIELDS of %s -->\n%s<!-- END OF FIELDS -->\n", name, tables[name])
	})
	if found != len(tables) {
		return "", fmt.Errorf("%s has the marks of %d tables, there are %d", docsFile, found, len(tables))
	}
	return docs, nil
}

var quotedText = regexp.MustCompile(`"[^"]+"`)

// table has the parameters that all operations have, or the others with their operations.
func table(ofAll bool) string {
	var b strings.Builder
	of, line := "of | ", "--- | "
	if ofAll {
		of, line = "", ""
	}
	fmt.Fprintf(&b, "| field | %stype | unit | range | default | meaning |\n", of)
	fmt.Fprintf(&b, "| --- | %s--- | --- | --- | --- | --- |\n", line)
	for _, p := range spec.Parameters {
		if ofAll != (len(p.Operations) == len(spec.Operations)) {
			continue
		}
		fmt.Fprintf(&b, "| `%s` |", p.Name)
		if !ofAll {
			var names []string
			for _, operation := range p.Operations {
				names = append(names, operation.Name())
			}
			fmt.Fprintf(&b, " %s |", strings.Join(names, ", "))
		}
		allowed := strings.Trim(p.Bounds()+"; "+p.Rule, "; ")
		fmt.Fprintf(&b, " %s | %s | %s | %s | %s |\n", jsonType(p), p.Unit,
			quotedText.ReplaceAllString(allowed, "`$0`"), shownDefault(p), p.Usage)
	}
	return strings.ReplaceAll(b.String(), "  ", " ")
}

func jsonType(p *spec.Parameter) string {
	if p.Kind() == spec.KindSeconds {
		return "number"
	}
	return string(p.Kind())
}

// shownDefault is empty where a parameter that is not given has no value.
func shownDefault(p *spec.Parameter) string {
	defaults := spec.Default(p.Operations[0])
	switch {
	case p.Required:
		return "required"
	case p.Default != "":
		return p.Default
	case p.Optional && p.Name != "total":
		return ""
	case p.Kind() == spec.KindText && p.Choices == nil:
		return "empty"
	}
	return fmt.Sprintf("`%s`", encoded(p.Value(&defaults)))
}

func description(p *spec.Parameter) string {
	text := p.Usage
	if p.Unit == "s" || p.Unit == "bytes" {
		text += " (" + p.Unit + ")"
	}
	if p.Rule != "" {
		text += "; " + p.Rule
	}
	return text
}

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
