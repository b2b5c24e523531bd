// Package history keeps each operation of a load and its answer as compressed JSON lines, and reads it back.
package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/keys"
)

// Version is that of the form of the files.
const Version = 1

// Outcome is how an operation ended.
type Outcome uint8

const (
	OK      Outcome = iota // answered well
	Wrong                  // answered, and the answer was not what it must be
	Failed                 // it did not happen
	Unknown                // it may have happened, at any time after it was invoked
)

var outcomeNames = [...]string{"ok", "wrong", "failed", "unknown"}

func (o Outcome) String() string { return outcomeNames[o] }

// Op is what an operation does.
type Op uint8

const (
	Put Op = iota
	Get
	SerializableGet
	Txn // writes the key if it exists
)

var opNames = [...]string{"put", "get", "serializable get", "txn"}

func (o Op) String() string { return opNames[o] }

// Content is what a read found.
type Content uint8

const (
	Nothing Content = iota // no answer that tells
	Absent                 // no such key
	Written                // what Value names
	Foreign                // what no writer makes
)

// Operation is one operation of a load. Times are in ns since the history began.
type Operation struct {
	Client  int
	Op      Op
	Key     string  // without the prefix
	Content Content // of a read
	Value   keys.ID // that was written or found

	ModRevision int64  // of a read: at which the key was last written
	Revision    int64  // of the store, when it answered; 0: no answer
	Member      uint64 // that answered

	Invoked   int64
	Completed int64 // when its outcome was known
	Outcome   Outcome
}

// names of what a read found that was no value.
const (
	absent  = "-"
	foreign = "?"
)

// value is what the line has of it; empty for nothing.
func (o *Operation) value() string {
	if o.Op == Put || o.Op == Txn {
		return o.Value.String()
	}
	return [...]string{"", absent, o.Value.String(), foreign}[o.Content]
}

// append appends the line of an operation; none of its texts needs an escape.
func (o *Operation) append(b []byte) []byte {
	number := func(name string, n int64) {
		b = strconv.AppendInt(append(append(append(b, ',', '"'), name...), '"', ':'), n, 10)
	}
	text := func(name, value string) {
		b = append(append(append(append(b, ',', '"'), name...), '"', ':', '"'), value...)
		b = append(b, '"')
	}
	b = strconv.AppendInt(append(b, `{"client":`...), int64(o.Client), 10)
	text("op", o.Op.String())
	text("key", o.Key)
	if value := o.value(); value != "" {
		text("value", value)
	}
	if o.ModRevision != 0 {
		number("mod_revision", o.ModRevision)
	}
	if o.Revision != 0 {
		number("revision", o.Revision)
	}
	if o.Member != 0 {
		text("member", strconv.FormatUint(o.Member, 16))
	}
	number("invoked", o.Invoked)
	number("completed", o.Completed)
	text("outcome", o.Outcome.String())
	return append(b, '}', '\n')
}

// Header is the first line of a history.
type Header struct {
	Version int    `json:"history"`
	BeganNs int64  `json:"began_ns"` // on CLOCK_MONOTONIC
	Prefix  string `json:"prefix"`   // of every key
}

// Footer is the last line.
type Footer struct {
	Operations int `json:"operations"` // that the history holds
	Lost       int `json:"lost"`       // that it does not, because they could not be written fast enough
}

const (
	// batchSize is how many operations are handed over at once, and maxBatches how many of those wait at most: 160
	// bytes each, so that a writer that is held up for a second loses nothing at 250,000 operations/s.
	batchSize  = 1024
	maxBatches = 256
)

// Entry is an operation as it is recorded: nothing is formatted yet. Its times are still those of CLOCK_MONOTONIC.
type Entry struct {
	Operation
	KeyNumber uint64
}

// Writer writes a history from a goroutine of its own. Add never waits for it.
type Writer struct {
	header  Header
	keySize int
	full    chan []Entry
	free    chan []Entry
	over    sync.WaitGroup
	err     error // of the goroutine, valid after it has ended

	mu    sync.Mutex
	batch []Entry
	held  Footer
}

// NewWriter begins a history of generated keys of the given prefix and size, at a time of CLOCK_MONOTONIC.
func NewWriter(to io.Writer, began time.Duration, prefix string, keySize int) *Writer {
	w := &Writer{
		header: Header{Version, int64(began), prefix}, keySize: keySize, batch: make([]Entry, 0, batchSize),
		full: make(chan []Entry, maxBatches), free: make(chan []Entry, maxBatches),
	}
	w.over.Go(func() { w.err = w.write(to) })
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
		w.held.Operations += len(w.batch)
	default:
		w.held.Lost += len(w.batch)
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
	w.held.Operations += len(w.batch)
	w.batch = nil
	w.mu.Unlock()
	close(w.full)
	w.over.Wait()
	return w.held, w.err
}

// newGzip compresses as fast as it can.
func newGzip(to io.Writer) *gzip.Writer {
	packed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		panic(err) // there is no such level
	}
	return packed
}

