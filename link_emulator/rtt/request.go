// Package rtt measures the round-trip time between hosts with ICMP echo (RFC 792), sent from inside their network
// namespaces.
//
// All pairs are measured concurrently, spread over the interval. A sample is the kernel's receive time stamp of the
// reply minus the time right before the request was sent, so a late wake-up of this process does not matter.
package rtt

import (
	"cmp"
	"time"

	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/probe"
)

// Ranges and defaults of a request.
const (
	defaultProbes     = 25
	maxProbes         = 10_000
	defaultWarmup     = 3
	maxWarmup         = 1_000
	defaultPayload    = 56 // as ping
	maxPayload        = 65_000
	defaultIntervalMS = 10
	maxIntervalMS     = 10_000
	defaultTimeoutMS  = 5_000
	maxTimeoutMS      = 600_000
)

// minSpacing is the minimum mean time between two probes of the whole run. A probe takes about 50 us of CPU time,
// nearly all of it in the kernel; at this pace fifty hosts (1225 pairs) leave most of two cores idle. The interval
// grows if necessary.
const minSpacing = 200 * time.Microsecond

// Frame bytes around the payload: Ethernet, IPv4 without options, ICMP.
const headerBytes = 14 + 20 + 8

// Request configures a measurement.
type Request struct {
	Hosts  []input.Host `json:"hosts"`
	Probes int          `json:"probes"` // per pair, after the warm-up
	// a pair with fewer answers continues, for at most the timeout from its first probe
	Answers      int `json:"answers"`
	Warmup       int `json:"warmup"`      // minimum number of probes before that; repeated until the first reply
	IntervalMS   int `json:"interval_ms"` // minimum between two probes of one pair
	PayloadBytes int `json:"payload_bytes"`
	TimeoutMS    int `json:"timeout_ms"` // for the first reply, and for each reply
}

func (r *Request) interval() time.Duration { return time.Duration(r.IntervalMS) * time.Millisecond }
func (r *Request) timeout() time.Duration  { return time.Duration(r.TimeoutMS) * time.Millisecond }

// Parse reads a request as JSON; see the README for its form. Unknown fields and values out of range are errors.
func Parse(data []byte) (Request, error) {
	r := Request{Probes: defaultProbes, Warmup: defaultWarmup, PayloadBytes: defaultPayload,
		IntervalMS: defaultIntervalMS, TimeoutMS: defaultTimeoutMS}
	if err := input.Decode(data, &r); err != nil {
		return r, err
	}
	return r, cmp.Or(
		input.Range("probes", r.Probes, 1, maxProbes),
		input.Range("answers", r.Answers, 0, maxProbes),
		input.Range("warmup", r.Warmup, 0, maxWarmup),
		input.Range("interval_ms", r.IntervalMS, 1, maxIntervalMS),
		input.Range("payload_bytes", r.PayloadBytes, probe.MarkBytes, maxPayload),
		input.Range("timeout_ms", r.TimeoutMS, 1, maxTimeoutMS),
		input.Hosts(r.Hosts),
	)
}
