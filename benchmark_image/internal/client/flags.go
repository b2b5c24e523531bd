package client

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"containernet-env/benchmark_image/internal/spec"
)

// finisher checks and runs what the flags of a command made.
type finisher func(*cobra.Command, *spec.Spec) error

func commonFlags(flags *pflag.FlagSet, s *spec.Spec, d *display) {
	flags.Var(&endpointsValue{&s.Endpoints}, "endpoints", "members, comma-separated host:port, in member order")
	flags.IntVar(&s.Conns, "conns", s.Conns,
		"TCP connections; connection j leads to member j mod n; at least one for each member is opened")
	flags.IntVar(&s.Clients, "clients", s.Clients,
		"clients, each with one request under way at most; client i uses connection i mod conns")
	loadFlags(flags, s)
	flags.BoolVar(&s.TargetLeader, "target-leader", false, "send everything to the member that leads, also when that changes")
	flags.StringVar(&s.TargetMember, "target-member", "", "send everything to this one of the endpoints")
	flags.Int64Var(&s.Seed, "seed", 0, "seed of the schedule, of the order of the keys and of the values")
	flags.DurationVar(&s.RequestTimeout, "request-timeout", s.RequestTimeout, "deadline of each request")
	flags.DurationVar(&s.DialTimeout, "dial-timeout", s.DialTimeout,
		"deadline for opening the connections and finding the leader")
	flags.DurationVar(&s.RunTimeout, "run-timeout", 0, "end the run early after this time (0 is no limit)")
	flags.StringVar(&d.output, "output", "text", "form of the report: text (as etcd's tool has it) or json")
	flags.StringVar(&d.progress, "progress", "none", "none, or json: a line on standard error every 100 ms")
	flags.BoolVar(&d.precise, "precise", false, "use full floating point precision in the text report")
	flags.BoolVar(&d.sample, "sample", false, "add a row for every second to the text report")
}

func loadFlags(flags *pflag.FlagSet, s *spec.Spec) {
	flags.Float64Var(&s.Rate, "rate", 0,
		"open loop: intended starts per second over all clients, latency counts from those (0 is a closed loop)")
	flags.StringVar(&s.Arrival, "arrival", s.Arrival, "intended starts of an open loop: constant or poisson")
	flags.DurationVar(&s.Duration, "duration", 0, "send requests for so long, instead of a total number")
	flags.Var(&stepsValue{&s.Steps}, "steps",
		"several loads, one after the other: rate=R1,R2,... or clients=N1,N2,...; each has the total or the duration")
	flags.Var(&warmupValue{s}, "warmup", "a load ahead that is left out of the figures: a number of requests, or a duration")
	flags.StringVar(&s.KeyOrder, "key-order", "", "sequential, shuffled (each key once before any a second time), uniform or zipfian")
	flags.Float64Var(&s.ZipfExponent, "zipf-exponent", s.ZipfExponent, "exponent of --key-order zipfian")
}

// takeCommon copies what the flags of all commands ask for.
func takeCommon(s, common *spec.Spec, totalGiven bool) {
	s.Endpoints, s.Conns, s.Clients, s.Seed = common.Endpoints, common.Conns, common.Clients, common.Seed
	s.Rate, s.Arrival, s.Steps, s.Duration = common.Rate, common.Arrival, common.Steps, common.Duration
	s.WarmupRequests, s.WarmupDuration = common.WarmupRequests, common.WarmupDuration
	s.KeyOrder, s.ZipfExponent = common.KeyOrder, common.ZipfExponent
	s.TargetLeader, s.TargetMember = common.TargetLeader, common.TargetMember
	s.RequestTimeout, s.DialTimeout, s.RunTimeout = common.RequestTimeout, common.DialTimeout, common.RunTimeout
	if s.Duration != 0 && !totalGiven {
		s.Total = 0
	}
}

func putCommand(finish finisher) *cobra.Command {
	s := spec.Default(spec.Put)
	c := &cobra.Command{
		Use:   "put",
		Short: "Measure writes",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return finish(c, &s) },
	}
	flags := c.Flags()
	flags.IntVar(&s.Total, "total", s.Total, "total number of put requests")
	writeFlags(flags, &s)
	refuse(flags, "compact-interval", "0", "compaction during a run is not supported")
	refuse(flags, "compact-index-delta", "1000", "compaction during a run is not supported")
	refuseSwitch(flags, "check-hashkv", "the hash of the store is not computed")
	return c
}

