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

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/reporttest"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// call runs the program in a world; nil: the real one.
func call(t *testing.T, w *worldtest.World, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	in := world.Real()
	if w != nil {
		in = w
	}
	var out, complaints strings.Builder
	status = mainIn(t.Context(), in, "dev", secure.Files, args, &out, &complaints)
	return status, out.String(), complaints.String()
}

func callJSON(t *testing.T, w *worldtest.World, args ...string) (status int, result report.Result, stderr string) {
	t.Helper()
	status, stdout, stderr := call(t, w, append(args, "--output=json")...)
	err := json.Unmarshal([]byte(stdout), &result)
	assert.Must(t, err == nil, "%q: %v, stdout %q, stderr %s", args, err, stdout, stderr)
	reporttest.Check(t, []byte(stdout))
	return status, result, stderr
}

// succeed runs a load that must succeed.
func succeed(t *testing.T, w *worldtest.World, args ...string) report.Result {
	t.Helper()
	status, result, stderr := callJSON(t, w, args...)
	assert.Must(t, status == ExitOK && result.OK == result.Requests, "%q: status %d, %+v, %s", args, status,
		result.Outcomes, stderr)
	return result
}

func endpointsOf(cluster *etcdtest.Cluster) string {
	return "--endpoints=" + strings.Join(cluster.Endpoints(), ",")
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "put or range"},
		{"txn-put", "unknown command"},
		{"put extra", "unknown command"},
		{"put --nonsense", "unknown flag"},
		{"put --rate 0.01", "--rate: got 0.01, allowed: a number: 0 (a closed loop) or 0.1..1000000 requests/s"},
		{"put --rate NaN", "--rate"},
		{"put --timeline-interval 10ms", "--timeline-interval: got 0.01, allowed: a number of seconds in 0.1..1"},
		{"put --warmup soon", "allowed: an integer in 0..86400000000; allowed: a duration such as 1.5s"},
		{"range k --verify --key-size 8 --key-space-size 9",
			"KEY: got \"k\", allowed: at least one of the keys \"00000000\" to \"00000008\""},
		{"mixed k", "unknown command"},
		{"put --insecure-skip-tls-verify", "always verified"},
		{"put --user root:x", "--user: got \"root:...\", allowed: a name without a colon"},
		{"put --auto-sync-interval 5s", "endpoints"},
		{"put --report-perfdash", "perfdash"},
		{"put --compact-interval 5m", "compaction"},
		{"put --compact-index-delta 5", "compaction"},
		{"put --check-hashkv", "hash"},
		{"range k --stream", "stream"},
		{"range k --paginate", "paginated"},
		{"put --clients x", "--clients"},
		{"put --output xml", "--output"},
		{"put --progress bar", "--progress"},
		{"range", "KEY"},
		{"range a b c", "arg"},
		{"range a b --from-key", "one of END, --from-key and --prefix"},
		{"range a b --prefix", "one of END, --from-key and --prefix"},
		{"range a --from-key --prefix", "one of END, --from-key and --prefix"},
		{"run --clients 5", "--clients: run takes it from standard input"},
		{"run put", "unknown command"},
	} {
		status, stdout, stderr := call(t, nil, strings.Fields(c.args)...)
		if status != ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want one line with %q", c.args, status, stdout, stderr, c.want)
		}
	}
	status, _, stderr := call(t, nil, "range", "a", "")
	assert.That(t, status == ExitUsage && strings.Contains(stderr, "--from-key"), "an empty END: status %d, stderr %q",
		status, stderr)
}

func TestVersionAndHelp(t *testing.T) {
	status, stdout, _ := call(t, nil, "--version")
	assert.That(t, status == ExitOK && stdout == "benchmark-client dev\n", "--version: status %d, %q", status, stdout)
	if status, stdout, _ := call(t, nil, "put", "--help"); status != ExitOK || !strings.Contains(stdout,
		"--key-space-size") || strings.Contains(stdout, "--insecure") {
		t.Errorf("--help: status %d, %q", status, stdout)
	}
}

