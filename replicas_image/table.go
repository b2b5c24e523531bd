package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// version is what a key holds, or that it was deleted; the zero value: it was never written.
type version struct {
	Time    int64 // ns since 1970, by the clock of the coordinator
	By      int   // the coordinator, which decides between two versions of the same time
	Deleted bool  // a tombstone: it must win over older versions that other replicas still have
	Value   []byte
}

// before tells whether another version wins.
func (v version) before(other version) bool {
	return v.Time < other.Time || v.Time == other.Time && v.By < other.By
}

func (v version) exists() bool { return v.Time != 0 && !v.Deleted }

// table is what a replica holds: a map, and a file that every version is appended to before it is acknowledged.
type table struct {
	sync bool

	mu      sync.RWMutex
	keys    map[string]version
	file    *os.File
	failed  error // of the file: nothing is acknowledged any more
	pending *batch
	writing bool
}

// batch is versions that share one fsync: while one goes on, those that come meanwhile gather for the next.
type batch struct {
	bytes []byte
	done  chan struct{}
	err   error
}

// Bounds of what is taken, in bytes.
const (
	maxKey   = 4 << 10
	maxValue = 4 << 20
)

const recordHeader = 4 + 4 + 4 + 8 + 4 + 1 // check, key's and value's lengths, time, coordinator, deleted

// open reads the file in a folder and continues it. A record that was cut off by the end of the process is left out: it
// was not acknowledged.
func open(folder string, durable bool) (*table, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, "log"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	t := &table{sync: durable, keys: make(map[string]version), file: file}
	good, err := t.replay(bufio.NewReaderSize(file, 1<<20))
	if err == nil {
		err = file.Truncate(good)
	}
	if err == nil {
		_, err = file.Seek(good, io.SeekStart)
	}
	if err == nil && durable {
		err = syncFolder(folder)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", file.Name(), err), file.Close())
	}
	return t, nil
}

// syncFolder makes the file itself durable.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// replay gives the length of the whole records.
func (t *table) replay(from io.Reader) (good int64, err error) {
	for {
		key, v, err := readRecord(from)
		switch {
		case err == nil:
			good += int64(recordHeader + len(key) + len(v.Value))
			t.put(key, v)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errDamaged):
			return good, nil
		default:
			return good, err
		}
	}
}

var errDamaged = errors.New("the record is damaged")

// readRecord reads what appendRecord has written.
func readRecord(from io.Reader) (key string, v version, err error) {
	var header [recordHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return "", version{}, err
	}
	keySize, valueSize := binary.LittleEndian.Uint32(header[4:]), binary.LittleEndian.Uint32(header[8:])
	if keySize > maxKey || valueSize > maxValue {
		return "", version{}, errDamaged
	}
	text := make([]byte, keySize+valueSize)
	if _, err := io.ReadFull(from, text); err != nil {
		return "", version{}, err
	}
	if check := crc32.ChecksumIEEE(header[4:]); crc32.Update(check, crc32.IEEETable, text) !=
		binary.LittleEndian.Uint32(header[:]) {
		return "", version{}, errDamaged
	}
	return string(text[:keySize]), version{
		Time: int64(binary.LittleEndian.Uint64(header[12:])), By: int(binary.LittleEndian.Uint32(header[20:])),
		Deleted: header[24] == 1, Value: text[keySize:],
	}, nil
}

// appendRecord appends a version as it is in the file, and on the way between replicas.
func appendRecord(to []byte, key string, v version) []byte {
	start := len(to)
	to = append(to, 0, 0, 0, 0)
	to = binary.LittleEndian.AppendUint32(to, uint32(len(key)))
	to = binary.LittleEndian.AppendUint32(to, uint32(len(v.Value)))
	to = binary.LittleEndian.AppendUint64(to, uint64(v.Time))
	to = binary.LittleEndian.AppendUint32(to, uint32(v.By))
	deleted := byte(0)
	if v.Deleted {
		deleted = 1
	}
	to = append(append(append(to, deleted), key...), v.Value...)
	binary.LittleEndian.PutUint32(to[start:], crc32.ChecksumIEEE(to[start+4:]))
	return to
}

// put lets the later version win; the caller holds the lock.
func (t *table) put(key string, v version) {
	if t.keys[key].before(v) {
		t.keys[key] = v
	}
}

func (t *table) get(key string) version {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.keys[key]
}

// write returns when the version is on the disk. Only then is it read.
func (t *table) write(key string, v version) error {
	t.mu.Lock()
	if t.pending == nil {
		t.pending = &batch{done: make(chan struct{})}
	}
	mine := t.pending
	mine.bytes = appendRecord(mine.bytes, key, v)
	if !t.writing {
		t.writing = true
		go t.flush()
	}
	t.mu.Unlock()
	if <-mine.done; mine.err != nil {
		return mine.err
	}
	t.mu.Lock()
	t.put(key, v)
	t.mu.Unlock()
	return nil
}

// flush writes batches until there is none.
func (t *table) flush() {
	for {
		t.mu.Lock()
		now := t.pending
		if t.pending = nil; now == nil {
			t.writing = false
			t.mu.Unlock()
			return
		}
		err := t.failed
		t.mu.Unlock()
		if err == nil {
			_, err = t.file.Write(now.bytes)
		}
		if err == nil && t.sync {
			err = t.file.Sync()
		}
		if err != nil {
			t.mu.Lock()
			t.failed = err // whether what came before is on the disk is not known any more
			t.mu.Unlock()
		}
		now.err = err
		close(now.done)
	}
}

// size is how many keys there are, with those that were deleted.
func (t *table) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.keys)
}

func (t *table) close() { _ = t.file.Close() } // what was acknowledged is on the disk