func (w *Writer) write(to io.Writer) error {
	packed := newGzip(to)
	lines := json.NewEncoder(packed)
	failed := lines.Encode(w.header)
	var text, key []byte
	for batch := range w.full {
		text = text[:0]
		for i := range batch {
			e := &batch[i]
			e.Invoked, e.Completed = e.Invoked-w.header.BeganNs, e.Completed-w.header.BeganNs
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
		footer := w.held
		w.mu.Unlock()
		failed = lines.Encode(footer)
	}
	if err := errors.Join(failed, packed.Close()); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}

// maxLine is more than any line has, in bytes.
const maxLine = 64 << 10

// ErrIncomplete is the error about a history that lacks operations: its run was cut off, or the writer did not keep up.
var ErrIncomplete = errors.New("the history is incomplete")

// line is an operation as JSON has it.
type line struct {
	Client      int    `json:"client"`
	Op          string `json:"op"`
	Key         string `json:"key"`
	Value       string `json:"value"`
	ModRevision int64  `json:"mod_revision"`
	Revision    int64  `json:"revision"`
	Member      string `json:"member"`
	Invoked     int64  `json:"invoked"`
	Completed   int64  `json:"completed"`
	Outcome     string `json:"outcome"`

	Operations *int `json:"operations"` // of the footer
	Lost       int  `json:"lost"`
}

// Read reads a whole history and passes each operation to take. The error is ErrIncomplete where operations are
// missing.
func Read(from io.Reader, take func(Operation)) (Header, error) {
	var header Header
	var footer *Footer
	count := 0
	err := readLines(from, func(number int, text []byte) error {
		if number == 0 {
			if err := json.Unmarshal(text, &header); err != nil || header.Version != Version {
				return fmt.Errorf("it does not begin as a history of version %d", Version)
			}
			return nil
		}
		if footer != nil {
			return errors.New("something follows after its end")
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d: %w", number+1, err)
		}
		if l.Operations != nil {
			footer = &Footer{Operations: *l.Operations, Lost: l.Lost}
			return nil
		}
		o, err := l.operation()
		if err != nil {
			return fmt.Errorf("line %d: %w", number+1, err)
		}
		count++
		take(o)
		return nil
	})
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && footer == nil:
		return header, fmt.Errorf("%w: it was cut off after %d operations", ErrIncomplete, count)
	case err != nil:
		return header, fmt.Errorf("read the history: %w", err)
	case footer.Lost > 0 || footer.Operations != count:
		return header, fmt.Errorf("%w: it holds %d of %d operations, the writer could not keep up", ErrIncomplete, count,
			footer.Operations+footer.Lost)
	}
	return header, nil
}

func (l *line) operation() (Operation, error) {
	o := Operation{
		Client: l.Client, Key: l.Key, ModRevision: l.ModRevision, Revision: l.Revision,
		Invoked: l.Invoked, Completed: l.Completed,
	}
	op, outcome := slices.Index(opNames[:], l.Op), slices.Index(outcomeNames[:], l.Outcome)
	if op < 0 || outcome < 0 {
		return o, fmt.Errorf("an operation %.50q with the outcome %.50q", l.Op, l.Outcome)
	}
	o.Op, o.Outcome = Op(op), Outcome(outcome)
	if l.Completed < l.Invoked {
		return o, errors.New("an operation that was completed before it was invoked")
	}
	var err error
	if l.Member != "" {
		if o.Member, err = strconv.ParseUint(l.Member, 16, 64); err != nil {
			return o, err
		}
	}
	switch l.Value {
	case "":
	case absent:
		o.Content = Absent
	case foreign:
		o.Content = Foreign
	default:
		o.Content = Written
		o.Value, err = keys.ParseID(l.Value)
	}
	return o, err
}

// Event is a write that the store says it carried out, or of a final state the last one of a key.
type Event struct {
	Revision int64  `json:"revision"` // 0: the store has none
	Key      string `json:"key"`      // with its prefix
	Value    string `json:"value"`    // how it begins
	Absent   bool   `json:"-"`        // of a final state: there is no such key
}

// Log is what the store itself has of a run.
type Log struct {
	Events []Event
	Whole  bool // nothing that was written since the run began is missing
	Final  bool // they are what each key held after the run, and nothing of that is missing
}

// ReadLog reads the store's own history, or its final state: lines with an event each, and a last one that tells what
// they are, and whether that is all.
func ReadLog(from io.Reader) (*Log, error) {
	log := &Log{}
	err := readLines(from, func(number int, text []byte) error {
		var l struct {
			Event
			Value *string `json:"value"`
			Whole *bool   `json:"whole"`
			Final bool    `json:"final"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d: %w", number+1, err)
		}
		if l.Whole != nil {
			log.Whole, log.Final = *l.Whole, l.Final
			return nil
		}
		if l.Absent = l.Value == nil; !l.Absent {
			l.Event.Value = *l.Value
		}
		log.Events = append(log.Events, l.Event)
		return nil
	})
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("read the store's history: %w", err)
	}
	return log, nil
}

func readLines(from io.Reader, take func(number int, text []byte) error) error {
	packed, err := gzip.NewReader(from)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	lines := bufio.NewReaderSize(packed, maxLine)
	for number := 0; ; number++ {
		text, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(text) == 0:
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if err := take(number, text); err != nil {
			return err
		}
	}
}