// TestTheServersSpecIsReadFromStandardInput holds the contract between the two programs; package spec tests the form.
func TestTheServersSpecIsReadFromStandardInput(t *testing.T) {
	want := spec.Default(spec.Range)
	want.Key, want.End, want.RunTimeout = "k", spec.AllKeys, 90*time.Second
	encoded := assert.Got(json.Marshal(&want))(t)
	for input, problem := range map[string]string{
		string(encoded): "", "": "it is empty", `{"operation":"put"}`: "endpoints is missing",
		string(encoded) + strings.Repeat(" ", spec.MaxEncoded): "larger than 131072 bytes",
	} {
		got, _, err := parse([]string{"run", "--output=json", "--progress=json"}, "dev", strings.NewReader(input), io.Discard)
		switch {
		case problem != "":
			assert.That(t, err != nil && strings.Contains(err.Error(), problem), "%.100q: %v, want %q", input, err, problem)
		case err != nil || !reflect.DeepEqual(*got, want):
			t.Errorf("%s\n got  %+v, %v\n want %+v", input, got, err, want)
		}
	}
}

// TestFlagsMakeTheSpecThatABodyMakes has each flag of the commands and the parameter of the body that it stands for.
func TestFlagsMakeTheSpecThatABodyMakes(t *testing.T) {
	for _, c := range []struct {
		args      string
		operation spec.Operation
		body      string
	}{
		{"put --endpoints 10.0.0.1:1,[::1]:2 --conns 3 --clients 4 --total 5 --target-leader --seed 6 --key-size 7 " +
			"--key-space-size 8 --val-size 9 --sequential-keys --prefix=-p --request-timeout 1.5s --dial-timeout 1s " +
			"--run-timeout 90s", spec.Put,
			`{"endpoints":"10.0.0.1:1,[::1]:2","conns":3,"clients":4,"total":5,"targetLeader":true,"seed":6,
			"keySize":7,"keySpace":8,"valSize":9,"sequentialKeys":true,"keyPrefix":"-p",
			"requestTimeout":1.5,"dialTimeout":1,"runTimeout":90}`},
		{"--endpoints a:1,b:1 txn --duration 1500ms --rate 123.5 --arrival poisson --warmup 2s --target-member b:1 " +
			"--key-space-size 9", spec.Txn,
			`{"endpoints":"a:1,b:1","duration":1.5,"rate":123.5,"arrival":"poisson","warmupDuration":2,
			"targetMember":"b:1","keySpace":9}`},
		{"--cacert /a --cert b --key c --user d --password-file e put --endpoints a:1", spec.Put,
			`{"endpoints":"a:1","caFile":"/a","certFile":"b","keyFile":"c","user":"d","passwordFile":"e"}`},
		{"--target-leader mixed --endpoints a:1 --warmup 77 --ratio 0.125 --verify --require-found " +
			"--key-order zipfian --zipf-exponent 1.25 --key-space-size 50 --prefix m/ --consistency s --span-keys 7 " +
			"--val-size 20", spec.Mixed,
			`{"endpoints":"a:1","targetLeader":true,"warmupRequests":77,"ratio":0.125,"verify":true,"requireFound":true,
			"keyOrder":"zipfian","zipfExponent":1.25,"keySpace":50,"keyPrefix":"m/","consistency":"s",
			"spanKeys":7,"valSize":20}`},
		{"range --endpoints a:1 --limit 12 --keys-only --consistency s -- --conns=3 -z", spec.Range,
			`{"endpoints":"a:1","limit":12,"keysOnly":true,"consistency":"s","key":"--conns=3","endRange":"-z"}`},
		{"range --endpoints a:1 k --from-key --count-only", spec.Range,
			`{"endpoints":"a:1","key":"k","endRange":"\u0000","countOnly":true}`},
		{"range --endpoints a:1 --prefix", spec.Range, `{"endpoints":"a:1","key":"","prefix":true}`},
		{"range --endpoints a:1 p0 --prefix --key-size 4 --key-space-size 100 --key-prefix p --val-size 9 --verify",
			spec.Range,
			`{"endpoints":"a:1","key":"p0","prefix":true,"keySize":4,"keySpace":100,"keyPrefix":"p","valSize":9,"verify":true}`},
	} {
		want, problem := spec.ParseBody(c.operation, []byte(c.body))
		assert.Must(t, problem == nil, "%v", problem)
		got, _, err := parse(strings.Fields(c.args), "dev", nil, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got  %+v\n want %+v", c.args, *got, *want)
		}
	}
}

