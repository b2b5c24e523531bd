package main

import (
	"encoding/json"
	"fmt"
	"io"

	"containernet-env/link_emulator/rtt"
)

// maxInputBytes bounds the JSON that rtt reads.
const maxInputBytes = 1 << 20

// measure reads a request of package rtt as JSON, carries it out and writes the result as JSON.
func measure(stdin io.Reader, stdout, stderr io.Writer) int {
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
