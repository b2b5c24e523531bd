// Package report computes the figures of a run from its records, and writes them as text in the form of
// etcd's benchmark tool or as JSON.
package report

import (
	"encoding/json"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/load"
)

// Schema is the version of the JSON form of Result.
const Schema = 6

// Result is the result of a benchmark.
type Result struct {
	Schema      int      `json:"schema"`
	Operation   string   `json:"operation"` // put, range, mixed or txn
	Connections int      `json:"connections"`
	Clients     int      `json:"clients"`
	Endpoints   []string `json:"endpoints"`
	Leader      *string  `json:"leader"`   // when the connections were opened
	Reason      *string  `json:"reason"`   // why the run is not as configured; null if it is
	BeganNs     *int64   `json:"began_ns"` // the start of the measurement, on CLOCK_MONOTONIC; null if nothing was measured

	Figures

	Configured    json.RawMessage `json:"configured"`        // the body of an HTTP request for the same load, defaults filled in
	Warmup        *Warmup         `json:"warmup"`            // null if none was configured
	LeaderChanges []LeaderChange  `json:"leader_changes"`    // moves of the load
	History       *History        `json:"history,omitempty"` // absent if none was configured

	epoch time.Time // of the run
}

// Warmup is the load before the measurement; it is in no other figure.
type Warmup struct {
	OK        int     `json:"ok"`
	Failed    int     `json:"failed"`    // did not happen
	Unknown   int     `json:"unknown"`   // may have happened
	Abandoned int     `json:"abandoned"` // of these, in flight when it ended early
	TotalS    float64 `json:"total_s"`
}

// LeaderChange is a move of the load to another leader.
type LeaderChange struct {
	AtS    float64 `json:"at_s"` // since the start
	Leader string  `json:"leader"`
}

// History is what the file with the history holds.
type History struct {
	Operations int `json:"operations"`
	Lost       int `json:"lost"` // operations that it lacks: the writer could not keep up
}

// Progress is one line of benchmark-client --progress json.
type Progress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Errors int `json:"errors"`
	Warmup int `json:"warmup_done"` // requests of the warm-up that have an outcome
}

// Setting is the input of New.
type Setting struct {
	Operation   string
	Connections int
	Endpoints   []string
	Clients     int
	Rate        float64 // 0: a closed loop
	Requests    int     // configured, or by the schedule; 0: bounded by a duration only
	Leader      string
	Reason      string
	Configured  json.RawMessage
	Warmup      *load.Result
	Run         *load.Result // nil: nothing was measured
}

// New computes the figures.
func New(setting Setting) *Result {
	r := &Result{
		Schema:        Schema,
		Operation:     setting.Operation,
		Connections:   setting.Connections,
		Clients:       setting.Clients,
		Endpoints:     setting.Endpoints,
		Leader:        optional(setting.Leader),
		Reason:        optional(setting.Reason),
		Configured:    setting.Configured,
		LeaderChanges: []LeaderChange{},
	}
	run, rate := setting.Run, setting.Rate
	if run == nil {
		run, rate = &load.Result{}, 0
	}
	r.epoch = run.Epoch
	if run.BeganNs > 0 {
		r.BeganNs = &run.BeganNs
	}
	r.Figures = newFigures(run, setting.Requests, rate, setting.Operation == "mixed")
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

// AddLeaderChange records a move of the load at the given time; one before the measurement is ignored.
func (r *Result) AddLeaderChange(at time.Time, leader string) {
	if !r.epoch.IsZero() {
		r.LeaderChanges = append(r.LeaderChanges, LeaderChange{at.Sub(r.epoch).Seconds(), leader})
	}
}

// AddHistory tells of the history that was kept; err is why it is not whole.
func (r *Result) AddHistory(kept history.Footer, err error) {
	r.History = &History{Operations: kept.Operations, Lost: kept.Lost}
	if err != nil && r.Reason == nil {
		r.Reason = optional(err.Error())
	}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
