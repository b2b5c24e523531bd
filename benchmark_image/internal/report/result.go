// Package report computes the figures of a run from the outcomes of its requests, and writes them as text in the form
// of etcd's benchmark tool or as JSON.
package report

import (
	"encoding/json"
	"time"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/load"
)

// Schema is the version of the JSON form of Result.
const Schema = 9

// Result is the result of a benchmark.
type Result struct {
	Schema int `json:"schema"`
	// by which benchmark-server keeps the result; null in the output of the commands
	Job         *string  `json:"job"`
	Operation   string   `json:"operation"` // put, range, mixed or txn
	Connections int      `json:"connections"`
	Clients     int      `json:"clients"`
	Endpoints   []string `json:"endpoints"`
	Leader      *string  `json:"leader"` // when the connections were opened
	Reason      *string  `json:"reason"` // why the run is not as configured; null if it is
	// the start of the measurement, on CLOCK_MONOTONIC; null if nothing was measured
	BeganNs *int64 `json:"began_ns"`

	Figures

	// the body of an HTTP request for the same load, defaults filled in
	Configured    json.RawMessage `json:"configured"`
	Warmup        *Warmup         `json:"warmup"`            // null if none was configured
	LeaderChanges []LeaderChange  `json:"leader_changes"`    // moves of the load
	History       *history.Footer `json:"history,omitempty"` // absent if none was configured

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

// Progress is one line of benchmark-client --progress json, and part of what benchmark-server says.
type Progress struct {
	Done   int `json:"done"`
	Total  int `json:"total"`
	Errors int `json:"errors"`
	Warmup int `json:"warmup_done"` // requests of the warm-up that have an outcome
	// when the measurement began, on CLOCK_MONOTONIC; null before
	BeganNs *int64 `json:"began_ns"`
}

// Complete computes the figures of a result that says so far what was configured: of a run, and of what was recorded of
// it. The zero value of a run is of one that did not begin.
func (r *Result) Complete(run load.Result, recorded *Recorder) {
	r.Schema, r.LeaderChanges = Schema, []LeaderChange{}
	r.SetReason(run.Reason)
	if w := run.Warmup; w != nil {
		r.Warmup = &Warmup{w.OK, w.Failed, w.Unknown + w.Abandoned, w.Abandoned, w.Took.Seconds()}
	}
	if !run.Measured {
		run = load.Result{}
	}
	if recorded == nil {
		recorded = NewRecorder(Plan{})
	}
	r.epoch = run.Epoch
	if run.BeganNs > 0 {
		r.BeganNs = &run.BeganNs
	}
	r.Figures = newFigures(&run, recorded, r.Requests, r.Operation == "mixed")
}

// SetReason tells why the run is not as configured, unless it tells that already; empty: it is.
func (r *Result) SetReason(reason string) {
	if reason != "" && r.Reason == nil {
		r.Reason = &reason
	}
}

// AddLeaderChange records a move of the load at the given time; one before the measurement is ignored.
func (r *Result) AddLeaderChange(at time.Time, leader string) {
	if !r.epoch.IsZero() {
		r.LeaderChanges = append(r.LeaderChanges, LeaderChange{at.Sub(r.epoch).Seconds(), leader})
	}
}

// AddHistory tells of the history that was kept; err is why it is not whole.
func (r *Result) AddHistory(kept history.Footer, err error) {
	if r.History = &kept; err != nil {
		r.SetReason(err.Error())
	}
}
