package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/emulator"
)

const minBufferBytes = 4 << 20

// Values of --stamps.
const (
	kernelStamps = "kernel" // where the kernel refuses, as with readStamps
	readStamps   = "read"
)

// serve runs the emulator until the control connection ends. On SIGTERM, and when the data path fails, it exits the
// process itself.
func serve(arguments []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	fd := flags.Int("control-fd", -1, "file descriptor of the control connection")
	stamps := flags.String("stamps", kernelStamps, "when a frame came to an interface: as the kernel stamps it, or when it was read")
	bufferBytes := flags.Int64("buffer-bytes", emulator.DefaultBufferBytes, "most memory for frames, in bytes")
	core := flags.Int("core", -1, "the only core of the data thread; -1: any")
	if err := flags.Parse(arguments); err != nil {
		return exitUsage
	}
	switch {
	case flags.NArg() > 0:
		return complain(stderr, exitUsage, fmt.Errorf("serve: unexpected argument %q", flags.Arg(0)))
	case *fd < 3:
		return complain(stderr, exitUsage,
			fmt.Errorf("serve: --control-fd: got %d, allowed: an open descriptor from 3 on", *fd))
	case *stamps != kernelStamps && *stamps != readStamps:
		return complain(stderr, exitUsage,
			fmt.Errorf("serve: --stamps: got %q, allowed: %s, %s", *stamps, kernelStamps, readStamps))
	case *bufferBytes < minBufferBytes:
		return complain(stderr, exitUsage,
			fmt.Errorf("serve: --buffer-bytes: got %d, allowed: %d or more", *bufferBytes, minBufferBytes))
	case *core < -1:
		return complain(stderr, exitUsage, fmt.Errorf("serve: --core: got %d, allowed: a core, or -1", *core))
	}
	if _, err := unix.FcntlInt(uintptr(*fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return complain(stderr, exitUsage, fmt.Errorf("serve: --control-fd %d: %w", *fd, err))
	}

	// Ctrl-C and hang-up of the terminal are for the driver, which ends the emulator by closing the connection.
	signal.Ignore(unix.SIGINT, unix.SIGHUP)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, unix.SIGTERM)
	go func() {
		<-terminated
		os.Exit(exitDone)
	}()

	var only *int
	if *core >= 0 {
		only = core
	}
	connection := os.NewFile(uintptr(*fd), "control connection")
	unstamped := ""
	if *stamps == readStamps {
		unstamped = "--stamps " + readStamps
	}
	running, err := emulator.Start(emulator.Options{
		Version:     sourceHash,
		BufferBytes: *bufferBytes,
		Unstamped:   unstamped,
		Core:        only,
		Failed:      func(err error) { os.Exit(complain(stderr, exitFailed, err)) },
	})
	if err != nil {
		return complain(stderr, exitFailed, err)
	}
	if err := running.Serve(connection, connection); err != nil {
		return complain(stderr, exitFailed, err)
	}
	return exitDone
}
