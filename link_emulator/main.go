// Command link-emulator emulates the network between the hosts of a run: switches and links with delay and rate, in one
// process that holds a TAP interface in each host's network namespace. See README.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/probe"
	"containernet-env/link_emulator/rtt"
	"containernet-env/link_emulator/simulate"
)

// sourceHash identifies the sources of the build: -ldflags "-X main.sourceHash=...".
var sourceHash = "dev"

const usage = `usage: link-emulator serve --control-fd FD [--buffer-bytes N] [--stamps kernel|read] [--core N]
                           [--offload]
       link-emulator rtt [--life-fd FD] < hosts.json > pairs.json
       link-emulator probe [--life-fd FD] < streams.json > times.json
       link-emulator simulate < simulation.json > times.json
       link-emulator --version | --help

serve    runs the emulator; FD is a stream socket that carries the control protocol. Ends when FD ends, or on SIGTERM.
rtt      measures the round-trip time of every pair of hosts with ICMP echo, from inside their network namespaces. Ends
         when FD, a pipe, ends: then the process that started it has.
probe    sends streams of frames between hosts and reports how long each frame took, one way. Ends as rtt does.
simulate does what probe does in simulated time, over links of the input, on a machine with the noise of the input.

exit status: 0 done, 1 failed, 2 wrong usage or input
`

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

const (
	minBufferBytes = 4 << 20
	maxInputBytes  = 1 << 25 // of a measurement: 200,000 streams
)

// verbs are the commands, by name.
var verbs = map[string]func(*command) int{
	"serve":    (*command).serve,
	"rtt":      func(c *command) int { return measure(c, rtt.Parse, rtt.Measure) },
	"probe":    func(c *command) int { return measure(c, probe.Parse, probe.Measure) },
	"simulate": func(c *command) int { return measure(c, simulate.Parse, simulate.Simulate) },
}

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(arguments []string, stdin io.Reader, stdout, stderr io.Writer) int {
	verb := ""
	if len(arguments) > 0 {
		verb = arguments[0]
	}
	switch {
	case verbs[verb] != nil:
		c := &command{flag.NewFlagSet(verb, flag.ContinueOnError), arguments[1:], stdin, stdout, stderr}
		c.SetOutput(stderr)
		return verbs[verb](c)
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

// command is a verb with its flags and files.
type command struct {
	*flag.FlagSet
	arguments      []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

func (c *command) fail(status int, format string, values ...any) int {
	fmt.Fprintln(c.stderr, "link-emulator:", fmt.Errorf(c.Name()+": "+format, values...))
	return status
}

// parse parses the flags; false: they are refused, and the reason is printed.
func (c *command) parse() bool {
	if c.Parse(c.arguments) != nil {
		return false
	}
	if c.NArg() > 0 {
		c.fail(exitUsage, "unexpected argument %q", c.Arg(0))
	}
	return c.NArg() == 0
}

// inherited is the file of a descriptor that the caller has left open; programs that are started do not inherit it.
func inherited(fd int, name string) (*os.File, error) {
	if fd < 3 {
		return nil, fmt.Errorf("got %d, allowed: an open descriptor from 3 on", fd)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("%d: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// measure reads a request as JSON, carries it out and writes the result as JSON. It exits the process itself when the
// pipe --life-fd ends.
func measure[Request, Result any](c *command, parse func([]byte) (Request, error),
	carryOut func(Request) (Result, error)) int {
	life := c.Int("life-fd", -1, "file descriptor of a pipe that ends with the caller")
	if !c.parse() {
		return exitUsage
	}
	if *life != -1 {
		pipe, err := inherited(*life, "life of the caller")
		if err != nil {
			return c.fail(exitUsage, "--life-fd: %w", err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, pipe)
			os.Exit(exitFailed)
		}()
	}
	input, err := io.ReadAll(io.LimitReader(c.stdin, maxInputBytes))
	if err != nil {
		return c.fail(exitFailed, "read the request: %w", err)
	}
	request, err := parse(input)
	if err != nil {
		return c.fail(exitUsage, "%w", err)
	}
	result, err := carryOut(request)
	if err != nil {
		return c.fail(exitFailed, "%w", err)
	}
	if err := json.NewEncoder(c.stdout).Encode(result); err != nil {
		return c.fail(exitFailed, "write the result: %w", err)
	}
	return exitDone
}

// serve runs the emulator until the control connection ends. On SIGTERM, and when the data path fails, it exits the
// process itself.
func (c *command) serve() int {
	fd := c.Int("control-fd", -1, "file descriptor of the control connection")
	stamps := c.String("stamps", emulator.KernelStamps,
		"when a frame came to an interface: as the kernel stamps it, or when it was read")
	bufferBytes := c.Int64("buffer-bytes", emulator.DefaultBufferBytes, "most memory for frames, in bytes")
	offload := c.Bool("offload", false, "hosts hand over and get several segments of TCP at once")
	core := c.Int("core", -1, "the only core of the data thread; -1: any")
	if !c.parse() {
		return exitUsage
	}
	options := emulator.Options{
		Version:     sourceHash,
		BufferBytes: *bufferBytes,
		Offload:     *offload,
		Failed:      func(err error) { os.Exit(c.fail(exitFailed, "%w", err)) },
	}
	switch {
	case *stamps == emulator.ReadStamps:
		options.Unstamped = "--stamps read"
	case *stamps != emulator.KernelStamps:
		return c.fail(exitUsage, "--stamps: got %q, allowed: kernel, read", *stamps)
	}
	switch {
	case *bufferBytes < minBufferBytes:
		return c.fail(exitUsage, "--buffer-bytes: got %d, allowed: %d or more", *bufferBytes, minBufferBytes)
	case *core < -1:
		return c.fail(exitUsage, "--core: got %d, allowed: a core, or -1", *core)
	case *core >= 0:
		options.Core = core
	}
	connection, err := inherited(*fd, "control connection")
	if err != nil {
		return c.fail(exitUsage, "--control-fd: %w", err)
	}
	// Ctrl-C and hang-up of the terminal are for the driver, which ends the emulator by closing the connection.
	signal.Ignore(unix.SIGINT, unix.SIGHUP)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, unix.SIGTERM)
	go func() {
		<-terminated
		os.Exit(exitDone)
	}()
	running, err := emulator.Start(options)
	if err == nil {
		err = running.Serve(connection, connection)
	}
	if err != nil {
		return c.fail(exitFailed, "%w", err)
	}
	return exitDone
}
