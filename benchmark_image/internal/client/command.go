// Package client is the command line of benchmark-client: it turns flags into a Spec, runs the load and
// prints the report.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"containernet-env/benchmark_image/internal/spec"
)

// Exit statuses of benchmark-client.
const (
	ExitOK     = 0
	ExitFailed = 1 // a request failed, or the run was not what was asked for; the report is printed
	ExitUsage  = 2 // nothing was run
)

// ErrCancelled is the cause with which the program ends a run that a signal cuts short.
var ErrCancelled = errors.New("cancelled")

// display says how a run is shown.
type display struct {
	output   string // text or json
	progress string // none or json
	precise  bool
	sample   bool
}

// printError is a report that could not be printed. Every other error of the command line is a mistake of the caller.
type printError struct{ error }

// Main runs the program and returns its exit status. Ending ctx ends the run early: the report holds what
// was measured, with the text of the context's cause as the reason.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	failed := false
	root := command(version, func(s *spec.Spec, d display) error {
		ok, err := run(ctx, s, d, stdout, stderr)
		failed = !ok
		return err
	})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		fmt.Fprintf(stderr, "benchmark-client: %v\n", err)
		if errors.As(err, new(printError)) {
			return ExitFailed
		}
		return ExitUsage
	}
	if failed {
		return ExitFailed
	}
	return ExitOK
}

// command builds the command line; action is called with a valid Spec.
func command(version string, action func(*spec.Spec, display) error) *cobra.Command {
	root := &cobra.Command{
		Use:           "benchmark-client",
		Short:         "Measure the speed of etcd: put or range requests from closed-loop clients",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("a command is needed: put or range (see --help)")
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("benchmark-client {{.Version}}\n")

	common := spec.Default(spec.Put)
	var shown display
	flags := root.PersistentFlags()
	commonFlags(flags, &common, &shown)
	refuseGlobal(flags)

	finish := func(s *spec.Spec) error {
		s.Endpoints, s.Conns, s.Clients, s.Seed = common.Endpoints, common.Conns, common.Clients, common.Seed
		s.TargetLeader, s.RequestTimeout = common.TargetLeader, common.RequestTimeout
		s.DialTimeout, s.RunTimeout = common.DialTimeout, common.RunTimeout
		if shown.output != "text" && shown.output != "json" {
			return fmt.Errorf("--output: got %q, allowed: text or json", shown.output)
		}
		if shown.progress != "none" && shown.progress != "json" {
			return fmt.Errorf("--progress: got %q, allowed: none or json", shown.progress)
		}
		if problem := s.Validate(); problem != nil {
			return errors.New(problem.FlagError())
		}
		return action(s, shown)
	}
	root.AddCommand(putCommand(finish), rangeCommand(finish))
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	return root
}

func commonFlags(flags *pflag.FlagSet, s *spec.Spec, d *display) {
	flags.Var(&endpointsValue{&s.Endpoints}, "endpoints", "members, comma-separated host:port, in member order")
	flags.IntVar(&s.Conns, "conns", s.Conns,
		"TCP connections; connection j leads to member j mod n; at least one for each member is opened")
	flags.IntVar(&s.Clients, "clients", s.Clients,
		"closed-loop clients; client i uses connection i mod conns")
	flags.BoolVar(&s.TargetLeader, "target-leader", false, "send everything to the member that leads at the start")
	flags.Int64Var(&s.Seed, "seed", 0, "seed of the order of the keys and of the values")
	flags.DurationVar(&s.RequestTimeout, "request-timeout", s.RequestTimeout, "deadline of each request")
	flags.DurationVar(&s.DialTimeout, "dial-timeout", s.DialTimeout,
		"deadline for opening the connections and finding the leader")
	flags.DurationVar(&s.RunTimeout, "run-timeout", 0, "end the run early after this time (0 is no limit)")
	flags.StringVar(&d.output, "output", "text", "form of the report: text (as etcd's tool has it) or json")
	flags.StringVar(&d.progress, "progress", "none", "none, or json: a line on standard error every 100 ms")
	flags.BoolVar(&d.precise, "precise", false, "use full floating point precision in the text report")
	flags.BoolVar(&d.sample, "sample", false, "add a row for every second to the text report")
}

func putCommand(finish func(*spec.Spec) error) *cobra.Command {
	s := spec.Default(spec.Put)
	c := &cobra.Command{
		Use:   "put",
		Short: "Measure writes",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return finish(&s) },
	}
	flags := c.Flags()
	flags.IntVar(&s.KeySize, "key-size", s.KeySize, "bytes of each key, the prefix not included")
	flags.IntVar(&s.ValSize, "val-size", s.ValSize, "bytes of each value")
	flags.IntVar(&s.Total, "total", s.Total, "total number of put requests")
	flags.IntVar(&s.KeySpace, "key-space-size", 0, "number of different keys (0: as many as requests)")
	flags.BoolVar(&s.Sequential, "sequential-keys", false,
		"write the keys in order; otherwise in a random order, each once before any a second time")
	flags.StringVar(&s.Prefix, "prefix", "", "prefix of each key")
	refuse(flags, "rate", "0", "a rate limit is not supported yet: clients are closed-loop")
	refuse(flags, "compact-interval", "0", "compaction during a run is not supported")
	refuse(flags, "compact-index-delta", "1000", "compaction during a run is not supported")
	refuseSwitch(flags, "check-hashkv", "the hash of the store is not computed")
	return c
}

