// Command clocks finds where Go tests that gate read a clock, sleep, or wait for less than a minute, and where exact
// ones open sockets or start processes:
//
//	go run tests/lint/clocks.go DIR...
//
// It reads the _test.go files below each DIR, and all files of packages for tests, whose folders end in "test". Time
// may be used
//   - in functions that are passed to synctest.Test, or to a function that does nothing but call that: it is simulated,
//   - in benchmarks and in files with the build tag "measure", which gate nothing,
//   - in functions, and methods of types, that only those use,
//   - in a package named hang, the deadlines against hanging.
//
// Sockets and processes are for files with the build tag "plumbing", "root" or "measure", and for packages for tests.
//
// Exit status: 0 nothing found, 1 something found (FILE:LINE: NAME, one a line), 2 a file cannot be read.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shortest is the shortest deadline against hanging.
const shortest = time.Minute

// clocks are the functions that no test calls in real time, by the last element of their package's path.
var clocks = map[string][]string{
	"time":     {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"realtime": {"Now"},
	"unix":     {"ClockGettime", "ClockNanosleep", "Gettimeofday", "Nanosleep"},
	"syscall":  {"Gettimeofday", "Nanosleep"},
}

// outside are the functions that exact tests do not call: they open sockets or start processes.
var outside = map[string][]string{
	"net": {"Listen", "ListenTCP", "ListenUDP", "ListenUnix", "ListenPacket", "Dial", "DialTCP", "DialTimeout",
		"DialUDP", "DialUnix"},
	"exec":          {"Command", "CommandContext"},
	"httptest":      {"NewServer", "NewTLSServer", "NewUnstartedServer"},
	"etcdtest":      {"Start", "RawMember", "Silent", "Refusing"},
	"zookeepertest": {"Start", "RawMember"},
}

// deadlines are functions with a time as an argument, the one of this index, that must not be a shorter one.
var deadlines = map[string]int{"context.WithTimeout": 1, "context.WithTimeoutCause": 1, "net.DialTimeout": 2}

// durations are the units in expressions.
var durations = map[string]time.Duration{
	"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second,
	"Minute": time.Minute, "Hour": time.Hour,
}

// finding is a place where a test uses what its class must not use.
type finding struct {
	at   token.Position
	name string
}

func main() {
	packages := map[string][]string{} // the files of each folder
	for _, dir := range os.Args[1:] {
		err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && ofTests(file) {
				packages[filepath.Dir(file)] = append(packages[filepath.Dir(file)], file)
			}
			return err
		})
		if err != nil {
			fatal(err)
		}
	}
	var found []finding
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		inFolder, err := lint(packages[folder])
		if err != nil {
			fatal(err)
		}
		found = append(found, inFolder...)
	}
	for _, f := range found {
		fmt.Printf("%s:%d: %s\n", f.at.Filename, f.at.Line, f.name)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// ofTests tells whether a file is read.
func ofTests(file string) bool {
	folder := filepath.Base(filepath.Dir(file))
	return folder != "hang" && (strings.HasSuffix(file, "_test.go") ||
		strings.HasSuffix(file, ".go") && strings.HasSuffix(folder, "test"))
}

// caller is a function, or a part of one, as far as calls are concerned.
type caller struct {
	name     string // that of the receiver's type for methods; empty: gates, whoever uses it
	uses     map[string]bool
	findings []finding
}

// lint reads the files of a folder together: helpers may stand in another file than the tests that use them.
func lint(files []string) ([]finding, error) {
	positions := token.NewFileSet()
	constants, bubbles := map[string]ast.Expr{}, map[string]bool{}
	var parsed []*ast.File
	for _, name := range files {
		file, err := parser.ParseFile(positions, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if !needs(file, "measure") {
			parsed = append(parsed, file)
		}
	}
	for _, file := range parsed {
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && isBubble(function, imports(file)) {
				bubbles[function.Name.Name] = true
			}
			if group, ok := declaration.(*ast.GenDecl); ok && group.Tok == token.CONST {
				for _, spec := range group.Specs {
					values := spec.(*ast.ValueSpec)
					for i, value := range values.Values {
						constants[values.Names[i].Name] = value
					}
				}
			}
		}
	}
	var callers []*caller
	for _, file := range parsed {
		r := reader{positions: positions, imports: imports(file), constants: constants, bubbles: bubbles,
			exact: strings.HasSuffix(positions.Position(file.Package).Filename, "_test.go") &&
				!needs(file, "plumbing", "root")}
		for _, declaration := range file.Decls {
			c := &caller{uses: map[string]bool{}}
			if function, ok := declaration.(*ast.FuncDecl); ok {
				c.name = receiver(function)
				if strings.HasPrefix(function.Name.Name, "Benchmark") && function.Recv == nil {
					continue
				}
			} else if declaration.(*ast.GenDecl).Tok != token.VAR {
				continue
			}
			r.read(declaration, c)
			callers = append(callers, c)
		}
	}
	return gating(callers), nil
}

// gating gives the findings of all that is used outside of bubbles and benchmarks. Tests are; so is what they use, and
// so on.
func gating(callers []*caller) (found []finding) {
	used := map[string]bool{}
	for grown := true; grown; {
		grown = false
		for _, c := range callers {
			if !isRoot(c.name) && !used[c.name] {
				continue
			}
			for name := range c.uses {
				grown = grown || !used[name]
				used[name] = true
			}
		}
	}
	for _, c := range callers {
		if isRoot(c.name) || used[c.name] {
			found = append(found, c.findings...)
		}
	}
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.at.Filename, b.at.Filename), cmp.Compare(a.at.Line, b.at.Line))
	})
	return found
}

