package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

func call(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, complaints strings.Builder
	status = Main(t.Context(), "dev", args, &out, &complaints)
	return status, out.String(), complaints.String()
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "put or range"},
		{"txn-put", "unknown command"},
		{"put extra", "unknown command"},
		{"put --nonsense", "unknown flag"},
		{"put --rate 0.01", "--rate: got 0.01, allowed: 0 (a closed loop) or 0.1..1000000 requests/s"},
		{"put --rate NaN", "--rate"},
		{"put --arrival burst", "poisson"},
		{"put --duration 2s --total 5", "either a duration or a total"},
		{"put --duration 1h --rate 100000", "at most 10000000 requests in all steps together"},
		{"put --duration 10h --steps clients=1,2,3", "at most 86400 seconds in all steps together"},
		{"put --steps 1,2", "neither rate="},
		{"put --steps clients=1.5", "1.5 clients"},
		{"put --steps rate=1,x", "not a number"},
		{"put --steps rate=1 --rate 5", "not together"},
		{"put --warmup soon", "neither a number of requests nor a duration"},
		{"put --warmup -5", "--warmup"},
		{"put --target-member b:1 --endpoints a:1", "one of the endpoints a:1"},
		{"put --target-member a:1 --endpoints a:1 --target-leader", "either"},
		{"put --key-order random", "zipfian"},
		{"put --key-order uniform --sequential-keys", "sequential"},
		{"put --key-order uniform --duration 1s", "a duration does not tell"},
		{"put --zipf-exponent 0", "more than 0"},
		{"range k --verify", "only together with a key size"},
		{"range k --verify --key-size 8", "--key-space-size: got 0, allowed: how many keys were written"},
		{"range k --verify --key-size 8 --key-space-size 9", "KEY: got \"k\", allowed: at least one of the keys \"00000000\" to \"00000008\""},
		{"range k --verify --key-size 8 --key-space-size 9 --key-prefix p", "only of keys that all start with the prefix \"p\""},
		{"range k --span-keys 5", "--span-keys: got 5, allowed: only together with a key size, and without a key"},
		{"range --key-size 8 --span-keys -1", "--span-keys: got -1"},
		{"mixed --span-keys -1", "--span-keys: got -1"},
		{"mixed --ratio 1.5", "0..1"},
		{"mixed k", "unknown command"},
		{"put --cert f", "TLS"},
		{"put --key f", "TLS"},
		{"--cacert f put", "TLS"},
		{"put --insecure-skip-tls-verify", "TLS"},
		{"put --user root:x", "authentication"},
		{"put --auto-sync-interval 5s", "endpoints"},
		{"put --report-perfdash", "perfdash"},
		{"put --compact-interval 5m", "compaction"},
		{"put --compact-index-delta 5", "compaction"},
		{"put --check-hashkv", "hash"},
		{"range k --stream", "stream"},
		{"range k --paginate", "paginated"},
		{"put --conns 0", "--conns: got 0, allowed: an integer in 1..10000"},
		{"put --clients x", "--clients"},
		{"put --endpoints http://a:1", "scheme"},
		{"put --output xml", "--output"},
		{"put --progress bar", "--progress"},
		{"put --key-size 2 --total 3845", "--key-size: got 2, allowed: at least 3 bytes"},
		{"range", "KEY"},
		{"range a b c", "arg"},
		{"range b a", "END"},
		{"range k --consistency x", "--consistency"},
	} {
		status, stdout, stderr := call(t, strings.Fields(c.args)...)
		if status != ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want one line with %q", c.args, status, stdout, stderr, c.want)
		}
	}
	if status, _, stderr := call(t, "range", "a", ""); status != ExitUsage || !strings.Contains(stderr, "--from-key") {
		t.Errorf("an empty END: status %d, stderr %q", status, stderr)
	}
}

func TestFlagsThatChangeNothingAreAccepted(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	args := "put --total 1 --rate 0 --cert= --user= --compact-interval 0s --compact-index-delta 1000 --check-hashkv=false --endpoints "
	if status, _, stderr := call(t, strings.Fields(args+cluster.Members[0].Endpoint)...); status != ExitOK || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if status, stdout, _ := call(t, "--version"); status != ExitOK || stdout != "benchmark-client dev\n" {
		t.Errorf("--version: status %d, %q", status, stdout)
	}
	if status, stdout, _ := call(t, "put", "--help"); status != ExitOK || !strings.Contains(stdout, "--key-space-size") || strings.Contains(stdout, "--cert") {
		t.Errorf("--help: status %d, %q", status, stdout)
	}
}

