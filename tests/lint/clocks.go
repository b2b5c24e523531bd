// Command clocks finds where Go tests that gate read a clock, sleep, or set a deadline, and where exact ones open
// sockets or start processes:
//
//	go run tests/lint/clocks.go DIR...
//
// It reads the _test.go files below each DIR, and all files of packages for tests, whose folders end in "test". Time
// may be used
//   - by the packages hang, which has the deadlines against hanging, and simulated, which refuses to run in real time,
//   - in benchmarks and in files with the build tag "measure", which gate nothing.
//
// Sockets and processes are for files with the build tag "plumbing", "root" or "measure", and for packages for tests.
//
// Exit status: 0 nothing found, 1 something found (FILE:LINE: NAME, one a line), 2 a file cannot be read.
package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// clocks are the functions that no test that gates calls, by the last element of their package's path.
var clocks = map[string][]string{
	"time":     {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"context":  {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	"net":      {"DialTimeout"},
	"realtime": {"Now"},
	"unix":     {"ClockGettime", "ClockNanosleep", "Gettimeofday", "Nanosleep"},
	"syscall":  {"Gettimeofday", "Nanosleep"},
}

// outside are the functions that exact tests do not call: they open sockets or start processes.
var outside = map[string][]string{
	"net":           {"Listen", "ListenTCP", "ListenUDP", "ListenUnix", "ListenPacket", "Dial", "DialTCP", "DialUDP", "DialUnix"},
	"exec":          {"Command", "CommandContext"},
	"httptest":      {"NewServer", "NewTLSServer", "NewUnstartedServer"},
	"etcdtest":      {"Start", "RawMember", "Silent", "Refusing"},
	"zookeepertest": {"Start", "RawMember"},
}

func main() {
	found := 0
	for _, dir := range os.Args[1:] {
		err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !ofTests(file) {
				return err
			}
			findings, err := lint(file)
			for _, finding := range findings {
				fmt.Println(finding)
			}
			found += len(findings)
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	if found > 0 {
		os.Exit(1)
	}
}

// ofTests tells whether a file is read.
func ofTests(file string) bool {
	return strings.HasSuffix(file, "_test.go") ||
		strings.HasSuffix(file, ".go") && strings.HasSuffix(filepath.Base(filepath.Dir(file)), "test")
}

// lint gives what a file uses and must not use, as FILE:LINE: NAME.
func lint(name string) (found []string, err error) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || needs(file, "measure") {
		return nil, err
	}
	imported := imports(file)
	exact := strings.HasSuffix(name, "_test.go") && !needs(file, "plumbing", "root")
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			return node.Recv != nil || !strings.HasPrefix(node.Name.Name, "Benchmark")
		case *ast.SelectorExpr:
			if of, ok := node.X.(*ast.Ident); ok {
				from, name := imported[of.Name], node.Sel.Name
				if slices.Contains(clocks[from], name) || exact && slices.Contains(outside[from], name) {
					at := positions.Position(node.Pos())
					found = append(found, fmt.Sprintf("%s:%d: %s.%s", at.Filename, at.Line, from, name))
				}
			}
		}
		return true
	})
	return found, nil
}

// needs tells whether a file is built only with one of some tags.
func needs(file *ast.File, wanted ...string) bool {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if group.Pos() < file.Package && constraint.IsGoBuild(comment.Text) {
				tags, err := constraint.Parse(comment.Text)
				return err == nil && !tags.Eval(func(tag string) bool { return !slices.Contains(wanted, tag) })
			}
		}
	}
	return false
}

// imports are the last elements of the packages' paths, by their names in the file.
func imports(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range file.Imports {
		whole, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		last := path.Base(whole)
		if spec.Name != nil {
			names[spec.Name.Name] = last
		} else {
			names[last] = last
		}
	}
	return names
}