// isRoot tells whether others than the functions of this folder may use it: the tests' program, or other folders.
func isRoot(name string) bool {
	return name == "" || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") ||
		ast.IsExported(name) || name == "init"
}

// isBubble tells whether a function that is no method does nothing but call synctest.Test.
func isBubble(function *ast.FuncDecl, imports map[string]string) bool {
	if function.Recv != nil || function.Body == nil || len(function.Body.List) != 1 {
		return false
	}
	statement, ok := function.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	return ok && reader{imports: imports}.qualified(call.Fun) == "synctest.Test"
}

// receiver is the name of a function, or of the type that it is a method of.
func receiver(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	kind := function.Recv.List[0].Type
	for {
		switch of := kind.(type) {
		case *ast.StarExpr:
			kind = of.X
		case *ast.IndexExpr:
			kind = of.X
		case *ast.IndexListExpr:
			kind = of.X
		default:
			return of.(*ast.Ident).Name
		}
	}
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

// reader reads one file.
type reader struct {
	positions *token.FileSet
	imports   map[string]string
	constants map[string]ast.Expr // of the whole package
	bubbles   map[string]bool     // functions that pass on their arguments to synctest.Test
	exact     bool                // neither sockets nor processes are allowed
}

// read takes down what a declaration uses and does outside of bubbles.
func (r reader) read(declaration ast.Node, c *caller) {
	ast.Inspect(declaration, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Recv != nil { // its type uses nothing by having methods
				r.read(node.Type, c)
				r.read(node.Body, c)
				return false
			}
		case *ast.CallExpr:
			name := r.qualified(node.Fun)
			if function, ours := node.Fun.(*ast.Ident); name == "synctest.Test" || ours && r.bubbles[function.Name] {
				for _, argument := range node.Args {
					switch argument.(type) {
					case *ast.FuncLit, *ast.Ident:
					default:
						r.read(argument, c)
					}
				}
				return false
			}
			if index, known := deadlines[name]; known && index < len(node.Args) {
				value := r.value(node.Args[index], 0)
				if nanoseconds, exact := constant.Int64Val(constant.ToInt(value)); exact && nanoseconds < int64(shortest) {
					c.findings = append(c.findings, finding{r.positions.Position(node.Pos()),
						name + " of " + time.Duration(nanoseconds).String()})
				}
			}
		case *ast.SelectorExpr:
			of, name, _ := strings.Cut(r.qualified(node), ".")
			if slices.Contains(clocks[of], name) || r.exact && slices.Contains(outside[of], name) {
				c.findings = append(c.findings, finding{r.positions.Position(node.Pos()), of + "." + name})
			}
		case *ast.Ident:
			c.uses[node.Name] = true
		}
		return true
	})
}

// qualified is PACKAGE.NAME of a function or value of another package, empty for anything else.
func (r reader) qualified(expression ast.Expr) string {
	selector, ok := expression.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	of, ok := selector.X.(*ast.Ident)
	if !ok || r.imports[of.Name] == "" {
		return ""
	}
	return r.imports[of.Name] + "." + selector.Sel.Name
}

// value is that of a constant expression, as far as it has numbers, units of time and constants of the package. Deeper
// levels than any real expression has come from constants that name themselves.
func (r reader) value(expression ast.Expr, level int) constant.Value {
	if level > 20 {
		return constant.MakeUnknown()
	}
	switch e := expression.(type) {
	case *ast.ParenExpr:
		return r.value(e.X, level+1)
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.Ident:
		if of, known := r.constants[e.Name]; known {
			return r.value(of, level+1)
		}
	case *ast.SelectorExpr:
		if of, name, _ := strings.Cut(r.qualified(e), "."); of == "time" && durations[name] != 0 {
			return constant.MakeInt64(int64(durations[name]))
		}
	case *ast.CallExpr: // a conversion
		if len(e.Args) == 1 && types.ExprString(e.Fun) == "time.Duration" {
			return r.value(e.Args[0], level+1)
		}
	case *ast.BinaryExpr:
		x, y := r.value(e.X, level+1), r.value(e.Y, level+1)
		if x.Kind() != constant.Unknown && y.Kind() != constant.Unknown && e.Op != token.QUO {
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return constant.MakeUnknown()
}
