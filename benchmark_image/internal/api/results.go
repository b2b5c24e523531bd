package api

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// keptResults is how many results are kept at most, the newest ones.
	keptResults = 16
	// keptBytes bounds how much they take on disk, all together.
	keptBytes = 64 << 20
)

// resultName is the name of a file: the id of a job, and the status of the answer that the file holds.
var resultName = regexp.MustCompile(`^([0-9a-f]{32})\.(\d{3})\.json$`)

// leftover is the name of a file that a server removes before it ends, unless it is killed.
var leftover = regexp.MustCompile(`^([0-9a-f]{32}\.\d{3}\.json\.part|benchmark-history-\d+\.jsonl\.gz)$`)

func newJob() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// Results keeps the answers to benchmarks in files until they are fetched, so that none is lost with the connection of
// the caller. It keeps a bounded number of them.
type Results struct {
	dir  string
	lock *os.File // of the directory: shared by the servers that use it, as long as they run
	mu   sync.Mutex
}

// OpenResults makes the directory if it is not there, and removes what a server that was killed left behind there,
// unless another one uses it. One that others can write to is refused: they could answer instead.
func OpenResults(dir string) (*Results, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep results: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("keep results: %w", err)
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || !known || int(owner.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("keep results: %s is not a directory that only this user can write to", dir)
	}
	r := &Results{dir: dir}
	if r.lock, err = os.Open(dir); err != nil {
		return nil, fmt.Errorf("keep results: %w", err)
	}
	if err := r.join(); err != nil {
		return nil, errors.Join(fmt.Errorf("keep results: %w", err), r.lock.Close())
	}
	return r, nil
}

// join takes the lock, which the kernel gives back however this server ends (flock(2)).
func (r *Results) join() error {
	err := lock(r.lock, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = r.removeLeftovers()
	} else if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil // another server runs
	}
	return errors.Join(err, lock(r.lock, unix.LOCK_SH))
}

func lock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "lock", Path: file.Name(), Err: err}
		}
	}
}

func (r *Results) removeLeftovers() error {
	entries, err := os.ReadDir(r.dir)
	for _, entry := range entries {
		if leftover.MatchString(entry.Name()) {
			err = errors.Join(err, remove(filepath.Join(r.dir, entry.Name())))
		}
	}
	return err
}

func (r *Results) newHistory() (path string, err error) {
	file, err := os.CreateTemp(r.dir, "benchmark-history-*.jsonl.gz")
	if err != nil {
		return "", fmt.Errorf("make a file for the history: %w", err)
	}
	return file.Name(), file.Close()
}

// Put keeps the answer to a job, and removes the oldest ones that there is no more room for.
func (r *Results) Put(id string, status int, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := filepath.Join(r.dir, fmt.Sprintf("%s.%d.json", id, status))
	// Under another name until it is complete.
	err := os.WriteFile(name+".part", body, 0o600)
	if err == nil {
		err = os.Rename(name+".part", name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep the result of job %s: %w", id, err), remove(name+".part"))
	}
	return r.prune()
}

// prune removes the oldest results until there are few enough.
func (r *Results) prune() error {
	kept, err := r.list()
	var total int64
	for i, info := range kept {
		if total += info.Size(); i >= keptResults || total > keptBytes {
			err = errors.Join(err, remove(filepath.Join(r.dir, info.Name())))
		}
	}
	return err
}

// list gives the files, the newest first.
func (r *Results) list() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("list the results: %w", err)
	}
	var kept []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && resultName.MatchString(entry.Name()) {
			kept = append(kept, info)
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	return kept, nil
}

// Get gives the answer to a job, and the path of its file; empty if there is none.
func (r *Results) Get(id string) (path string, status int, body []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, err := r.list()
	for _, info := range kept {
		if match := resultName.FindStringSubmatch(info.Name()); match[1] == id {
			path = filepath.Join(r.dir, info.Name())
			if body, err = os.ReadFile(path); err != nil {
				return "", 0, nil, fmt.Errorf("read the result of job %s: %w", id, err)
			}
			status, err = strconv.Atoi(match[2])
			return path, status, body, err
		}
	}
	return "", 0, nil, err
}

// remove removes a file that may be gone already.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", strings.TrimSuffix(filepath.Base(path), ".json"), err)
	}
	return nil
}
