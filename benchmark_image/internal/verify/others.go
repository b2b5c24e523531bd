package verify

import (
	"cmp"
	"math"
	"slices"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

// version is what a key holds by one write.
type version struct {
	keys.ID
	// again is the revision at which a value of the data set was written during the load, else 0: each such write is
	// one of its own.
	again int64
}

// origin tells when a version was written that no write of the load made.
type origin int

const (
	earlier origin = iota // than the load
	during                // the load, by an earlier run whose write came late
	either
)

// others is what is known of versions that no write of the load made.
type others struct {
	oldest  int64              // the lowest revision of a linearizable answer, or of a version of this load
	dates   moments            // when clients knew of a revision, where that is of use
	origins map[version]origin // but for earlier ones
	unsure  map[string]bool    // keys that held one of either origin
	before  map[string]keys.ID // by key: the first one that a linearizable read found, but for late ones
}

// findOthers finds out of each such version when it was written.
//
// Revisions count the writes to all keys. So one of a higher revision than an answer, or than a version of this load,
// was written during the load. One of none of these was there before, if all answers about its key tell revisions.
// Otherwise a version of another run may be either. The data set is taken for what was there before unless its revision
// is a later one: nothing else tells one write of it from another, and without that no lost write would be found.
//
// Of the final state, a value that does not read as the name of a write is the data set's, or was what the key held
// before; so is one whose revision is not a later one. An empty one can only be what the key held before.
func (a *all) findOthers() {
	a.oldest, a.origins = math.MaxInt64, make(map[version]origin)
	a.unsure, a.before = make(map[string]bool), make(map[string]keys.ID)
	undated := make(map[string]bool) // keys about which an answer tells no revision
	for i := range a.operations {
		o := &a.operations[i]
		if o.Op != history.SerializableGet && !atEnd(o) {
			if o.Revision > 0 {
				a.oldest = min(a.oldest, o.Revision)
			} else if read(o) || o.Op != history.Get && o.Outcome <= history.Wrong {
				undated[o.Key] = true
			}
		}
		if read(o) && a.writes[o.Value] != nil && o.ModRevision > 0 {
			a.oldest = min(a.oldest, o.ModRevision)
		}
	}
	for i := range a.operations {
		o := &a.operations[i]
		if o.Content != history.Written || !read(o) || !a.other(o.Value) || o.Value == empty {
			continue
		}
		v := a.version(o)
		switch {
		case o.ModRevision > a.oldest:
			a.origins[v] = during
			continue
		case v.ID != (keys.ID{}) && (undated[o.Key] || o.ModRevision == 0) && a.origins[v] != during:
			a.origins[v], a.unsure[o.Key] = either, true
		case atEnd(o):
			o.Value = a.before[o.Key]
			continue
		}
		if _, known := a.before[o.Key]; !known && o.Op == history.Get && !atEnd(o) {
			a.before[o.Key] = o.Value
		}
	}
	if len(a.origins) > 0 {
		a.findDates()
	}
}

// findDates finds out when clients knew of revisions: at the latest when a write was acknowledged that a read tells one
// of, or when an answer had come that tells it.
func (a *all) findDates() {
	note := func(revision, completed int64) {
		if revision > 0 {
			a.dates = append(a.dates, moment{revision, completed})
		}
	}
	for i := range a.operations {
		o := &a.operations[i]
		note(max(o.Revision, o.ModRevision), o.Completed)
		if write := a.writes[o.Value]; read(o) && write != nil && write.Outcome <= history.Wrong {
			note(o.ModRevision, write.Completed)
		}
	}
	a.dates.sort()
}

// version tells which one a read found, or a write made.
func (a *all) version(o *history.Operation) version {
	if read(o) && o.Value == (keys.ID{}) && o.ModRevision > a.oldest {
		return version{again: o.ModRevision}
	}
	return version{ID: o.Value}
}

// moment is when a client knew of a revision.
type moment struct{ revision, completed int64 }

// moments are those by revision, once they are sorted; completed is the first one of a revision and all higher ones.
type moments []moment

func (m moments) sort() {
	slices.SortFunc(m, func(x, y moment) int { return cmp.Compare(x.revision, y.revision) })
	for i := len(m) - 2; i >= 0; i-- {
		m[i].completed = min(m[i].completed, m[i+1].completed)
	}
}

// reached tells by when the store had got to a revision; math.MaxInt64: nobody knew, or it is 0.
func (m moments) reached(revision int64) int64 {
	next, _ := slices.BinarySearchFunc(m, revision, func(x moment, revision int64) int {
		return cmp.Compare(x.revision, revision)
	})
	if revision == 0 || next == len(m) {
		return math.MaxInt64
	}
	return m[next].completed
}
