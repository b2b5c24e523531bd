// Command history-checker judges the history of a load.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/verify"
)

// sourceHash names the sources that this program was built from; the build sets it.
var sourceHash = "dev"

// Exit statuses. With the first three a judgement is printed.
const (
	exitHolds     = 0
	exitViolated  = 1
	exitUsage     = 2 // nothing was judged
	exitUndecided = 4
)

// partial is what the file of a picture ends with until it is whole.
const partial = ".partial"

// memoryLook is how often the use of memory is looked at.
const memoryLook = 20 * time.Millisecond

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("history-checker", pflag.ContinueOnError)
	flags.SetOutput(stdout)
	store := flags.String("store", "", "the store's own history, or its final state")
	picture := flags.String("picture", "", "where a picture of a violation is written to, as HTML")
	limit := flags.Duration("time", time.Minute, "how long a judgement may take")
	memory := flags.Int64("memory", 1<<30, "how much memory it may take, in bytes")
	version := flags.Bool("version", false, "print the version and end")
	fail := func(err error) int {
		fmt.Fprintf(stderr, "history-checker: %v\n", err)
		return exitUsage
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		return fail(err)
	}
	if *version {
		fmt.Fprintf(stdout, "history-checker %s\n", sourceHash)
		return 0
	}
	if flags.NArg() != 1 || *limit <= 0 || *memory <= 0 {
		return fail(errors.New("one history is needed, and a time and memory above 0"))
	}
	judged := make(chan outcome, 1)
	var found atomic.Pointer[verify.Result]
	go func() {
		limits := verify.Limits{Time: *limit, Found: func(r verify.Result) { found.Store(&r) }}
		result, err := judge(flags.Arg(0), *store, *picture, limits, stderr)
		judged <- outcome{result, err}
	}()
	o := first(judged, exhausted(*memory), &found, *memory)
	if *picture != "" {
		os.Remove(*picture + partial) // of a picture that memory was not enough for
	}
	if o.err == nil {
		o.err = json.NewEncoder(stdout).Encode(o.result)
	}
	if o.err != nil {
		return fail(o.err)
	}
	return map[verify.Verdict]int{verify.Holds: exitHolds, verify.Violated: exitViolated,
		verify.Undecided: exitUndecided}[o.result.Verdict]
}

type outcome struct {
	result *verify.Result
	err    error
}

// first is the outcome of a judgement, or where it has used up its memory what had been found by then.
func first(judged <-chan outcome, exhausted <-chan struct{}, found *atomic.Pointer[verify.Result],
	memory int64) outcome {
	select {
	case o := <-judged:
		return o
	case <-exhausted:
	}
	if result := found.Load(); result != nil {
		return outcome{result: result}
	}
	reason := fmt.Sprintf("it takes more than %d bytes of memory", memory)
	return outcome{result: &verify.Result{Verdict: verify.Undecided, Reason: reason, Compared: verify.Nothing}}
}

// judge has a picture of a violation drawn; where that fails it tells stderr, and the history is violated all the same.
func judge(path, store, picture string, limits verify.Limits, stderr io.Writer) (*verify.Result, error) {
	var log *history.Log
	if store != "" {
		file, err := os.Open(store)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if log, err = history.ReadLog(file); err != nil {
			return nil, err
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	result, err := verify.Judge(file, log, limits)
	if err != nil || result.Violation == nil || picture == "" {
		return result, err
	}
	drawn, err := draw(result.Violation, picture)
	if err != nil {
		fmt.Fprintf(stderr, "history-checker: draw the violation: %v\n", err)
	}
	if drawn {
		result.Violation.Picture = picture
	}
	return result, nil
}

// draw makes a picture, which is not there until it is whole; false if there is none to be drawn.
func draw(violation *verify.Violation, picture string) (bool, error) {
	to, err := os.Create(picture + partial)
	if err != nil {
		return false, err
	}
	drawn, err := violation.Draw(to)
	if err = errors.Join(err, to.Close()); err == nil && drawn {
		err = os.Rename(picture+partial, picture)
	}
	if err != nil || !drawn {
		return false, errors.Join(err, os.Remove(picture+partial))
	}
	return true, nil
}

// exhausted is closed once the program uses more memory than it may.
func exhausted(bytes int64) <-chan struct{} {
	debug.SetMemoryLimit(bytes - bytes/8)
	over := make(chan struct{})
	go func() {
		use := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		for range time.Tick(memoryLook) {
			if metrics.Read(use); use[0].Value.Uint64()-use[1].Value.Uint64() > uint64(bytes) {
				close(over)
				return
			}
		}
	}()
	return over
}
