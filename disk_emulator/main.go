// Command disk-emulator lies over a directory of a container: it is there as before, but fsync and fdatasync of its
// files take a configured time. See README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// sourceHash identifies the sources of the build: -ldflags "-X main.sourceHash=...".
var sourceHash = "dev"

const usage = `usage: disk-emulator --pid PID --sync DURATION [--counts DESCRIPTOR] [--long DURATION] DIRECTORY
       disk-emulator --version

Mounts itself over DIRECTORY in the mount namespace of process PID, made there if it is missing, and writes "ready".
fsync and fdatasync of files below it take DURATION (such as 2ms) from then on, or as long as the disk takes, if that is
longer. Ends when standard input ends or the namespace is gone, on SIGTERM too. The shared memory behind the open
DESCRIPTOR has three numbers of 64 bits: how many have ended, by how many ns they took longer, together, and how many of
them took longer by more than the duration of --long (100ms).

exit status: 0 done, 1 failed, 2 wrong usage
`

// The thread that enters the container's mount namespace has to end there, which the main thread cannot: that one keeps
// to the main goroutine.
func init() { runtime.LockOSThread() }

const longestSync = time.Minute * 10

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	flags := flag.NewFlagSet("disk-emulator", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	pid, sync := flags.Int("pid", 0, ""), flags.Duration("sync", 0, "")
	counts, long := flags.Int("counts", -1, ""), flags.Duration("long", 100*time.Millisecond, "")
	version := flags.Bool("version", false, "")
	if err := flags.Parse(arguments); err != nil {
		return 2
	}
	if *version && flags.NArg() == 0 {
		fmt.Println("disk-emulator", sourceHash)
		return 0
	}
	if *pid <= 0 || *sync <= 0 || *sync > longestSync || *long <= 0 || flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	shared, err := sharedCounts(*counts)
	if err == nil {
		err = serve(*pid, flags.Arg(0), &syncs{*sync, *long, make(chan struct{}, mostSyncs), shared})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve lies over the directory until standard input or the mount ends.
func serve(pid int, directory string, syncs *syncs) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin) // an error ends it as well
		close(ended)
	}()
	server, err := mount(pid, directory, syncs)
	if err != nil {
		return err
	}
	unmounted := make(chan struct{})
	go func() {
		server.Serve()
		close(unmounted)
	}()
	if err := server.WaitMount(); err != nil {
		return fmt.Errorf("the kernel does not take the file system: %w", err)
	}
	fmt.Println("ready")
	// The end of this process ends the connection to the kernel: what waits for it then fails with ENOTCONN.
	select {
	case <-ended:
	case <-stop:
	case <-unmounted:
	}
	return nil
}

// mount puts the file system over the directory, and confines this process to it.
func mount(pid int, directory string, syncs *syncs) (*fuse.Server, error) {
	// What returns from a sleep or a sync finds a slot of the scheduler free, and waits for none.
	runtime.GOMAXPROCS(mostSyncs)
	unix.Umask(0) // the caller's has been applied
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	under, err := cover(pid, directory, device)
	if err != nil {
		return nil, err
	}
	// From here on every path begins at the directory that is covered: no link in it leads out of it.
	if err := errors.Join(unix.Fchdir(under), unix.Chroot("."), unix.Close(under)); err != nil {
		return nil, fmt.Errorf("chroot to %s: %w", directory, err)
	}
	return newServer(device, syncs)
}

// cover mounts the FUSE connection of device over the directory in the mount namespace of a process, and returns a
// descriptor of the directory below.
func cover(pid int, directory string, device int) (under int, err error) {
	namespace, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("the mount namespace of process %d: %w", pid, err)
	}
	defer unix.Close(namespace)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends in that namespace
		under, err = coverHere(namespace, directory, device)
	}()
	<-done
	return under, err
}

func coverHere(namespace int, directory string, device int) (int, error) {
	// A thread that shares its root with others cannot enter a mount namespace (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return -1, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
		return -1, fmt.Errorf("setns: %w", err)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return -1, err
	}
	under, err := unix.Open(directory, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", directory, err)
	}
	var found unix.Stat_t
	if err := unix.Fstat(under, &found); err != nil {
		return -1, fmt.Errorf("stat %s: %w", directory, err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other,default_permissions", device, found.Mode)
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if err := unix.Mount("disk-emulator", directory, "fuse", flags, options); err != nil {
		return -1, fmt.Errorf("mount over %s: %w", directory, err)
	}
	return under, nil
}
