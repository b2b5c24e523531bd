// Package client is the command line of benchmark-client: it turns flags, or what benchmark-server writes, into a Spec,
// runs the load and prints the report.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"containernet-env/benchmark_image/internal/allow"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/transport"
	"containernet-env/benchmark_image/internal/world"
)

// Exit statuses of benchmark-client.
const (
	ExitOK     = 0
	ExitFailed = 1 // a request failed, or the run was not as configured; the report is printed
	ExitUsage  = 2 // nothing was run
)

// errCancelled is the cause with which the program ends a run that a signal cuts short.
var errCancelled = errors.New("cancelled")

// display says how a run is shown, and where its connections may lead to.
type display struct {
	output   string // text or json
	progress string // none or json
	precise  bool
	sample   bool
	permit   transport.Permit
	history  string // the file for it
	given    bool   // the load was read from standard input
}

// runError is what went wrong although the command line was right, such as a report that could not be printed. Every
// other error is a mistake of the caller.
type runError struct{ error }

// mainIn runs the program in a world and returns its exit status. Ending ctx ends the run early: the report holds what
// was measured, with the text of the context's cause as the reason. Without secure there is no TLS: a load that needs
// it is handed over to the program that has it, and mainIn does not return then.
func mainIn(ctx context.Context, w world.World, version string, secure spec.Securer, args []string, stdout,
	stderr io.Writer) int {
	s, d, err := parse(args, version, os.Stdin, stdout)
	ok := true
	switch {
	case err != nil || s == nil:
	case s.Secured() && secure == nil && d.given:
		err = errNoTLS
	case s.Secured() && secure == nil:
		err = execWithTLS(args)
	default:
		ok, err = run(ctx, w, s, d, secure, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "benchmark-client: %v\n", err)
		if !errors.As(err, new(runError)) {
			return ExitUsage
		}
	}
	if err != nil || !ok {
		return ExitFailed
	}
	return ExitOK
}

type command struct {
	name, arguments string
	most            int // arguments
	short           string
	operation       spec.Operation       // empty: the load comes from standard input
	flags           func(*pflag.FlagSet) // that only the command line has; nil: none
}

var commands = []command{
	{name: "put", operation: spec.Put, short: "Measure writes", flags: func(flags *pflag.FlagSet) {
		refuse(flags, "compact-interval", "0", "compaction during a run is not supported")
		refuse(flags, "compact-index-delta", "1000", "compaction during a run is not supported")
		refuseSwitch(flags, "check-hashkv", "the hash of the store is not computed")
	}},
	{name: "range", operation: spec.Range, arguments: " KEY [END]", most: 2,
		short: "Measure reads of a key, a span of keys, or of generated keys in turn (--key-size N instead of KEY)",
		flags: func(flags *pflag.FlagSet) {
			flags.Bool("from-key", false, "read all keys from KEY on")
			refuseSwitch(flags, "stream", "streamed ranges are not supported")
			refuseSwitch(flags, "paginate", "paginated ranges are not supported")
		}},
	{name: "mixed", operation: spec.Mixed,
		short: "Measure writes and reads of the same generated keys, in random order"},
	{name: "txn", operation: spec.Txn,
		short: "Measure transactions that write a key if it holds what a put with the same " +
			"seed and sizes wrote, and fail otherwise"},
	{name: "run",
		short: `Measure what a JSON object on standard input describes: the body of an HTTP request and its "operation"`,
		flags: func(flags *pflag.FlagSet) {
			flags.String("allow", "", "members that the load may be sent to, as in benchmark-server's flag (default all)")
		}},
}

// parse gives the valid load that a command line describes; nil where there is none to run, as with --help.
func parse(args []string, version string, stdin io.Reader, stdout io.Writer) (s *spec.Spec, d display, err error) {
	var showVersion bool
	shared := pflag.NewFlagSet("benchmark-client", pflag.ContinueOnError)
	shared.BoolVarP(&showVersion, "version", "v", false, "print the version and end")
	addParameters(shared, spec.Put, true)
	shared.StringVar(&d.output, "output", "text", "form of the report: text (as etcd's tool has it) or json")
	shared.StringVar(&d.progress, "progress", "none", "none, or json: a line on standard error every 100 ms")
	shared.BoolVar(&d.precise, "precise", false, "use full floating point precision in the text report")
	shared.StringVar(&d.history, "history-file", "history.jsonl.gz", "where --history writes to")
	shared.BoolVar(&d.sample, "sample", false, "add a row for every second to the text report")
	refuseSwitch(shared, "insecure-skip-tls-verify", "the members' certificates are always verified")
	refuse(shared, "auto-sync-interval", "0", "the list of endpoints stays as given")
	refuseSwitch(shared, "report-perfdash", "perfdash reports are not written")
	shared.Usage = func() {
		fmt.Fprintf(stdout, "Measure the speed of a key-value store, in a closed loop or at a given rate\n\n"+
			"Usage:\n  benchmark-client COMMAND [flags]\n\nCommands:\n")
		for _, c := range commands {
			fmt.Fprintf(stdout, "  %-7s%s\n", c.name, c.short)
		}
		fmt.Fprintf(stdout, "\nFlags of all commands:\n%s", shared.FlagUsages())
	}
	name, args := findCommand(args, shared)
	if name == "" {
		if err = shared.Parse(args); err == nil && !showVersion {
			err = errors.New("a command is needed: put or range or mixed or txn (see --help)")
		}
	} else {
		s, err = parseCommand(name, args, shared, &d, stdin, stdout)
	}
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return nil, d, nil
	case err != nil:
		return nil, d, err
	case showVersion:
		fmt.Fprintf(stdout, "benchmark-client %s\n", version)
		return nil, d, nil
	case d.output != "text" && d.output != "json":
		return nil, d, fmt.Errorf("--output: got %q, allowed: text or json", d.output)
	case d.progress != "none" && d.progress != "json":
		return nil, d, fmt.Errorf("--progress: got %q, allowed: none or json", d.progress)
	}
	if problem := s.Validate(); problem != nil {
		return nil, d, errors.New(problem.FlagError())
	}
	return s, d, nil
}

