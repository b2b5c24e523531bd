//go:build plumbing

package control

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the answers into README.md instead of comparing them")

// TestREADME runs every example of the protocol in README.md, in order.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	used := map[string]bool{}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		where := fmt.Sprintf("README.md:%d", i+1)
		switch {
		case strings.HasPrefix(line, "> {"):
			var request struct{ Op string }
			if err := json.Unmarshal([]byte(line[2:]), &request); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			used[request.Op] = true
			s.send(line[2:])
		case strings.HasPrefix(line, "< {"):
			answer := s.receive()
			if *update {
				lines[i] = "< " + s.generalize(answer)
				continue
			}
			compare(t, where, parse(t, s.localize(line[2:])), parse(t, answer))
		case line == "! the process 4242 ends":
			if err := s.host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(line, "! "):
			t.Fatalf("%s: the test does not know how to do %q", where, line)
		}
	}
	for op := range operations {
		if !used[op] {
			t.Errorf("README.md has no example of %q", op)
		}
	}
	if *update {
		if err := os.WriteFile("../README.md", []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// varies are the fields whose values differ from run to run, with what the examples show; their types do not differ.
var varies = map[string]string{
	"at_ns": "7000000000", "pid": "4711", "realtime": "true", "realtime_reason": `""`,
	"memory_locked": "true", "memory_locked_reason": `""`,
	"kept_awake": "true", "kept_awake_reason": `""`,
	"turns": "20", "yields": "0",
	"timer_ns": "21000",
	"passed":   "true", "reason": `""`, "echoes": "25", "min_ns": "1998000", "median_ns": "2004000",
}

var id = regexp.MustCompile(`^\{"id":(\d+)`)

// generalize puts the values of the examples where an answer has its own.
func (s *session) generalize(answer string) string {
	answer = strings.ReplaceAll(answer, strconv.Itoa(s.host.Process.Pid), "4242")
	// of the self-test; of a link nothing went over it is 0
	answer = regexp.MustCompile(`"max_ns":[1-9]\d*`).ReplaceAllString(answer, `"max_ns":2031000`)
	for field, value := range varies {
		if match := id.FindStringSubmatch(answer); field == "at_ns" && match != nil {
			value = fmt.Sprintf("70000%05s", match[1])
		}
		pattern := regexp.MustCompile(`"` + field + `":("[^"]*"|[a-z0-9.-]+)`)
		answer = pattern.ReplaceAllStringFunc(answer, func(old string) string {
			if field == "pid" && strings.HasSuffix(old, ":4242") {
				return old
			}
			return `"` + field + `":` + value
		})
	}
	return answer
}

func compare(t *testing.T, path string, want, got any) {
	t.Helper()
	if reflect.TypeOf(want) != reflect.TypeOf(got) {
		t.Errorf("%s: got %v, the example has %v", path, got, want)
		return
	}
	wantMap, isMap := want.(map[string]any)
	if !isMap {
		_, free := varies[path[strings.LastIndex(path, ".")+1:]]
		if free = free || strings.HasSuffix(path, "self_test.max_ns"); !free && !reflect.DeepEqual(want, got) {
			t.Errorf("%s: got %v, the example has %v", path, got, want)
		}
		return
	}
	gotMap := got.(map[string]any)
	for name := range gotMap {
		if _, ok := wantMap[name]; !ok {
			t.Errorf("%s: the example lacks %q", path, name)
		}
	}
	for name, value := range wantMap {
		if _, ok := gotMap[name]; !ok {
			t.Errorf("%s: the answer lacks %q", path, name)
			continue
		}
		compare(t, path+"."+name, value, gotMap[name])
	}
}

func parse(t *testing.T, line string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(line), &value); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	return value
}
