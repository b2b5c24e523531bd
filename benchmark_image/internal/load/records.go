package load

import "time"

// Sink takes the outcomes of a measurement while it goes on. Those of a warm-up are not among them.
type Sink interface {
	// Begin tells when the measurement began, before its first outcome; where there is none, it is not called.
	Begin(epoch time.Time)
	// Add takes the outcome of one request, whose number counts from the measurement's first one. Calls never overlap,
	// and outcomes come in the order in which they happened.
	Add(number int, outcome Record)
}

// records is the Sink of a run that is given none: it keeps every record, so its memory grows with the run.
type records []Record

// firstRecords is how many records are allocated at once; more are allocated when they are needed.
const firstRecords = 1 << 18

func newRecords(total int) *records {
	r := make(records, min(total, firstRecords))
	return &r
}

// Begin implements Sink.
func (*records) Begin(time.Time) {}

// Add implements Sink.
func (r *records) Add(number int, outcome Record) {
	if missing := number + 1 - len(*r); missing > 0 {
		*r = append(*r, make(records, missing)...)
	}
	(*r)[number] = outcome
}
