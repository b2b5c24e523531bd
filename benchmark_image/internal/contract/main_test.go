package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/spec"
)

func TestWhatIsGeneratedIsCommitted(t *testing.T) {
	files := assert.Got(generated())(t)
	for path, want := range files {
		got, err := os.ReadFile(path)
		assert.That(t, err == nil && string(got) == want, "%s is stale: run %s (%v)", path, howToMake, err)
	}
}

// beside has the other fields that a parameter needs to be accepted.
var beside = map[string]string{
	"warmupDuration": `"rate":1`, "duration": `"rate":1,"keySpace":5`, "rate": `"total":1`,
	"zipfExponent": `"keyOrder":"zipfian"`, "total": `"keySpace":1`, "keySize": `"keySpace":1`,
}

// TestTheSchemaAndTheParserAllowTheSame tries the bounds of each parameter, and what lies next to them.
func TestTheSchemaAndTheParserAllowTheSame(t *testing.T) {
	tried := 0
	for _, operation := range spec.Operations {
		schema := reporttest.Request(t, operation)
		for _, p := range spec.Parameters {
			for value, want := range valuesOf(p) {
				if !p.Of(operation) {
					break
				}
				tried++
				body := fmt.Sprintf(`{"endpoints":"a:1",%q:%s`, p.Name, value)
				if operation == spec.Range && p.Name != "keySize" {
					body += `,"keySize":1024,"verify":true`
				}
				if other := beside[p.Name]; other != "" {
					body += "," + other
				}
				body += "}"
				decoded := assert.Got(jsonschema.UnmarshalJSON(strings.NewReader(body)))(t)
				invalid := schema.Validate(decoded)
				_, problem := spec.ParseBody(operation, []byte(body))
				assert.That(t, (invalid == nil) == want && (problem == nil) == want && (want || problem.Field == p.Name),
					"%s %s: the schema: %v, the parser: %v; is it allowed: %v", operation, body, invalid, problem, want)
			}
		}
	}
	assert.That(t, tried >= 200, "only %d values were tried", tried)
}

// valuesOf gives JSON values next to the bounds, and whether they are allowed.
func valuesOf(p *spec.Parameter) map[string]bool {
	if !p.Bounded() {
		return nil
	}
	step := 1.0
	if p.Kind() != spec.KindInteger {
		step = p.Min / 2
	}
	values := map[string]bool{
		`"x"`: false, "null": false, "-1": false,
		string(plain(p.Max)): true, string(plain(p.Max + max(step, 0.5))): false,
		string(plain(p.Min)): !p.Open,
	}
	if p.Min > 0 {
		values["0"] = p.Zero != ""
		if p.Kind() != spec.KindInteger {
			values[string(plain(p.Min-step))] = false
		}
	}
	return values
}
