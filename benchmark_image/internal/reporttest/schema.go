// Package reporttest checks, in tests, that reports have the form that is promised to their readers.
package reporttest

import (
	"bytes"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "..", "..", "..", "docs", "benchmark-result.schema.json")
	return jsonschema.NewCompiler().Compile(path)
})

// Check compares a report with docs/benchmark-result.schema.json.
func Check(t testing.TB, report []byte) {
	t.Helper()
	schema, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(report))
	if err != nil {
		t.Fatalf("%v in %s", err, report)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("the report does not keep to its schema: %v", err)
	}
}
