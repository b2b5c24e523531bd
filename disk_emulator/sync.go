package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// mostSyncs is how many syncs are under way at once; each holds a thread.
const mostSyncs = 64

// counts has how many syncs have ended, by how many ns they took longer than configured, together, and how many of them
// took much longer.
type counts struct{ syncs, lateNS, stalled atomic.Int64 }

// sharedCounts are those in the memory of a descriptor; without one, of this process alone.
func sharedCounts(descriptor int) (*counts, error) {
	if descriptor < 0 {
		return new(counts), nil
	}
	memory, err := unix.Mmap(descriptor, 0, int(unsafe.Sizeof(counts{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the counts of descriptor %d: %w", descriptor, err)
	}
	return (*counts)(unsafe.Pointer(unsafe.SliceData(memory))), nil
}

// disk is a directory or a file of the covered directory.
type disk struct {
	fs.LoopbackNode
	*syncs
}

// syncs is what all directories and files share.
type syncs struct {
	take    time.Duration
	long    time.Duration
	slots   chan struct{}
	counted *counts
}

// newServer serves the file system by a connection that is mounted, from this process's root.
func newServer(device int, syncs *syncs) (*fuse.Server, error) {
	root, err := fs.NewLoopbackRoot("/")
	if err != nil {
		return nil, err
	}
	node := &disk{syncs: syncs}
	node.RootData = root.(*fs.LoopbackNode).RootData
	node.RootData.RootNode = node
	// Nothing else changes the files: what the kernel knows of them holds.
	forever := time.Hour
	return fuse.NewServer(fs.NewNodeFS(node, &fs.Options{EntryTimeout: &forever, AttrTimeout: &forever}),
		fmt.Sprintf("/dev/fd/%d", device), &fuse.MountOptions{
			// Else the kernel asks for security.capability before each write.
			DisableXAttrs: true,
			// It needs /dev/null, which is not below this process's root.
			DisableSplice: true,
			// The covered directory may be on an overlay.
			MaxStackDepth: 2,
			// What it writes is read until it is ready.
			Logger: log.New(io.Discard, "", 0),
		})
}

// WrapChild makes what is found in a directory be of this kind.
func (d *disk) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	made := &disk{syncs: d.syncs}
	made.RootData = child.(*fs.LoopbackNode).RootData
	return made
}

// Fsync returns after the configured time, or once the disk has it, whichever is later.
func (d *disk) Fsync(ctx context.Context, handle fs.FileHandle, flags uint32) syscall.Errno {
	return d.slowly(func() syscall.Errno { return handle.(fs.FileFsyncer).Fsync(ctx, flags) })
}

// slowly syncs, and returns after the configured time, or later.
func (s *syncs) slowly(sync func() syscall.Errno) syscall.Errno {
	due := now() + s.take.Nanoseconds()
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	errno := sync()
	sleepUntil(due)
	late := now() - due
	s.counted.lateNS.Add(late)
	if late > s.long.Nanoseconds() {
		s.counted.stalled.Add(1)
	}
	s.counted.syncs.Add(1)
	return errno
}

// OpendirHandle opens a directory whose fsync takes its time, too.
func (d *disk) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	handle, flags, errno := d.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, flags, errno
	}
	return &folder{handle.(stream), d.syncs}, flags, 0
}

// stream is what go-fuse opens for a directory.
type stream interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
	fs.FileFsyncdirer
}

type folder struct {
	stream
	syncs *syncs
}

// Fsyncdir is as Fsync.
func (f *folder) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	return f.syncs.slowly(func() syscall.Errno { return f.stream.Fsyncdir(ctx, flags) })
}

func now() int64 {
	var at unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) // every kernel has this clock
	return at.Nano()
}

// sleepUntil sleeps on a thread of real-time priority, if that is granted: a timer of the Go runtime is up to a
// millisecond late, and an ordinary thread waits for a core. Other work, of which the container decides how much there
// is, has ordinary priority.
func sleepUntil(atNS int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Below the link emulator's. Threads that the runtime makes from this one do not inherit it.
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	// Where it is not granted, the sleep ends later: the run measures that before the store starts.
	unix.SchedSetAttr(0, &attributes, 0)
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	// What was granted can be given up.
	defer unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: -20}, 0)
	until := unix.NsecToTimespec(atNS)
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
	}
}