func txnCommand(finish finisher) *cobra.Command {
	s := spec.Default(spec.Txn)
	c := &cobra.Command{
		Use:   "txn",
		Short: "Measure transactions that write a key if it holds what a put with the same seed and sizes wrote, and fail otherwise",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return finish(c, &s) },
	}
	flags := c.Flags()
	flags.IntVar(&s.Total, "total", s.Total, "total number of transactions")
	writeFlags(flags, &s)
	return c
}

func rangeCommand(finish finisher) *cobra.Command {
	s := spec.Default(spec.Range)
	c := &cobra.Command{
		Use:   "range KEY [END]",
		Short: "Measure reads of a key, a span of keys, or of generated keys in turn (--key-size N instead of KEY)",
		Args:  cobra.MaximumNArgs(2),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			s.Key = args[0]
		}
		if len(args) > 1 {
			if s.End = args[1]; s.End == "" {
				return errors.New("END: got an empty key: leave it out to read one key, or give --from-key")
			}
		}
		return finish(c, &s)
	}
	flags := c.Flags()
	flags.IntVar(&s.Total, "total", s.Total, "total number of range requests")
	readFlags(flags, &s)
	flags.Int64Var(&s.Limit, "limit", 0, "largest number of keys in an answer (0 is no limit)")
	flags.BoolVar(&s.CountOnly, "count-only", false, "ask only for the number of keys")
	flags.BoolVar(&s.KeysOnly, "keys-only", false, "ask only for the keys")
	flags.BoolVar(&s.KeyIsPrefix, "prefix", false, "read all keys that start with KEY")
	flags.BoolVar(&s.FromKey, "from-key", false, "read all keys from KEY on")
	flags.IntVar(&s.KeySize, "key-size", 0,
		"bytes of each generated key, as put --sequential-keys makes them; beside KEY, those that --verify is to find")
	flags.IntVar(&s.KeySpace, "key-space-size", 0, "number of different generated keys (0: as many as requests)")
	flags.StringVar(&s.Prefix, "key-prefix", "", "prefix of each generated key")
	flags.IntVar(&s.ValSize, "val-size", s.ValSize, "bytes of each value that put wrote, for --verify")
	refuseSwitch(flags, "stream", "streamed ranges are not supported")
	refuseSwitch(flags, "paginate", "paginated ranges are not supported")
	return c
}

func mixedCommand(finish finisher) *cobra.Command {
	s := spec.Default(spec.Mixed)
	c := &cobra.Command{
		Use:   "mixed",
		Short: "Measure writes and reads of the same generated keys, in random order",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return finish(c, &s) },
	}
	flags := c.Flags()
	flags.IntVar(&s.Total, "total", s.Total, "total number of requests")
	flags.Float64Var(&s.PutRatio, "ratio", s.PutRatio, "share of the puts, 0..1")
	writeFlags(flags, &s)
	readFlags(flags, &s)
	return c
}

func writeFlags(flags *pflag.FlagSet, s *spec.Spec) {
	flags.IntVar(&s.KeySize, "key-size", s.KeySize, "bytes of each key, the prefix not included")
	flags.IntVar(&s.ValSize, "val-size", s.ValSize, "bytes of each value")
	flags.IntVar(&s.KeySpace, "key-space-size", 0, "number of different keys (0: as many as requests)")
	flags.BoolVar(&s.Sequential, "sequential-keys", false, "as --key-order sequential; the default is shuffled")
	flags.StringVar(&s.Prefix, "prefix", "", "prefix of each key")
}

func readFlags(flags *pflag.FlagSet, s *spec.Spec) {
	flags.StringVar(&s.Consistency, "consistency", s.Consistency, "linearizable (l) or serializable (s)")
	flags.BoolVar(&s.RequireFound, "require-found", false, "count an answer without a key as a failure")
	flags.BoolVar(&s.Verify, "verify", false,
		"count an answer as a failure that does not hold what a put with the same seed and sizes wrote, or any other key; "+
			"range also wants every key to be there")
	flags.IntVar(&s.SpanKeys, "span-keys", 0, "read so many generated keys at once, from the next one on (0: that one)")
}
