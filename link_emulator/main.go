// Command link-emulator emulates the network between the hosts of a run: switches and links with delay and rate, in one
// process that holds a TAP interface in each host's network namespace. See README.md.
package main

import (
	"fmt"
	"io"
	"os"
)

// sourceHash identifies the sources of the build: -ldflags "-X main.sourceHash=...".
var sourceHash = "dev"

const usage = `usage: link-emulator serve --control-fd FD [--buffer-bytes N] [--stamps kernel|read] [--core N]
       link-emulator rtt [--life-fd FD] < hosts.json > pairs.json
       link-emulator probe [--life-fd FD] < streams.json > times.json
       link-emulator simulate < simulation.json > times.json
       link-emulator --version | --help

serve   runs the emulator; FD is a stream socket that carries the control protocol. Ends when FD ends, or on SIGTERM.
rtt     measures the round-trip time of every pair of hosts with ICMP echo, from inside their network namespaces. Ends
        when FD, a pipe, ends: then the process that started it has.
probe   sends streams of frames from host to host and tells how long each frame took, one way. Ends as rtt does.
simulate does what probe does in simulated time, over links that the input has, on a machine that is as noisy as it says.

exit status: 0 done, 1 failed, 2 wrong usage or input
`

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	verb := ""
	if len(arguments) > 0 {
		verb = arguments[0]
	}
	switch {
	case verb == "serve":
		return serve(arguments[1:], stderr)
	case verb == "rtt":
		return measure("rtt", measureRTT, arguments[1:], stdin, stdout, stderr)
	case verb == "probe":
		return measure("probe", measureStreams, arguments[1:], stdin, stdout, stderr)
	case verb == "simulate":
		return measure("simulate", simulateStreams, arguments[1:], stdin, stdout, stderr)
	case verb == "--version" && len(arguments) == 1:
		fmt.Fprintln(stdout, "link-emulator", sourceHash)
		return exitDone
	case verb == "--help" || verb == "-h":
		fmt.Fprint(stdout, usage)
		return exitDone
	}
	fmt.Fprint(stderr, usage)
	return exitUsage
}

func complain(stderr io.Writer, status int, err error) int {
	fmt.Fprintln(stderr, "link-emulator:", err)
	return status
}
