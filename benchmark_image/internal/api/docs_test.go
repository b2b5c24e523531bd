//go:build plumbing

package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

const docs = "../../../docs/http-api.md"

var (
	example = regexp.MustCompile("(?s)```sh\n(curl [^\n]*)\n```\n\nAnswer (\\d+):\n\n```json\n([^\n]*)\n```")
	curl    = regexp.MustCompile(`^curl (?:-X (\w+) )?(?:-d '([^']*)' )?http://localhost:8080(/\S*)$`)
)

var update = flag.Bool("update", false, "write the answers of the examples anew")

// TestExamplesInTheDocs runs every example, in order, against a cluster whose members replace those in the
// examples. Answers must be equal, except for measured figures.
func TestExamplesInTheDocs(t *testing.T) {
	encoded, err := os.ReadFile(docs)
	must(t, err)
	text := string(encoded)
	examples := example.FindAllStringSubmatch(text, -1)
	if blocks := strings.Count(text, "```sh"); len(examples) != blocks || blocks < 5 {
		t.Fatalf("%d of %d examples have the form that this test reads", len(examples), blocks)
	}
	s := start(t)
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
		status, _, answer := s.send(method, path, strings.NewReplacer(toTest...).Replace(body))
		if strconv.Itoa(status) != e[2] {
			t.Errorf("%s\nanswers %d %s", e[1], status, answer)
			continue
		}
		if *update {
			written := strings.NewReplacer(toDocs...).Replace(string(bytes.TrimSpace(answer)))
			text = strings.Replace(text, e[0], strings.Replace(e[0], e[3], written, 1), 1)
			continue
		}
		var got, want any
		must(t, json.Unmarshal([]byte(strings.NewReplacer(toDocs...).Replace(string(answer))), &got))
		if err := json.Unmarshal([]byte(e[3]), &want); err != nil {
			t.Errorf("the answer of %s in the docs: %v", e[1], err)
		}
		if object := want.(map[string]any); object["schema"] != nil {
			reporttest.Check(t, []byte(e[3]))
		}
		if got, want := withoutFigures(got, false), withoutFigures(want, false); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nanswers   %v\nin the docs %v", e[1], got, want)
		}
	}
	if *update {
		must(t, os.WriteFile(docs, []byte(text), 0o644))
	}
}

// mayBeZero are measured figures that are 0 at times.
var mayBeZero = []string{
	"run_delay_s", "mean_run_delay_s", "pause_s", "pauses", "paused_s", "drain_s", "longest_gap_start_s",
}

// withoutFigures replaces measured figures: numbers in fields that end in _s, the start, percentiles, histograms, and
// the number and contents of a timeline's rows. How many requests of an open loop were sent depends on the machine, so
// all its numbers are figures but for what is configured. Other tests judge schedules.
func withoutFigures(v any, open bool) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	open = open || object["schedule"] != nil
	for name, value := range object {
		switch value := value.(type) {
		case float64:
			measured := strings.HasSuffix(name, "_s") || name == "began_ns" || name == "busy_ratio" || name == "pauses"
			measured = measured && (value != 0 || slices.Contains(mayBeZero, name)) && name != "rate_offered_per_s"
			if measured || open {
				object[name] = "a figure"
			}
		case string:
			if name == "histogram" || name == "job" {
				object[name] = "a figure"
			}
		case []any:
			if name == "timeline" && len(value) > 0 {
				object[name] = slices.Sorted(maps.Keys(value[0].(map[string]any)))
			}
			for i := range value {
				value[i] = withoutFigures(value[i], open)
			}
		case map[string]any:
			if strings.HasPrefix(name, "percentiles") || name == "schedule" {
				for p := range value {
					value[p] = "a figure"
				}
			}
			object[name] = withoutFigures(value, open && name != "configured")
		}
	}
	return object
}