func TestFailuresAreReportedAndChangeTheExitStatus(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		refusing, hangs := w.Refusing(), etcdtest.Simulate(w, 1, nil).Members[0]
		hangs.Hang()
		for _, c := range []struct{ args, problem string }{
			{"range k --require-found --total 3 --endpoints " + cluster.Members[0].Endpoint,
				"3 of 3 requests failed (3 times: no key found)"},
			{"put --total 3 --dial-timeout 100ms --endpoints " + refusing, "no member could be reached within 100ms: " +
				refusing},
			{"put --total 3 --dial-timeout 100ms --endpoints " + w.Listen(nil).Endpoint, "does not speak HTTP/2"},
			{"put --total 30 --conns 2 --dial-timeout 100ms --endpoints " + cluster.Members[0].Endpoint + "," + refusing,
				"not every member could be reached"},
			{"put --run-timeout 200ms --dial-timeout 1s --endpoints " + hangs.Endpoint,
				"the run timeout of 200ms was reached"},
			{"put --total 3 --key-size 3 --key-space-size 40 --val-size 64 --history --history-file=/nowhere/history " +
				endpointsOf(cluster), "keep a history: open /nowhere/history"},
		} {
			status, result, stderr := callJSON(t, w, strings.Fields(c.args)...)
			if status != ExitFailed || !strings.Contains(stderr, c.problem) || !strings.Contains(result.Problem(), c.problem) {
				t.Errorf("%q: status %d, stderr %q, want %q", c.args, status, stderr, c.problem)
			}
		}
	})
}

// TestCancelReportsWhatThereIs, also of a load of which it would take half an hour to compute all intended starts.
func TestCancelReportsWhatThereIs(t *testing.T) {
	for args, total := range map[string]int{"--total=10000000": 10_000_000,
		"--total=80000000000 --rate=1000000 --arrival=poisson --clients=4 --key-space-size=100": 80_000_000_000} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			ctx, cancel := context.WithCancelCause(t.Context())
			read, write := io.Pipe()
			go func() {
				lines := json.NewDecoder(read)
				var p report.Progress
				for lines.Decode(&p) == nil && p.Done == 0 {
				}
				assert.That(t, p.Total == total && p.Done > 0 && p.Done <= p.Total && p.Errors == 0, "progress %+v", p)
				cancel(errCancelled)
				_, fault := io.Copy(io.Discard, read)
				assert.That(t, fault == nil, "%v", fault)
			}()
			var stdout strings.Builder
			status := mainIn(ctx, w, "dev", secure.Files, append(strings.Fields(args), "put", "--progress=json",
				"--output=json", endpointsOf(etcdtest.Simulate(w, 1, nil))), &stdout, write)
			var result report.Result
			assert.OK(t, write.Close(), json.Unmarshal([]byte(stdout.String()), &result))
			assert.That(t, status == ExitFailed && result.OK != 0 && result.Failed == 0 &&
				(total == 10_000_000 || *result.RateAchieved > 0) && strings.HasPrefix(result.Problem(), "cancelled") &&
				result.SlowestS != nil, "%s: status %d, %s", args, status, stdout.String())
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestAReportThatCannotBePrintedIsAFailure, of a load with flags that change nothing.
func TestAReportThatCannotBePrintedIsAFailure(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		args := strings.Fields("put --total 1 --rate 0 --cert= --user= --compact-interval 0s --compact-index-delta 1000 " +
			"--check-hashkv=false " + endpointsOf(etcdtest.Simulate(w, 1, nil)))
		status, stdout, stderr := call(t, w, args...)
		assert.That(t, status == ExitOK && stderr == "" && strings.HasPrefix(stdout, "\nSummary:\n  Total:\t"),
			"status %d, stderr %q, stdout %s", status, stderr, stdout)
		var broken strings.Builder
		status = mainIn(t.Context(), w, "dev", secure.Files, args, brokenPipe{}, &broken)
		assert.That(t, status == ExitFailed && strings.Contains(broken.String(), "print the report: broken pipe"),
			"status %d, stderr %q", status, broken.String())
	})
}
