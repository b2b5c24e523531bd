// Package report computes the figures of a run from its records, and writes them as text in the form of
// etcd's benchmark tool or as JSON.
package report

import (
	"time"

	"containernet-env/benchmark_image/internal/load"
)

// Schema is the version of the JSON form of Result. All fields of version 1 still have the same meaning.
const Schema = 3

// Result is what a benchmark measured: the figures of all its steps together and, if there are several, of each.
type Result struct {
	Schema      int      `json:"schema"`
	Operation   string   `json:"operation"` // put, range, mixed or txn
	Connections int      `json:"connections"`
	Clients     int      `json:"clients"` // the most of all steps
	Endpoints   []string `json:"endpoints"`
	Leader      *string  `json:"leader"` // when the connections were opened
	Reason      *string  `json:"reason"` // why the run is not what was asked for; null if it is

	Figures

	Asked         *Asked         `json:"asked"`
	Warmup        *Warmup        `json:"warmup"`         // null if none was asked for
	LeaderChanges []LeaderChange `json:"leader_changes"` // moves of the load
	Steps         []Step         `json:"steps"`          // null if only one load was asked for
}

// Asked is what a benchmark was asked to do, for the record.
type Asked struct {
	Total     *int     `json:"total"` // of each step; null: bounded by the duration
	DurationS *float64 `json:"duration_s"`
	RatePerS  *float64 `json:"rate_per_s"` // null: a closed loop, or steps of the rate
	Arrival   *string  `json:"arrival"`    // null: a closed loop
	Target    string   `json:"target"`     // cluster, leader or the address of one member
	Seed      int64    `json:"seed"`
	KeyOrder  *string  `json:"key_order"` // null: keys are not generated
	KeySpace  *int     `json:"key_space"`
	PutRatio  *float64 `json:"put_ratio"` // null: all requests are of one kind
	Verify    bool     `json:"verify"`
	Key       *string  `json:"key"`       // null: keys are generated
	EndRange  *string  `json:"end_range"` // null: keys are generated
	Prefix    bool     `json:"prefix"`
	SpanKeys  *int     `json:"span_keys"` // null: one generated key, or a named span
	Limit     *int64   `json:"limit"`     // null: none
	KeysOnly  bool     `json:"keys_only"`
	CountOnly bool     `json:"count_only"`
}

// Warmup is the load ahead of the first step, which is in no other figure.
type Warmup struct {
	OK        int     `json:"ok"`
	Failed    int     `json:"failed"`    // did not happen
	Unknown   int     `json:"unknown"`   // may have happened
	Abandoned int     `json:"abandoned"` // of these, under way when it ended early
	TotalS    float64 `json:"total_s"`
}

// LeaderChange is a move of the load to another leader.
type LeaderChange struct {
	AtS    float64 `json:"at_s"` // since the start of the first step
	Leader string  `json:"leader"`
}

// Step is one of several loads.
type Step struct {
	Clients int `json:"clients"`
	Figures
}

// Progress is one line of benchmark-client --progress json.
type Progress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Errors int `json:"errors"`
}

// Setting is what a report says about a run beside its records.
type Setting struct {
	Operation   string
	Connections int
	Endpoints   []string
	Leader      string
	Reason      string
	Asked       *Asked
	Warmup      *load.Result
}

// Part is one load of a benchmark.
type Part struct {
	Requests int // asked for; 0: bounded by its duration only
	Clients  int
	Rate     float64 // 0: a closed loop
	Run      load.Result
}

// New computes the figures. Without parts nothing was measured.
func New(setting Setting, asked int, parts []Part) *Result {
	r := &Result{
		Schema:        Schema,
		Operation:     setting.Operation,
		Connections:   setting.Connections,
		Endpoints:     setting.Endpoints,
		Leader:        optional(setting.Leader),
		Reason:        optional(setting.Reason),
		Asked:         setting.Asked,
		LeaderChanges: []LeaderChange{},
	}
	mixed := setting.Operation == "mixed"
	r.Figures = newFigures(parts, mixed, maxRows)
	r.Requests = max(asked, r.Requests)
	for _, part := range parts {
		r.Clients = max(r.Clients, part.Clients)
		if len(parts) > 1 {
			rows := max(maxRows/len(parts), minRows)
			r.Steps = append(r.Steps, Step{part.Clients, newFigures([]Part{part}, mixed, rows)})
		}
	}
	if w := setting.Warmup; w != nil {
		all := newSamples(len(w.Records))
		for _, record := range w.Records {
			if record.Outcome() != load.NotSent {
				all.add(record)
			}
		}
		r.Warmup = &Warmup{len(all.response), all.failed, all.unknown, all.abandoned, w.Took.Seconds()}
	}
	return r
}

// AddLeaderChange records a move of the load at the given time.
func (r *Result) AddLeaderChange(at time.Time, leader string, parts []Part) {
	if len(parts) > 0 {
		r.LeaderChanges = append(r.LeaderChanges, LeaderChange{at.Sub(parts[0].Run.Epoch).Seconds(), leader})
	}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
