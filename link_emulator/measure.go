package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/rtt"
)

// maxInputBytes bounds the JSON that rtt reads.
const maxInputBytes = 1 << 20

// measure reads a request of package rtt as JSON, carries it out and writes the result as JSON. It exits the process
// itself when the pipe that it was given ends.
func measure(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("rtt", flag.ContinueOnError)
	flags.SetOutput(stderr)
	life := flags.Int("life-fd", -1, "file descriptor of a pipe that ends with the caller")
	if err := flags.Parse(arguments); err != nil {
		return exitUsage
	}
	switch {
	case flags.NArg() > 0:
		return complain(stderr, exitUsage, fmt.Errorf("rtt: unexpected argument %q", flags.Arg(0)))
	case *life >= 0 && *life < 3:
		return complain(stderr, exitUsage, fmt.Errorf("rtt: --life-fd: got %d, allowed: an open descriptor from 3 on", *life))
	case *life >= 3:
		if _, err := unix.FcntlInt(uintptr(*life), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return complain(stderr, exitUsage, fmt.Errorf("rtt: --life-fd %d: %w", *life, err))
		}
		pipe := os.NewFile(uintptr(*life), "life of the caller")
		go func() {
			_, _ = io.Copy(io.Discard, pipe)
			os.Exit(exitFailed)
		}()
	}
	input, err := io.ReadAll(io.LimitReader(stdin, maxInputBytes))
	if err != nil {
		return complain(stderr, exitFailed, fmt.Errorf("rtt: read the request: %w", err))
	}
	request, err := rtt.Parse(input)
	if err != nil {
		return complain(stderr, exitUsage, fmt.Errorf("rtt: %w", err))
	}
	result, err := rtt.Measure(request)
	if err != nil {
		return complain(stderr, exitFailed, fmt.Errorf("rtt: %w", err))
	}
	if err := json.NewEncoder(stdout).Encode(result); err != nil {
		return complain(stderr, exitFailed, fmt.Errorf("rtt: write the result: %w", err))
	}
	return exitDone
}
