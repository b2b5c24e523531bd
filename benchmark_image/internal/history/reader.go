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

	"containernet-env/benchmark_image/internal/keys"
)

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
