package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/probe"
	"containernet-env/link_emulator/rtt"
	"containernet-env/link_emulator/simulate"
)

// maxInputBytes bounds the JSON that a measurement reads: 200,000 streams.
const maxInputBytes = 1 << 25

// measurement parses a request in JSON and returns how to carry it out.
type measurement func(input []byte) (carryOut func() (any, error), err error)

var (
	measureRTT      = measurementOf(rtt.Parse, rtt.Measure)
	measureStreams  = measurementOf(probe.Parse, probe.Measure)
	simulateStreams = measurementOf(simulate.Parse, simulate.Simulate)
)

func measurementOf[Request, Result any](parse func([]byte) (Request, error),
	carryOut func(Request) (Result, error)) measurement {
	return func(input []byte) (func() (any, error), error) {
		request, err := parse(input)
		return func() (any, error) { return carryOut(request) }, err
	}
}

// measure reads a request as JSON, carries it out and writes the result as JSON. It exits the process itself when the
// pipe that it was given ends.
func measure(verb string, parse measurement, arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	life := flags.Int("life-fd", -1, "file descriptor of a pipe that ends with the caller")
	if err := flags.Parse(arguments); err != nil {
		return exitUsage
	}
	fail := func(status int, format string, values ...any) int {
		return complain(stderr, status, fmt.Errorf(verb+": "+format, values...))
	}
	switch {
	case flags.NArg() > 0:
		return fail(exitUsage, "unexpected argument %q", flags.Arg(0))
	case *life >= 0 && *life < 3:
		return fail(exitUsage, "--life-fd: got %d, allowed: an open descriptor from 3 on", *life)
	case *life >= 3:
		if _, err := unix.FcntlInt(uintptr(*life), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fail(exitUsage, "--life-fd %d: %w", *life, err)
		}
		pipe := os.NewFile(uintptr(*life), "life of the caller")
		go func() {
			_, _ = io.Copy(io.Discard, pipe)
			os.Exit(exitFailed)
		}()
	}
	input, err := io.ReadAll(io.LimitReader(stdin, maxInputBytes))
	if err != nil {
		return fail(exitFailed, "read the request: %w", err)
	}
	carryOut, err := parse(input)
	if err != nil {
		return fail(exitUsage, "%w", err)
	}
	result, err := carryOut()
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	if err := json.NewEncoder(stdout).Encode(result); err != nil {
		return fail(exitFailed, "write the result: %w", err)
	}
	return exitDone
}
