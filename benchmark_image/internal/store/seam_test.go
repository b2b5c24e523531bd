package store

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

const (
	module = "containernet-env/benchmark_image/"
	root   = "../.."
	below  = "internal/store/" // where a package of each store is
	etcd   = module + below + "etcd"
)

// marks are what a source that knows a store's API or its port has in it.
var marks = map[string][]string{
	"etcd":      {"etcdserverpb", "mvccpb", "protowire", "2379"},
	"zookeeper": {"getData", "setData", "GetData", "zxid", "srvr", "2181"},
	"consul":    {"/v1/kv", "/v1/txn", "x-consul", "8500"},
}

// speakers are the packages that speak a protocol for stores, by those that may import them beside stores.
var speakers = map[string][]string{
	"internal/h2":    nil,
	"internal/http1": {"internal/spec", "internal/secure"}, // for the protocol's name
}

// chooser is the package that says which store a load is for.
const chooser = "internal/spec"

// breaks tells how a source, named by its path in the module, breaks the rule that each store is known in its own
// package only.
func breaks(path string, source []byte) (problems []string) {
	path = filepath.ToSlash(path)
	folder := path[:max(strings.LastIndexByte(path, '/'), 0)]
	if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(folder, "worldtest") {
		return nil
	}
	of, inside := strings.CutPrefix(folder, below)
	of, _, _ = strings.Cut(of, "/")
	for name, all := range marks {
		for _, mark := range all {
			if (!inside || of != name) && strings.Contains(string(source), mark) {
				problems = append(problems, "has "+mark+" in it")
			}
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
	if err != nil {
		return append(problems, err.Error())
	}
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		ours := strings.TrimPrefix(imported, module)
		name, another := strings.CutPrefix(ours, below)
		name, part, _ := strings.Cut(name, "/")
		ofStore := another && !(inside && of == name) && (part != "" || folder != chooser)
		foreign := (strings.HasPrefix(imported, "go.etcd.io/") || strings.HasPrefix(imported, "google.golang.org/")) &&
			!(inside && of == "etcd")
		allowed, speaks := speakers[ours]
		if ofStore || foreign || speaks && !inside && !slices.Contains(allowed, folder) {
			problems = append(problems, "imports "+imported)
		}
	}
	return problems
}

// TestNothingElseKnowsAStore holds the rule over the sources of the module.
func TestNothingElseKnowsAStore(t *testing.T) {
	files := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		files++
		for _, problem := range breaks(path, source) {
			t.Errorf("%s %s: only a store's own package in %s may", path, problem, below)
		}
		return err
	})
	assert.That(t, err == nil && files >= 50, "%d files: %v", files, err)
}
