package client

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"containernet-env/benchmark_image/internal/allow"
	"containernet-env/benchmark_image/internal/spec"
)

func displayFlags(flags *pflag.FlagSet, d *display) {
	flags.StringVar(&d.output, "output", "text", "form of the report: text (as etcd's tool has it) or json")
	flags.StringVar(&d.progress, "progress", "none", "none, or json: a line on standard error every 100 ms")
	flags.BoolVar(&d.precise, "precise", false, "use full floating point precision in the text report")
	flags.StringVar(&d.history, "history-file", "history.jsonl.gz", "where --history writes to")
	flags.BoolVar(&d.sample, "sample", false, "add a row for every second to the text report")
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

// Set implements pflag.Value.
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
func parsed(operation spec.Operation, flags *pflag.FlagSet, args []string) (*spec.Spec, error) {
	s := spec.Default(operation)
	var err error
	given := make(map[string]bool)
	flags.Visit(func(flag *pflag.Flag) {
		if f, ok := flag.Value.(*parameterFlag); ok {
			err = errors.Join(err, f.given.SetText(&s, f.text))
			given[f.given.Name] = true
		}
	})
	s.Complete(func(name string) bool { return given[name] })
	if operation != spec.Range {
		return &s, err
	}
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

func putCommand(c *cobra.Command) {
	c.Short = "Measure writes"
	refuse(c.Flags(), "compact-interval", "0", "compaction during a run is not supported")
	refuse(c.Flags(), "compact-index-delta", "1000", "compaction during a run is not supported")
	refuseSwitch(c.Flags(), "check-hashkv", "the hash of the store is not computed")
}

func rangeCommand(c *cobra.Command) {
	c.Use, c.Args = "range KEY [END]", cobra.MaximumNArgs(2)
	c.Short = "Measure reads of a key, a span of keys, or of generated keys in turn (--key-size N instead of KEY)"
	c.Flags().Bool("from-key", false, "read all keys from KEY on")
	refuseSwitch(c.Flags(), "stream", "streamed ranges are not supported")
	refuseSwitch(c.Flags(), "paginate", "paginated ranges are not supported")
}

func mixedCommand(c *cobra.Command) {
	c.Short = "Measure writes and reads of the same generated keys, in random order"
}

func txnCommand(c *cobra.Command) {
	c.Short = "Measure transactions that write a key if it holds what a put with the same seed and sizes wrote, and " +
		"fail otherwise"
}

// runCommand is for benchmark-server: the load comes from standard input.
func runCommand(d *display, finish func(*spec.Spec) error) *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: `Measure what a JSON object on standard input describes: the body of an HTTP request and its "operation"`,
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var given error
			c.Flags().Visit(func(flag *pflag.Flag) {
				if _, ok := flag.Value.(*parameterFlag); ok {
					given = fmt.Errorf("--%s: run takes it from standard input", flag.Name)
				}
			})
			if given != nil {
				return given
			}
			if f := c.Flags().Lookup("allow"); f.Changed {
				list, err := allow.Parse(f.Value.String())
				if err != nil {
					return fmt.Errorf("--allow: %w", err)
				}
				d.permit = list.Permit
			}
			encoded, err := io.ReadAll(io.LimitReader(c.InOrStdin(), spec.MaxEncoded+1))
			if err != nil {
				return fmt.Errorf("read standard input: %w", err)
			}
			if len(encoded) > spec.MaxEncoded {
				return fmt.Errorf("standard input is larger than %d bytes", spec.MaxEncoded)
			}
			s, problem := spec.Decode(encoded)
			if problem != nil {
				return fmt.Errorf("standard input: %w", problem)
			}
			d.given = true
			return finish(s)
		},
	}
	c.Flags().String("allow", "", "members that the load may be sent to, as in benchmark-server's flag (default all)")
	return c
}
