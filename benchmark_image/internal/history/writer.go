package history

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/benchmark_image/internal/keys"
)

const (
	// batchSize is how many operations are handed over at once, and maxBatches how many of those wait at most: 160
	// bytes each, so that a writer that is held up for a second loses nothing at 250,000 operations/s.
	batchSize  = 1024
	maxBatches = 256
)

// Entry is an operation as it is recorded: nothing is formatted yet.
type Entry struct {
	Operation
	KeyNumber uint64
	Start     time.Time // Invoked and Completed count from here
}

// Writer writes a history from a goroutine of its own. Add never waits for it.
type Writer struct {
	epoch   time.Time
	keySize int
	full    chan []Entry
	free    chan []Entry
	over    sync.WaitGroup
	err     error // of the goroutine, valid after it has ended

	mu    sync.Mutex
	batch []Entry
	kept  int
	lost  int
}

// NewWriter begins a history of generated keys of the given prefix and size.
func NewWriter(to io.Writer, prefix string, keySize int) *Writer {
	w := &Writer{
		epoch: time.Now(), keySize: keySize, batch: make([]Entry, 0, batchSize),
		full: make(chan []Entry, maxBatches), free: make(chan []Entry, maxBatches),
	}
	var now unix.Timespec
	header := Header{Version: Version, Prefix: prefix}
	// It fails for no clock that exists.
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		header.BeganNs = now.Nano()
	}
	w.over.Go(func() { w.err = w.write(to, header) })
	return w
}

// Add records an operation. Where the writer is behind by more than it has room for, the operation is lost, and
// counted.
func (w *Writer) Add(e Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batch = append(w.batch, e); len(w.batch) == batchSize {
		w.hand()
	}
}

// hand gives the batch to the goroutine, and takes another one.
func (w *Writer) hand() {
	select {
	case w.full <- w.batch:
		w.kept += len(w.batch)
	default:
		w.lost += len(w.batch)
		w.batch = w.batch[:0]
		return
	}
	select {
	case w.batch = <-w.free:
	default:
		w.batch = make([]Entry, 0, batchSize)
	}
}

// Close writes what is left, and tells how many operations the history holds and lacks.
func (w *Writer) Close() (Footer, error) {
	w.mu.Lock()
	w.full <- w.batch // the run is over: here it may take its time
	w.kept += len(w.batch)
	w.batch = nil
	w.mu.Unlock()
	close(w.full)
	w.over.Wait()
	return Footer{Operations: w.kept, Lost: w.lost}, w.err
}

// newGzip compresses as fast as it can.
func newGzip(to io.Writer) *gzip.Writer {
	packed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		panic(err) // there is no such level
	}
	return packed
}

func (w *Writer) write(to io.Writer, header Header) error {
	packed := newGzip(to)
	lines := json.NewEncoder(packed)
	failed := lines.Encode(header)
	var text, key []byte
	for batch := range w.full {
		text = text[:0]
		for i := range batch {
			e := &batch[i]
			offset := int64(e.Start.Sub(w.epoch))
			e.Invoked, e.Completed = e.Invoked+offset, e.Completed+offset
			key = keys.Append(key[:0], e.KeyNumber, w.keySize)
			e.Key = string(key)
			text = e.append(text)
		}
		if failed == nil {
			_, failed = packed.Write(text)
		}
		select {
		case w.free <- batch[:0]:
		default:
		}
	}
	if failed == nil {
		w.mu.Lock()
		footer := Footer{Operations: w.kept, Lost: w.lost}
		w.mu.Unlock()
		failed = lines.Encode(footer)
	}
	if err := errors.Join(failed, packed.Close()); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}
