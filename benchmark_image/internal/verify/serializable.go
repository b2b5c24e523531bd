package verify

import (
	"slices"

	"containernet-env/benchmark_image/internal/history"
)

// Serializable is what is known of the reads that a member may answer from what it has.
type Serializable struct {
	Reads int `json:"reads"` // with an answer
	// Dated tells whether all acknowledged writes told their revisions. Otherwise nobody knows which reads were stale.
	Dated    bool    `json:"dated"`
	Stale    int     `json:"stale"`     // that found what an acknowledged write had replaced before they began
	MedianMs float64 `json:"median_ms"` // for how long it had been replaced, of the stale ones
	P99Ms    float64 `json:"p99_ms"`
	MaxMs    float64 `json:"max_ms"`
	// Switched is how often a client that asked another member than before was answered at a lower revision: each
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
		if at := replaced.when(o); at < o.Invoked {
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

// replacements are the acknowledgements of the writes of each key.
type replacements map[string]moments

// replacements finds them; dated: there are no others, whose revisions nobody knows.
func (a *all) replacements() (r replacements, dated bool) {
	r, dated = make(replacements), true
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

// when tells when the version that a read found was replaced; math.MaxInt64: not that anybody was told.
func (r replacements) when(o *history.Operation) int64 {
	return r[o.Key].reached(o.ModRevision + 1)
}
