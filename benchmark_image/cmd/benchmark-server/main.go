// Command benchmark-server runs benchmark-client for callers over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"containernet-env/benchmark_image/internal/allow"
	"containernet-env/benchmark_image/internal/api"
	"containernet-env/benchmark_image/internal/spec"
)

// sourceHash names the sources that this program was built from; the build sets it.
var sourceHash = "dev"

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("benchmark-server", pflag.ContinueOnError)
	flags.SetOutput(stdout)
	listen := flags.String("listen", "127.0.0.1:8080",
		"address to serve HTTP on: host:port, :port (all interfaces), unix:PATH, or unix:@NAME (an abstract socket)")
	client := flags.String("client", "",
		"path of benchmark-client; the one with TLS has this and -tls (default: beside this program)")
	hosts := flags.StringSlice("host", nil,
		"further names by which callers may call this server, comma-separated or given several times")
	allowed := flags.String("allow", allow.Local,
		"members that benchmarks may be sent to: host:port, subnets (10.0.0.0/24), and \"local\", "+
			"which is the networks that this machine is connected to, without loopback; comma-separated")
	results := flags.String("results", filepath.Join(os.TempDir(), fmt.Sprintf("benchmark-results-%d", os.Geteuid())),
		"directory that keeps results until they are fetched")
	credentials := flags.String("credentials", "",
		"folder of the certificates, keys and passwords that bodies may name (default: none)")
	version := flags.Bool("version", false, "print the version and end")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case err == nil:
		err = check(*hosts, *allowed)
	}
	if err != nil {
		fmt.Fprintf(stderr, "benchmark-server: %v\n", err)
		return exitUsage
	}
	if *version {
		fmt.Fprintf(stdout, "benchmark-server %s\n", sourceHash)
		return 0
	}
	logger := log.New(stderr, "benchmark-server: ", log.LstdFlags|log.LUTC|log.Lmsgprefix)
	handler := &api.Handler{Runner: &api.Runner{Client: *client, Allow: *allowed}, Hosts: api.Hosts{Names: *hosts},
		Log: logger, Credentials: *credentials}
	if err := serve(*listen, handler, *results); err != nil {
		logger.Print(err)
		return exitFailed
	}
	return 0
}

func check(hosts []string, allowed string) error {
	for _, host := range hosts {
		if host == "" || strings.ContainsAny(host, ":/*") {
			return fmt.Errorf("--host: %q is not a name alone, without scheme and port", host)
		}
	}
	if _, err := allow.Parse(allowed); err != nil {
		return fmt.Errorf("--allow: %w", err)
	}
	return nil
}

func serve(address string, handler *api.Handler, results string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	runner := handler.Runner
	if runner.Client == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find benchmark-client: %w", err)
		}
		runner.Client = filepath.Join(filepath.Dir(self), "benchmark-client")
	}
	for _, program := range []string{runner.Client, spec.WithTLS(runner.Client)} {
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("find benchmark-client: %w", err)
		}
	}
	var err error
	if runner.Results, err = api.OpenResults(results); err != nil {
		return err
	}
	network := "tcp"
	if place, is := strings.CutPrefix(address, "unix:"); is {
		network, address = "unix", place
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	handler.Log.Printf("serving on %v", listener.Addr())
	return api.Serve(ctx, listener, handler)
}