// findCommand gives the first argument that is neither a flag nor the value of one, and all the others.
func findCommand(args []string, shared *pflag.FlagSet) (name string, others []string) {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		flag, long := strings.CutPrefix(args[i], "--")
		switch known := shared.Lookup(flag); {
		case !strings.HasPrefix(args[i], "-"):
			return args[i], slices.Concat(args[:i], args[i+1:])
		case long && !strings.Contains(flag, "=") && (known == nil || known.NoOptDefVal == ""):
			i++ // its value
		}
	}
	return "", args
}

// parseCommand takes the arguments of a command, those ahead of it too.
func parseCommand(name string, args []string, shared *pflag.FlagSet, d *display, stdin io.Reader, stdout io.Writer) (
	*spec.Spec, error) {
	at := slices.IndexFunc(commands, func(c command) bool { return c.name == name })
	if at < 0 {
		return nil, fmt.Errorf("unknown command %q (see --help)", name)
	}
	c := &commands[at]
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	if c.operation != "" {
		addParameters(flags, c.operation, false)
	}
	if c.flags != nil {
		c.flags(flags)
	}
	own := flags.FlagUsages()
	flags.Usage = func() {
		fmt.Fprintf(stdout, "%s\n\nUsage:\n  benchmark-client %s%s [flags]\n\nFlags:\n%s\nFlags of all commands:\n%s",
			c.short, name, c.arguments, own, shared.FlagUsages())
	}
	flags.AddFlagSet(shared)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch n := flags.NArg(); {
	case n > c.most && c.most == 0:
		return nil, fmt.Errorf("unknown command %q after %s", flags.Arg(0), name)
	case n > c.most:
		return nil, fmt.Errorf("%d arguments of %s, at most %d are allowed", n, name, c.most)
	case c.operation == "":
		return given(flags, d, stdin)
	}
	return parsed(c.operation, flags)
}

// refuse registers a flag of etcd's tool that has no effect here, so that using it is an error with a reason.
func refuse(flags *pflag.FlagSet, name, harmless, reason string) {
	flags.Var(&refused{harmless, reason}, name, "not supported")
	flags.Lookup(name).Hidden = true
}

func refuseSwitch(flags *pflag.FlagSet, name, reason string) {
	refuse(flags, name, "false", reason)
	flags.Lookup(name).NoOptDefVal = "true"
}

// refused is a flag that accepts only the value that changes nothing.
type refused struct{ harmless, reason string }

func (r *refused) String() string { return r.harmless }
func (r *refused) Type() string   { return "" }
func (r *refused) Set(text string) error {
	if text == r.harmless {
		return nil
	}
	if r.harmless == "0" {
		if n, err := strconv.ParseFloat(text, 64); err == nil && n == 0 || text == "0s" {
			return nil
		}
	}
	return errors.New(r.reason)
}

// parameterFlag is the flag of one parameter, or of several of which one takes the value.
type parameterFlag struct {
	parameters []*spec.Parameter
	given      *spec.Parameter
	text       string
}

func (f *parameterFlag) String() string { return f.text }