// TestArgsParseToTheirSpec holds the contract between the two programs.
func TestArgsParseToTheirSpec(t *testing.T) {
	put, span, prefix, cycle := spec.Default(spec.Put), spec.Default(spec.Range), spec.Default(spec.Range), spec.Default(spec.Range)
	put.Endpoints, put.Conns, put.Clients, put.Total = []string{"10.0.0.1:1", "[::1]:2"}, 3, 4, 5
	put.TargetLeader, put.Seed, put.KeySize, put.KeySpace, put.ValSize = true, 6, 7, 8, 9
	put.Sequential, put.Prefix = true, "-p q"
	put.RequestTimeout, put.DialTimeout, put.RunTimeout = 1500*time.Millisecond, time.Second, 90*time.Second
	span.Key, span.End, span.Consistency, span.Limit, span.KeysOnly = "--conns=3", "-z\n", "s", 12, true
	prefix.Key, prefix.KeyIsPrefix, prefix.CountOnly = "", true, true
	cycle.KeySize, cycle.KeySpace, cycle.Prefix, cycle.RequireFound = 8, 100, "p", true
	known, spans := spec.Default(spec.Range), spec.Default(spec.Mixed)
	known.Key, known.KeyIsPrefix, known.KeySize, known.KeySpace, known.Prefix, known.ValSize, known.Verify = "-p0", true, 4, 100, "-p", 9, true
	spans.KeySpace, spans.SpanKeys, spans.Verify = 100, 7, true
	cycle.SpanKeys, cycle.Limit = 3, 2
	from := spec.Default(spec.Range)
	from.Key, from.FromKey = "ключ", true
	open, steps, mixed := spec.Default(spec.Put), spec.Default(spec.Put), spec.Default(spec.Mixed)
	open.Total, open.Duration, open.Rate, open.Arrival, open.WarmupDuration = 0, 1500*time.Millisecond, 123.5, spec.Poisson, 2*time.Second
	open.Endpoints, open.TargetMember = []string{"a:1", "b:1"}, "b:1"
	steps.Steps, steps.WarmupRequests = spec.Steps{Kind: spec.StepRate, Values: []float64{100, 0.5, 1e6}}, 77
	mixed.PutRatio, mixed.Verify, mixed.RequireFound, mixed.KeyOrder, mixed.ZipfExponent = 0.125, true, true, spec.Zipfian, 1.25
	mixed.ValSize, mixed.KeySpace, mixed.Prefix, mixed.Consistency = 100, 50, "m/", "s"
	txn := put
	txn.Operation = spec.Txn
	for _, want := range []spec.Spec{spec.Default(spec.Put), put, span, prefix, cycle, from, open, steps, mixed, txn, known, spans} {
		if problem := want.Validate(); problem != nil {
			t.Fatal(problem)
		}
		var got *spec.Spec
		root := command("dev", func(s *spec.Spec, _ display) error { got = s; return nil })
		root.SetArgs(want.Args())
		root.SetOut(io.Discard)
		if err := root.Execute(); err != nil {
			t.Errorf("%q: %v", want.Args(), err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%q\n got  %+v\n want %+v", want.Args(), *got, want)
		}
	}
}

func TestPutWritesTheKeysThatWereAskedFor(t *testing.T) {
	cluster := etcdtest.Start(t, 2)
	endpoints := "--endpoints=" + spec.JoinEndpoints(cluster.Endpoints())
	status, stdout, stderr := call(t, "put", endpoints, "--total=500", "--clients=10", "--conns=4", "--key-size=4", "--val-size=64", "--sequential-keys", "--prefix=w/")
	if status != ExitOK || stderr != "" || !strings.HasPrefix(stdout, "\nSummary:\n  Total:\t") || strings.Count(stdout, "\n") != 43 {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	written := cluster.Keys()
	if len(written) != 500 {
		t.Fatalf("%d keys", len(written))
	}
	for i, key := range written {
		if want := "w/" + string(keys.Append(nil, uint64(i), 4)); key != want || len(cluster.Value(key)) != 64 {
			t.Errorf("key %d is %q with %d bytes, want %q with 64", i, key, len(cluster.Value(key)), want)
		}
	}
	status, stdout, stderr = call(t, "range", endpoints, "--total=1000", "--clients=10", "--key-size=4", "--key-space-size=500", "--key-prefix=w/", "--require-found", "--consistency=s")
	if status != ExitOK || stderr != "" || !strings.HasPrefix(stdout, "bench with serializable range\n\nSummary:\n") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestRandomKeysAreAllDifferent(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	if status, _, stderr := call(t, "put", "--endpoints="+cluster.Members[0].Endpoint, "--total=777", "--clients=7"); status != ExitOK {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if got := len(cluster.Keys()); got != 777 {
		t.Errorf("777 puts wrote %d keys", got)
	}
}

func TestSpans(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	endpoint := "--endpoints=" + cluster.Members[0].Endpoint
	if status, _, stderr := call(t, "put", endpoint, "--total=62", "--key-size=1", "--prefix=k"); status != ExitOK {
		t.Fatal(stderr)
	}
	for args, found := range map[string]bool{
		"k0": true, "k": false, "k k1": true, "k --prefix": true, "l --prefix": false, "a --from-key": true, "kz0 --from-key": false,
		"k0 k1 --limit 1 --keys-only": true, "a b --count-only": false, "k z --count-only": true,
	} {
		status, stdout, stderr := call(t, append([]string{"range", endpoint, "--total=2", "--output=json"}, strings.Fields(args)...)...)
		var result report.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil || status != ExitOK {
			t.Errorf("%q: status %d, %v, stderr %q", args, status, err, stderr)
		}
		if (result.Empty == 0) != found || result.OK != 2 {
			t.Errorf("%q: %d of %d answers are empty", args, result.Empty, result.OK)
		}
		if strings.Contains(stderr, "held no key") == found {
			t.Errorf("%q: stderr %q", args, stderr)
		}
	}
}

func TestFailuresAreReportedAndChangeTheExitStatus(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	refusing := etcdtest.Refusing(t)
	for _, c := range []struct{ args, problem string }{
		{"range k --require-found --total 3 --endpoints " + cluster.Members[0].Endpoint, "3 of 3 requests failed (3 times: no key found)"},
		{"put --total 3 --dial-timeout 100ms --endpoints " + refusing, "no member could be reached within 100ms: " + refusing},
		{"put --total 3 --dial-timeout 100ms --endpoints " + etcdtest.Silent(t), "does not speak HTTP/2"},
		{"put --total 30 --conns 2 --dial-timeout 100ms --endpoints " + cluster.Members[0].Endpoint + "," + refusing, "not every member could be reached"},
	} {
		start := time.Now()
		status, stdout, stderr := call(t, append(strings.Fields(c.args), "--output=json")...)
		var result report.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
		reporttest.Check(t, []byte(stdout))
		if status != ExitFailed || !strings.Contains(stderr, c.problem) || !strings.Contains(result.Problem(), c.problem) {
			t.Errorf("%q: status %d, stderr %q, want %q", c.args, status, stderr, c.problem)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%q took %v", c.args, took)
		}
	}
}

func TestTheRunEndsInTime(t *testing.T) {
	for _, c := range []struct{ args, reason string }{
		{"--run-timeout 200ms", "the run timeout of 200ms was reached"},
		{"--request-timeout 200ms", "no request succeeded for 300ms"},
	} {
		cluster := etcdtest.Start(t, 1)
		cluster.Members[0].Hang()
		start := time.Now()
		status, stdout, _ := call(t, append(strings.Fields(c.args), "put", "--output=json", "--endpoints="+cluster.Members[0].Endpoint)...)
		var result report.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil {
			t.Fatal(err)
		}
		if status != ExitFailed || result.Reason == nil || *result.Reason != c.reason || result.OK != 0 || result.SlowestS != nil ||
			(result.Failed > 0) != strings.Contains(c.args, "request") {
			t.Errorf("%s: status %d, %s", c.args, status, stdout)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v", c.args, took)
		}
	}
}

func TestCancelReportsWhatThereIs(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	read, write := io.Pipe()
	go func() {
		lines := json.NewDecoder(read)
		for {
			var p report.Progress
			if err := lines.Decode(&p); err != nil {
				break
			}
			if p.Total != 10_000_000 || p.Done > p.Total || p.Errors != 0 {
				t.Errorf("progress %+v", p)
			}
			if p.Done > 0 {
				cancel(ErrCancelled)
				break
			}
		}
		if _, err := io.Copy(io.Discard, read); err != nil {
			t.Error(err)
		}
	}()
	var stdout strings.Builder
	status := Main(ctx, "dev", []string{"put", "--total=10000000", "--progress=json", "--output=json", "--endpoints=" + cluster.Members[0].Endpoint}, &stdout, write)
	if err := write.Close(); err != nil {
		t.Error(err)
	}
	var result report.Result
	if err := json.Unmarshal([]byte(stdout.String()), &result); err != nil {
		t.Fatal(err)
	}
	if status != ExitFailed || result.OK == 0 || result.Failed != 0 || !strings.HasPrefix(result.Problem(), "cancelled") || result.SlowestS == nil {
		t.Errorf("status %d, %s", status, stdout.String())
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAReportThatCannotBePrintedIsAFailure(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	var stderr strings.Builder
	status := Main(t.Context(), "dev", []string{"put", "--total=1", "--endpoints=" + cluster.Members[0].Endpoint}, brokenPipe{}, &stderr)
	if status != ExitFailed || !strings.Contains(stderr.String(), "print the report: broken pipe") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}
