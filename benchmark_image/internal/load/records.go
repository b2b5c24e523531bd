package load

import "sync/atomic"

const (
	// firstChunk is how many records are allocated at once; more are allocated when they are needed, because a run
	// that is bounded by its duration does not know how many there will be.
	firstChunk = 1 << 18
	chunk      = 1 << 16
)

// records holds one record for each request. Different ones may be written at the same time.
type records struct {
	first []Record
	rest  []atomic.Pointer[[chunk]Record]
}

func newRecords(total int) records {
	rest := max(total-firstChunk, 0)
	return records{
		first: make([]Record, min(total, firstChunk)),
		rest:  make([]atomic.Pointer[[chunk]Record], (rest+chunk-1)/chunk),
	}
}

func (r *records) at(number int) *Record {
	if number < len(r.first) {
		return &r.first[number]
	}
	number -= len(r.first)
	place := &r.rest[number/chunk]
	c := place.Load()
	if c == nil {
		place.CompareAndSwap(nil, new([chunk]Record))
		c = place.Load()
	}
	return &c[number%chunk]
}

// all gives the records up to the last chunk that holds one.
func (r *records) all() []Record {
	used := len(r.rest)
	for used > 0 && r.rest[used-1].Load() == nil {
		used--
	}
	if used == 0 {
		return r.first
	}
	all := append(make([]Record, 0, len(r.first)+used*chunk), r.first...)
	for i := range used {
		if c := r.rest[i].Load(); c != nil {
			all = append(all, c[:]...)
		} else {
			all = append(all, make([]Record, chunk)...)
		}
	}
	return all
}