// Type is for the help text; "bool" is pflag's own name for booleans, which it does not print.
func (f *parameterFlag) Type() string {
	var kinds []string
	for _, p := range f.parameters {
		kind := string(p.Kind())
		switch p.Kind() {
		case spec.KindBoolean:
			kind = "bool"
		case spec.KindSeconds:
			kind = "duration"
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(kinds, "|")
}

func (f *parameterFlag) Set(text string) error {
	var problems []error
	for _, p := range f.parameters {
		var ignored spec.Spec
		err := p.SetText(&ignored, text)
		if err == nil {
			f.given, f.text = p, text
			return nil
		}
		problems = append(problems, err)
	}
	return errors.New(oneLine(errors.Join(problems...).Error()))
}

// addParameters registers flags for the parameters of an operation, or for those that all commands share.
func addParameters(flags *pflag.FlagSet, operation spec.Operation, shared bool) {
	defaults := spec.Default(operation)
	for _, p := range spec.Parameters {
		if p.Shared() != shared || !p.Of(operation) || p.Argument() {
			continue
		}
		name, usage := p.FlagOf(operation), p.Usage
		if known := flags.Lookup(name); known != nil {
			value := known.Value.(*parameterFlag)
			value.parameters = append(value.parameters, p)
			known.Usage += "; or " + usage
			continue
		}
		if bounds := p.Bounds(); bounds != "" {
			usage += ": " + bounds
			if p.Unit == "s" || p.Unit == "bytes" {
				usage += " " + p.Unit
			}
		}
		if p.Default != "" {
			usage += " (default " + p.Default + ")"
		}
		flags.Var(&parameterFlag{parameters: []*spec.Parameter{p}}, name, usage)
		flag := flags.Lookup(name)
		if p.Default == "" {
			flag.DefValue = p.Text(&defaults)
		}
		if p.Kind() == spec.KindBoolean {
			flag.NoOptDefVal = "true"
		}
	}
}

// parsed gives the Spec for the flags and the arguments of an operation's command.
func parsed(operation spec.Operation, flags *pflag.FlagSet) (*spec.Spec, error) {
	s := spec.Default(operation)
	var err error
	given := make(map[string]bool)
	flags.VisitAll(func(flag *pflag.Flag) {
		if f, ok := flag.Value.(*parameterFlag); ok && f.given != nil {
			err = errors.Join(err, f.given.SetText(&s, f.text))
			given[f.given.Name] = true
		}
	})
	s.Complete(func(name string) bool { return given[name] })
	if operation != spec.Range {
		return &s, err
	}
	args := flags.Args()
	if len(args) > 0 {
		s.Key = args[0]
	}
	fromKey := flags.Changed("from-key") && flags.Lookup("from-key").Value.String() == "true"
	switch {
	case len(args) > 1 && args[1] == "":
		return nil, errors.New("END: got an empty key: leave it out to read one key, or give --from-key")
	case len(args) > 1 && fromKey, fromKey && s.KeyIsPrefix, len(args) > 1 && s.KeyIsPrefix:
		return nil, errors.New("END: one of END, --from-key and --prefix is allowed")
	case len(args) > 1:
		s.End = args[1]
	case fromKey:
		s.End = spec.AllKeys
	}
	return &s, err
}

// given reads the load from standard input, as benchmark-server writes it.
func given(flags *pflag.FlagSet, d *display, stdin io.Reader) (s *spec.Spec, err error) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if _, ok := flag.Value.(*parameterFlag); ok && flag.Changed {
			err = fmt.Errorf("--%s: run takes it from standard input", flag.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	if f := flags.Lookup("allow"); f.Changed {
		list, err := allow.Parse(f.Value.String())
		if err != nil {
			return nil, fmt.Errorf("--allow: %w", err)
		}
		d.permit = list.Permit
	}
	encoded, err := io.ReadAll(io.LimitReader(stdin, spec.MaxEncoded+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(encoded) > spec.MaxEncoded {
		return nil, fmt.Errorf("standard input is larger than %d bytes", spec.MaxEncoded)
	}
	s, problem := spec.Decode(encoded)
	if problem != nil {
		return nil, fmt.Errorf("standard input: %w", problem)
	}
	d.given = true
	return s, nil
}

// The program shares the cores with the cluster that it measures: with half of them it needs about a
// fifth less time per request than with two, and gets more requests answered, because idle threads do not
// look for work. GOMAXPROCS and GOGC in the environment take precedence.
const shareOfCores = 2

// garbage is how much the heap may grow between two collections, in percent: the heap is small.
const garbage = 400

// Process is the whole program, with the arguments of the process: it never returns. Without secure there is no TLS.
func Process(version string, secure spec.Securer) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/shareOfCores))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errCancelled)
	}()
	os.Exit(mainIn(ctx, world.Real(), version, secure, os.Args[1:], os.Stdout, os.Stderr))
}

// errNoTLS is of a load that the program without TLS is given where no other program can take it over.
var errNoTLS = errors.New("standard input: caFile: benchmark-client has no TLS; give this load to " +
	spec.WithTLS("benchmark-client"))

// execWithTLS replaces this process by the program with TLS, and returns only what keeps it from that.
func execWithTLS(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program with TLS: %w", err)
	}
	other := spec.WithTLS(self)
	err = syscall.Exec(other, append([]string{other}, args...), os.Environ())
	return fmt.Errorf("TLS is in a program of its own, %s: %w; put it there: ./build.sh builds it with benchmark-client",
		other, err)
}
