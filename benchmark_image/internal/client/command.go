// Package client is the command line of benchmark-client: it turns flags, or what benchmark-server writes, into a Spec,
// runs the load and prints the report.
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
	"containernet-env/benchmark_image/internal/transport"
	"containernet-env/benchmark_image/internal/world"
)

// Exit statuses of benchmark-client.
const (
	ExitOK     = 0
	ExitFailed = 1 // a request failed, or the run was not as configured; the report is printed
	ExitUsage  = 2 // nothing was run
)

// ErrCancelled is the cause with which the program ends a run that a signal cuts short.
var ErrCancelled = errors.New("cancelled")

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

// Main runs the program and returns its exit status. Ending ctx ends the run early: the report holds what was measured,
// with the text of the context's cause as the reason. Without secure there is no TLS: Main hands a load that asks for
// it over to the program that has it, and does not return then.
func Main(ctx context.Context, version string, secure Securer, args []string, stdout, stderr io.Writer) int {
	return mainIn(ctx, world.Real(), version, secure, args, stdout, stderr)
}

// mainIn is Main in any world.
func mainIn(ctx context.Context, w world.World, version string, secure Securer, args []string, stdout,
	stderr io.Writer) int {
	failed := false
	root := command(version, func(s *spec.Spec, d display) error {
		if s.Secured() && secure == nil {
			if d.given {
				return errNoTLS
			}
			return execWithTLS(args)
		}
		ok, err := run(ctx, w, s, d, secure, stdout, stderr)
		failed = !ok
		return err
	})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		fmt.Fprintf(stderr, "benchmark-client: %v\n", err)
		if errors.As(err, new(runError)) {
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
	var showVersion bool
	root := &cobra.Command{
		Use: "benchmark-client",
		Short: "Measure the speed of etcd, of Consul or of a key-value service over HTTP, in a closed loop or " +
			"at a given rate",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if showVersion {
				fmt.Fprintf(c.OutOrStdout(), "benchmark-client %s\n", version)
				return nil
			}
			return errors.New("a command is needed: put or range or mixed or txn (see --help)")
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	// Not cobra's own: its text needs templates, and with those the linker keeps every method of every type.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version and end")

	var shown display
	flags := root.PersistentFlags()
	addParameters(flags, spec.Put, true)
	displayFlags(flags, &shown)
	refuseGlobal(flags)

	finish := func(s *spec.Spec) error {
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
	for _, operation := range spec.Operations {
		c := &cobra.Command{Use: string(operation), Args: cobra.NoArgs}
		addParameters(c.Flags(), operation, false)
		details[operation](c)
		c.RunE = func(c *cobra.Command, args []string) error {
			s, err := parsed(operation, c.Flags(), args)
			if err != nil {
				return err
			}
			return finish(s)
		}
		root.AddCommand(c)
	}
	root.AddCommand(runCommand(&shown, finish))
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	return root
}

// details add what only the command line has.
var details = map[spec.Operation]func(*cobra.Command){
	spec.Put: putCommand, spec.Range: rangeCommand, spec.Mixed: mixedCommand, spec.Txn: txnCommand,
}

// refuseGlobal registers the flags of etcd's tool that have no effect here, so that using one is an
// error with a reason.
func refuseGlobal(flags *pflag.FlagSet) {
	refuseSwitch(flags, "insecure-skip-tls-verify", "the members' certificates are always verified")
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
