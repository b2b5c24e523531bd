package api

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/etcdtest"
	"containernet-env/benchmark_image/internal/spec"
)

const docs = "../../../docs/http-api.md"

var (
	example = regexp.MustCompile("(?s)```sh\n(curl [^\n]*)\n```\n\nAnswer (\\d+):\n\n```json\n([^\n]*)\n```")
	curl    = regexp.MustCompile(`^curl (?:-X (\w+) )?(?:-d '([^']*)' )?http://localhost:8080(/\S*)$`)
	row     = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (?:string|integer|number|boolean) \\|")
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestExamplesInTheDocs runs every example, in order, against a cluster whose members take the places of
// those in the examples. Answers must be equal, but for figures that a measurement gives.
func TestExamplesInTheDocs(t *testing.T) {
	text := readDocs(t)
	examples := example.FindAllStringSubmatch(text, -1)
	if blocks := strings.Count(text, "```sh"); len(examples) != blocks || blocks < 5 {
		t.Fatalf("%d of %d examples have the form that this test reads", len(examples), blocks)
	}
	url, _ := start(t)
	cluster := etcdtest.Start(t, 3)
	var toTest, toDocs []string
	for i, endpoint := range cluster.Endpoints() {
		inDocs := fmt.Sprintf("10.0.0.%d:2379", 251+i)
		toTest, toDocs = append(toTest, inDocs, endpoint), append(toDocs, endpoint, inDocs)
	}
	for _, e := range examples {
		call := curl.FindStringSubmatch(e[1])
		if call == nil {
			t.Errorf("cannot read %s", e[1])
			continue
		}
		method, body, path := call[1], call[2], call[3]
		if method == "" {
			method = map[bool]string{true: "POST", false: "GET"}[body != ""]
		}
		status, _, answer := send(t, method, url+path, strings.NewReplacer(toTest...).Replace(body))
		if strconv.Itoa(status) != e[2] {
			t.Errorf("%s\nanswers %d %s", e[1], status, answer)
			continue
		}
		var got, want any
		if err := json.Unmarshal([]byte(strings.NewReplacer(toDocs...).Replace(string(answer))), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(e[3]), &want); err != nil {
			t.Errorf("the answer of %s in the docs: %v", e[1], err)
		}
		if got, want := withoutFigures(got), withoutFigures(want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nanswers   %v\nin the docs %v", e[1], got, want)
		}
	}
}

// withoutFigures replaces what a measurement gives: numbers in fields that end in _s.
func withoutFigures(v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for name, value := range object {
		switch value := value.(type) {
		case float64:
			if strings.HasSuffix(name, "_s") && value != 0 {
				object[name] = "a figure"
			}
		case map[string]any:
			if name == "percentiles_s" {
				for p := range value {
					value[p] = "a figure"
				}
			}
			object[name] = withoutFigures(value)
		}
	}
	return object
}

// TestEveryFieldIsInTheDocs compares the tables of fields with the fields that bodies may have.
func TestEveryFieldIsInTheDocs(t *testing.T) {
	text, _, _ := strings.Cut(readDocs(t), "## Answers")
	shared, rest, _ := strings.Cut(text, "## Fields of /benchmark/write")
	write, read, _ := strings.Cut(rest, "## Fields of /benchmark/read")
	for operation, section := range map[spec.Operation]string{spec.Put: write, spec.Range: read} {
		var names []string
		for _, match := range row.FindAllStringSubmatch(shared+section, -1) {
			names = append(names, match[1])
		}
		slices.Sort(names)
		if got := strings.Join(names, ", "); got != namesOf(operation) {
			t.Errorf("%s: the docs have  %s\nbodies may have %s", operation, got, namesOf(operation))
		}
	}
}
