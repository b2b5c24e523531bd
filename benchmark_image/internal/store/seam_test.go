package store

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "containernet-env/benchmark_image/"
	folder = "internal/store/"
	root   = "../.."
)

// kind is a store that loads can be for.
type kind struct {
	name    string
	marks   []string // that a source which knows its API or its port has in it
	imports []string // of what only it needs, by how their paths begin
}

// kinds are all of them. What only tests need is imported by none.
var kinds = []kind{
	{"etcd", []string{"etcdserverpb", "mvccpb", "protowire", "2379"},
		[]string{"go.etcd.io/", "google.golang.org/", module + "internal/h2"}},
	{"zookeeper", []string{"getData", "setData", "GetData", "zxid", "srvr", "2181"}, nil},
}

// forTests are modules that no program has in it.
var forTests = []string{"github.com/go-zookeeper/"}

// choosers are the packages that say which store a load is for.
var choosers = []string{"internal/client", "internal/spec"}

// breaks tells how a source, named by its path in the module, breaks the rule that each store is known in its own package
// only.
func breaks(path string, source []byte) (problems []string) {
	path = filepath.ToSlash(path)
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	for _, k := range kinds {
		if own := folder + k.name + "/"; !strings.HasPrefix(path, own) {
			for _, problem := range k.brokenBy(path, source) {
				problems = append(problems, problem+": only "+own+" may")
			}
		}
	}
	return problems
}

// brokenBy tells what a source outside of a store's package knows of it.
func (k *kind) brokenBy(path string, source []byte) (problems []string) {
	for _, mark := range k.marks {
		if strings.Contains(string(source), mark) {
			problems = append(problems, "has "+mark+" in it")
		}
	}
	own := module + folder + k.name
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
	if err != nil {
		return append(problems, err.Error())
	}
	chooses := slices.Contains(choosers, path[:max(strings.LastIndexByte(path, '/'), 0)])
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		begins := func(with string) bool { return strings.HasPrefix(imported, with) }
		if imported == own && !chooses || begins(own+"/") || slices.ContainsFunc(k.imports, begins) ||
			slices.ContainsFunc(forTests, begins) {
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
			t.Errorf("%s %s", path, problem)
		}
		return err
	})
	if err != nil || files < 50 {
		t.Errorf("%d files: %v", files, err)
	}
}

// TestTheRuleCanBeBroken names sources that break it, and some that do not.
func TestTheRuleCanBeBroken(t *testing.T) {
	etcd, zookeeper := module+folder+"etcd", module+folder+"zookeeper"
	for _, c := range []struct {
		path, source string
		want         bool
	}{
		{"internal/store/etcd/x.go", "package x\n\nimport _ \"" + zookeeper + "/jute\"", true},
		{"internal/store/zookeeper/x.go", "package x\n\nimport _ \"" + module + "internal/h2\"", true},
		{"internal/store/zookeeper/x.go", "package x\n\nimport _ \"" + zookeeper + "/jute\"", false},
		{"internal/transport/x.go", "package x\n\nimport _ \"" + zookeeper + "\"", true},
		{"internal/spec/x.go", "package x\n\nimport _ \"" + zookeeper + "\"", false},
		{"internal/spec/x.go", "package x\n\nconst word = \"srvr\"", true},
		{"internal/store/etcd/x.go", "package x\n\nimport _ \"github.com/go-zookeeper/zk\"", true},
		{"internal/transport/x.go", "package x\n\nconst path = \"/etcdserverpb.KV/Put\"", true},
		{"internal/transport/x.go", "package x\n\nimport _ \"" + etcd + "\"", true},
		{"internal/client/x.go", "package x\n\nimport _ \"" + etcd + "\"", false},
		{"internal/client/x.go", "package x\n\nimport _ \"" + etcd + "/wire\"", true},
		{"internal/client/x.go", "package x\n\nimport _ \"google.golang.org/grpc/codes\"", true},
		{"internal/load/x.go", "package x\n\nimport _ \"" + module + "internal/h2\"", true},
		{"main.go", "package x\n\nvar port = 2379", true},
		{"internal/transport/x_test.go", "package x\n\nimport _ \"go.etcd.io/etcd/api/v3/etcdserverpb\"", false},
		{"internal/store/etcd/x.go", "package x\n\nimport _ \"" + module + "internal/h2\"", false},
		{"internal/store/x.go", "package x\n\nimport _ \"time\"", false},
	} {
		if got := breaks(c.path, []byte(c.source)); (len(got) > 0) != c.want {
			t.Errorf("%s: %q: %q", c.path, c.source, got)
		}
	}
}

// TestTheProgramsAreSmall looks at what is linked into them: grpc-go alone doubles the memory of the client, and
// crypto/tls makes it a third larger.
func TestTheProgramsAreSmall(t *testing.T) {
	dependencies := func(name string) []string {
		list := exec.Command("go", "list", "-deps", name)
		list.Dir = root
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	grpc := func(name string) bool { return strings.HasPrefix(name, "google.golang.org/grpc") }
	crypto := func(name string) bool { return strings.HasPrefix(name, "crypto/") }
	client, server := dependencies("./cmd/benchmark-client"), dependencies("./cmd/benchmark-server")
	if slices.ContainsFunc(client, grpc) || slices.ContainsFunc(server, grpc) {
		t.Error("grpc-go is linked into a program")
	}
	for _, name := range append(slices.Clone(client), server...) {
		if slices.ContainsFunc(forTests, func(module string) bool { return strings.HasPrefix(name, module) }) {
			t.Errorf("%s is linked into a program", name)
		}
	}
	for _, unwanted := range []string{"google.golang.org/protobuf/proto", "net/http"} {
		if slices.Contains(client, unwanted) {
			t.Errorf("%s is linked into the client", unwanted)
		}
	}
	if i := slices.IndexFunc(client, crypto); i >= 0 {
		t.Errorf("%s is linked into the client", client[i])
	}
	if secured := dependencies("./cmd/benchmark-client-tls"); !slices.Contains(secured,
		"crypto/tls") || slices.ContainsFunc(secured, grpc) {
		t.Error("the client with TLS has no crypto/tls, or has grpc-go")
	}
	if reference := dependencies("./" + folder + "etcd/grpcref"); !slices.ContainsFunc(reference, grpc) {
		t.Error("grpc-go is not found where it is")
	}
}
