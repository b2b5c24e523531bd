//go:build plumbing

package emulator

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestREADME runs every example of the protocol in README.md, in order. Lines that begin with two spaces go on with the
// one before; `...` stands for fields that an example does not show.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	must(t, err)
	s := start(t, nil)
	used := map[string]bool{}
	for example := range strings.SplitSeq(strings.ReplaceAll(string(text), "\n  ", ""), "\n") {
		switch kind, line, _ := strings.Cut(example, " "); {
		case kind == ">" && line[0] == '{':
			used[parse(t, line).(map[string]any)["op"].(string)] = true
			s.send(line)
		case kind == "<" && line[0] == '{':
			compare(t, line+" ", parse(t, strings.ReplaceAll(s.localize(line), "...", `"...":0`)), parse(t, s.receive()))
		case example == "! the process 4242 ends":
			must(t, s.host.Process.Kill())
		case kind == "!":
			t.Fatalf("the test does not know how to do %q", line)
		}
	}
	for op := range operations {
		if !used[op] {
			t.Errorf("README.md has no example of %q", op)
		}
	}
}

// varies are the fields whose values differ from run to run; their types do not differ.
const varies = " at_ns pid realtime realtime_reason memory_locked memory_locked_reason kept_awake kept_awake_reason " +
	"turns yields timer_ns passed reason echoes min_ns median_ns "

func compare(t *testing.T, path string, want, got any) {
	t.Helper()
	wantMap, isMap := want.(map[string]any)
	gotMap, _ := got.(map[string]any)
	field := path[strings.LastIndex(path, " "):]
	free := strings.Contains(varies, field+" ") || strings.HasSuffix(path, "self_test max_ns")
	if reflect.TypeOf(want) != reflect.TypeOf(got) || !isMap && !free && !reflect.DeepEqual(want, got) {
		t.Errorf("%s: got %v, the example has %v", path, got, want)
	}
	for name := range gotMap {
		if _, shown := wantMap[name]; !shown && wantMap["..."] == nil {
			t.Errorf("%s: the example lacks %q", path, name)
		}
	}
	for name, value := range wantMap {
		if name != "..." {
			compare(t, path+" "+name, value, gotMap[name])
		}
	}
}

func parse(t *testing.T, line string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &value); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	return value
}
