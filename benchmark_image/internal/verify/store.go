package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

// compare holds what clients were told of their writes against the store's own history: what was acknowledged was
// carried out once, at that revision, and what failed was not. Of writes without an answer it takes over what became of
// them. Without such a history those that a read has found took effect, one of the final state too.
func (a *all) compare(log *history.Log, result *Result) *finding {
	done := make(map[keys.ID][]history.Event)
	if log != nil {
		for _, e := range log.Events {
			if id, err := keys.ParseID(e.Value[:min(len(e.Value), keys.NameSize)]); err == nil && !a.other(id) {
				done[id] = append(done[id], e)
			}
		}
	}
	found := a.firstReads()
	var problem *finding
	for _, key := range a.order {
		operations := a.byKey[key]
		rescues := needsPuts(operations)
		for i := range operations {
			o := &operations[i]
			if !o.isWrite() {
				continue
			}
			events := done[o.Value]
			if log != nil && problem == nil {
				problem = a.against(o, events)
			}
			if o.Outcome != history.Unknown {
				o.dropped = o.Outcome == history.Failed
				continue
			}
			result.Unknown++
			first, wasRead := found[version{ID: o.Value}]
			switch {
			case wasRead || len(events) > 0:
				result.Resolved++
				// It took effect before the first read of it had ended.
				if o.until = math.MaxInt64; wasRead {
					o.until = max(first, o.Invoked)
				}
			case log != nil:
				result.Resolved++
				o.dropped = true
			case rescues && o.Op == history.Put:
				o.until = math.MaxInt64 // it may have made the key, or have come after everything else
			default:
				o.dropped = true // nobody saw it: it may have come after everything else
			}
		}
	}
	if problem != nil || log == nil {
		return problem
	}
	for id, events := range done {
		if a.writes[id] == nil {
			return a.violation("the store carried out a write that no client made",
				strings.TrimPrefix(events[0].Key, a.prefix), nil, texts(events))
		}
	}
	return nil
}

// needsPuts tells whether a key was missing at some time, and a transaction that needs it to exist was acknowledged: a
// put that nobody saw may lie in between.
func needsPuts(operations []operation) bool {
	missing, needed := false, false
	for i := range operations {
		o := &operations[i]
		missing = missing || o.Content == history.Absent || o.refused()
		needed = needed || o.Op == history.Txn && o.Outcome <= history.Wrong
	}
	return missing && needed
}

// against tells what is wrong with what the store carried out of a write.
func (a *all) against(o *operation, events []history.Event) *finding {
	what := ""
	switch acknowledged := o.Outcome <= history.Wrong; {
	case len(events) > 1:
		what = "the store carried out a write twice"
	case o.Outcome == history.Failed && len(events) > 0:
		what = "the store carried out a write that it had refused"
	case acknowledged && len(events) == 0:
		what = "the store lost a write that it had acknowledged"
	case acknowledged && events[0].Revision != o.Revision:
		what = "the store carried out a write at another revision than it had told"
	case len(events) > 0 && events[0].Key != a.prefix+o.Key:
		what = "the store carried out a write of another key"
	default:
		return nil
	}
	return a.violation(what, o.Key, []*history.Operation{o.Operation}, texts(events))
}

// revisions finds linearizable operations that were answered at a lower revision than a client had been told before
// they began. A write makes a revision of its own, so it is not answered at the same one either.
func (a *all) revisions() *finding {
	var ended, began []*history.Operation
	for i := range a.operations {
		if o := &a.operations[i]; o.Revision > 0 {
			ended = append(ended, o)
			if o.Op != history.SerializableGet {
				began = append(began, o)
			}
		}
	}
	slices.SortFunc(ended, func(x, y *history.Operation) int { return cmp.Compare(x.Completed, y.Completed) })
	slices.SortFunc(began, func(x, y *history.Operation) int { return cmp.Compare(x.Invoked, y.Invoked) })
	highest := &history.Operation{}
	for _, o := range began {
		for len(ended) > 0 && ended[0].Completed < o.Invoked {
			if ended[0].Revision > highest.Revision {
				highest = ended[0]
			}
			ended = ended[1:]
		}
		what := ""
		wrote := o.Op != history.Get && o.Outcome <= history.Wrong
		switch {
		case wrote && o.Revision <= highest.Revision:
			what = "a write was acknowledged at a revision that had been told before it began"
		case o.Revision < highest.Revision:
			what = "an operation was answered at a lower revision than had been told before it began"
		default:
			continue
		}
		return a.violation(what, o.Key, []*history.Operation{highest, o}, nil)
	}
	return nil
}

func texts(events []history.Event) (lines []string) {
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("revision %d: %s of %s", e.Revision, e.Key,
			e.Value[:min(len(e.Value), keys.NameSize)]))
	}
	return lines
}

// firstReads tells when the first read of each version had ended.
func (a *all) firstReads() map[version]int64 {
	first := make(map[version]int64)
	for i := range a.operations {
		o := &a.operations[i]
		if !read(o) || o.Content != history.Written {
			continue
		}
		v := a.version(o)
		if at, known := first[v]; !known || o.Completed < at {
			first[v] = o.Completed
		}
	}
	return first
}
