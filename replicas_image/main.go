// Command replicas is one of N replicas of a key-value service. Any of them coordinates a request: it sends it to all,
// and answers when as many as the request requires have answered (ack of a write, from of a read). Of two versions the
// later one wins, by the clock of its coordinator. With ack+from > N, a read meets every acknowledged write; with less,
// it may not, which is what this service is there to show.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("replicas: ", err)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("replicas", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "host:port to serve on")
	peers := flags.String("peers", "",
		"host:port of all replicas, comma-separated, in the same order for each; this one's among them")
	self := flags.Int("id", 0, "number of this replica among the peers, from 0")
	data := flags.String("data", "", "folder to keep data in")
	timeout := flags.Duration("timeout", time.Second, "for how long other replicas may take to answer")
	noSync := flags.Bool("unsafe-no-fsync", false, "acknowledge before the data is on the disk (for tests)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all := strings.Split(*peers, ",")
	switch {
	case *data == "":
		return errors.New("--data is needed: a folder to keep data in")
	case *peers == "" || *self < 0 || *self >= len(all):
		return fmt.Errorf("--id %d is none of the %d --peers", *self, len(all))
	case flags.NArg() > 0:
		return fmt.Errorf("an argument too many: %q", flags.Arg(0))
	}
	table, err := open(*data, !*noSync)
	if err != nil {
		return err
	}
	defer table.close()
	server := &http.Server{Addr: *listen, Handler: newReplica(*self, all, table, *timeout).handler(),
		ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), *timeout)
		defer cancel()
		_ = server.Shutdown(end) // what is left is cut off
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
