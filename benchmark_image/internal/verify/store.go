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

// compare holds the answers to writes against the store's own history: what was acknowledged was
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
				o.dropped = true // no read found it: it may have come after everything else
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
// put that no read found may lie in between.
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
		what = "the store carried out a write at another revision than it had reported"
	case len(events) > 0 && events[0].Key != a.prefix+o.Key:
		what = "the store carried out a write of another key"
	default:
		return nil
	}
	return a.violation(what, o.Key, []*history.Operation{o.Operation}, texts(events))
}

// revisions finds linearizable operations that were answered at a lower revision than that of an answer before
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
			what = "a write was acknowledged at a revision that had been reported before it began"
		case o.Revision < highest.Revision:
			what = "an operation was answered at a lower revision than had been reported before it began"
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

// Serializable is what is known of the reads that a member may answer from what it has.
type Serializable struct {
	Reads int `json:"reads"` // with an answer
	// Dated tells whether all acknowledged writes had revisions. Otherwise it is not known which reads were stale.
	Dated    bool    `json:"dated"`
	Stale    int     `json:"stale"`     // that found what an acknowledged write had replaced before they began
	MedianMs float64 `json:"median_ms"` // for how long it had been replaced, of the stale ones
	P99Ms    float64 `json:"p99_ms"`
	MaxMs    float64 `json:"max_ms"`
	// Switched is how often a client of another member than before was answered at a lower revision: each
	// member is as far as it is.
	Switched int `json:"switched_back"`
}

// session is what a client knows of a member.
type session struct {
	client int
	member uint64
}

// serializable judges serializable reads: a member never answers the same client at a lower revision than before.
func (a *all) serializable(result *Result) (problem *finding) {
	var reads []*history.Operation
	for i := range a.operations {
		if o := &a.operations[i]; o.Op == history.SerializableGet && read(o) {
			reads = append(reads, o)
		}
	}
	slices.SortStableFunc(reads, func(x, y *history.Operation) int {
		return int(min(max(x.Invoked-y.Invoked, -1), 1))
	})
	bySession, byClient := make(map[session]*history.Operation), make(map[int]*history.Operation)
	replaced, dated := a.replacements()
	var stale []int64
	for _, o := range reads {
		s := session{o.Client, o.Member}
		before := bySession[s]
		if before != nil && o.Revision < before.Revision && problem == nil {
			problem = a.violation("a member answered a client at a lower revision than before", o.Key,
				[]*history.Operation{before, o}, nil)
		}
		if last := byClient[o.Client]; last != nil && last.Member != o.Member && o.Revision < last.Revision {
			result.Serializable.Switched++
		}
		bySession[s], byClient[o.Client] = o, o
		if at := replaced[o.Key].reached(o.ModRevision + 1); at < o.Invoked {
			stale = append(stale, o.Invoked-at)
		}
	}
	slices.Sort(stale)
	figures := &result.Serializable
	figures.Reads, figures.Dated, figures.Stale = len(reads), dated, len(stale)
	result.Judged += len(reads)
	if len(stale) > 0 {
		at := func(share float64) float64 { return float64(stale[int(share*float64(len(stale)-1))]) / 1e6 }
		figures.MedianMs, figures.P99Ms, figures.MaxMs = at(0.5), at(0.99), at(1)
	}
	return problem
}

// replacements are the acknowledgements of the writes of each key; dated: there are no others, whose revisions are not
// known.
func (a *all) replacements() (r map[string]moments, dated bool) {
	r, dated = make(map[string]moments), true
	for i := range a.operations {
		o := &a.operations[i]
		if (o.Op == history.Put || o.Op == history.Txn) && o.Outcome == history.OK {
			if o.Revision > 0 {
				r[o.Key] = append(r[o.Key], moment{o.Revision, o.Completed})
			}
			dated = dated && o.Revision > 0
		}
	}
	for _, writes := range r {
		writes.sort()
	}
	return r, dated
}
