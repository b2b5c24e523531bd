// Package reporttest checks, in tests, that reports have the form that is promised to their readers.
package reporttest

import (
	"bytes"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/spec"
)

// schemas has the compiled ones by their places in docs.
var schemas sync.Map

// Schema compiles one of the schemas in docs, or a part of it.
func Schema(t testing.TB, file string) *jsonschema.Schema {
	t.Helper()
	if known, ok := schemas.Load(file); ok {
		return known.(*jsonschema.Schema)
	}
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "..", "..", "..", "docs", file)
	schema := assert.Got(jsonschema.NewCompiler().Compile(path))(t)
	schemas.Store(file, schema)
	return schema
}

// Request gives the schema of the bodies of an operation.
func Request(t testing.TB, operation spec.Operation) *jsonschema.Schema {
	t.Helper()
	return Schema(t, "benchmark-request.schema.json#/$defs/"+operation.Name())
}

// Check compares a report with docs/benchmark-result.schema.json, and the request in it with that of requests.
func Check(t testing.TB, report []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(report))
	assert.Must(t, err == nil, "%v in %s", err, report)
	if err := Schema(t, "benchmark-result.schema.json").Validate(value); err != nil {
		t.Errorf("the report does not keep to its schema: %v", err)
		return
	}
	result := value.(map[string]any)
	if err := Request(t, spec.Operation(result["operation"].(string))).Validate(result["configured"]); err != nil {
		t.Errorf("what the report says of the load does not keep to the schema of requests: %v", err)
	}
}