func rangeCommand(finish func(*spec.Spec) error) *cobra.Command {
	s := spec.Default(spec.Range)
	c := &cobra.Command{
		Use:   "range KEY [END]",
		Short: "Measure reads of a key, a span of keys, or of generated keys in turn (--key-size N instead of KEY)",
		Args:  cobra.MaximumNArgs(2),
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			s.Key = args[0]
		}
		if len(args) > 1 {
			if s.End = args[1]; s.End == "" {
				return errors.New("END: got an empty key: leave it out to read one key, or give --from-key")
			}
		}
		return finish(&s)
	}
	flags := c.Flags()
	flags.IntVar(&s.Total, "total", s.Total, "total number of range requests")
	flags.StringVar(&s.Consistency, "consistency", s.Consistency, "linearizable (l) or serializable (s)")
	flags.Int64Var(&s.Limit, "limit", 0, "largest number of keys in an answer (0 is no limit)")
	flags.BoolVar(&s.CountOnly, "count-only", false, "ask only for the number of keys")
	flags.BoolVar(&s.KeysOnly, "keys-only", false, "ask only for the keys")
	flags.BoolVar(&s.KeyIsPrefix, "prefix", false, "read all keys that start with KEY")
	flags.BoolVar(&s.FromKey, "from-key", false, "read all keys from KEY on")
	flags.IntVar(&s.KeySize, "key-size", 0, "bytes of each generated key, as put --sequential-keys makes them")
	flags.IntVar(&s.KeySpace, "key-space-size", 0, "number of different generated keys (0: as many as requests)")
	flags.StringVar(&s.Prefix, "key-prefix", "", "prefix of each generated key")
	flags.BoolVar(&s.RequireFound, "require-found", false, "count an answer without a key as a failure")
	refuse(flags, "rate", "0", "a rate limit is not supported yet: clients are closed-loop")
	refuseSwitch(flags, "stream", "streamed ranges are not supported")
	refuseSwitch(flags, "paginate", "paginated ranges are not supported")
	return c
}

// refuseGlobal registers the flags of etcd's tool that have no effect here, so that asking for one is an
// error with a reason.
func refuseGlobal(flags *pflag.FlagSet) {
	const tls = "TLS is not supported: members must serve plain connections"
	refuse(flags, "cert", "", tls)
	refuse(flags, "key", "", tls)
	refuse(flags, "cacert", "", tls)
	refuseSwitch(flags, "insecure-skip-tls-verify", tls)
	refuse(flags, "user", "", "authentication is not supported")
	refuse(flags, "auto-sync-interval", "0", "the list of endpoints stays as given")
	refuseSwitch(flags, "report-perfdash", "perfdash reports are not written")
}

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

type endpointsValue struct{ endpoints *[]string }

func (e *endpointsValue) String() string { return spec.JoinEndpoints(*e.endpoints) }
func (e *endpointsValue) Type() string   { return "list" }
func (e *endpointsValue) Set(text string) error {
	endpoints, err := spec.ParseEndpoints(text)
	if err != nil {
		return err
	}
	*e.endpoints = endpoints
	return nil
}
