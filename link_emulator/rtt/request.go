// Package rtt measures the round-trip time between hosts with ICMP echo (RFC 792), sent from inside their network
// namespaces.
//
// All pairs are measured concurrently, spread over the interval. A sample is the kernel's receive time stamp of the
// reply minus the time right before the request was sent, so a late wake-up of this process does not matter.
package rtt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Ranges and defaults of a request.
const (
	maxHosts       = 256
	defaultProbes  = 25
	maxProbes      = 10_000
	defaultWarmup  = 3
	maxWarmup      = 1_000
	defaultPayload = 56 // as ping
	maxPayload     = 65_000
	maxInterval    = 10 * time.Second
	maxTimeout     = 10 * time.Minute
	maxNameBytes   = 128
	maxPID         = 1 << 22
)

// minSpacing is the minimum mean time between two probes of the whole run. A probe takes about 50 us of CPU time,
// nearly all of it in the kernel; at this pace fifty hosts (1225 pairs) leave most of two cores idle. The interval
// grows if necessary.
const minSpacing = 200 * time.Microsecond

// Frame bytes around the payload: Ethernet, IPv4 without options, ICMP.
const headerBytes = 14 + 20 + 8

// Host is one end of pairs.
type Host struct {
	Name string     `json:"name"`
	PID  int        `json:"pid"` // a process in the host's network namespace
	IP   netip.Addr `json:"ip"`
}

// Request configures a measurement.
type Request struct {
	Hosts  []Host `json:"hosts"`
	Probes int    `json:"probes"` // per pair, after the warm-up
	// a pair with fewer answers continues, for at most Timeout from its first probe
	Answers      int           `json:"answers"`
	Warmup       int           `json:"warmup"` // minimum number of probes before that; repeated until the first reply
	Interval     time.Duration `json:"-"`      // minimum between two probes of one pair
	PayloadBytes int           `json:"payload_bytes"`
	Timeout      time.Duration `json:"-"` // for the first reply, and for each reply
}

// Parse reads a request as JSON; see the README for its form. Unknown fields and values out of range are errors.
func Parse(data []byte) (Request, error) {
	r := Request{Probes: defaultProbes, Warmup: defaultWarmup, PayloadBytes: defaultPayload}
	given := struct {
		*Request
		IntervalMS int `json:"interval_ms"`
		TimeoutMS  int `json:"timeout_ms"`
	}{&r, 10, 5000}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		return r, err
	}
	for _, number := range [...]struct {
		field          string
		got, low, high int
	}{
		{"probes", r.Probes, 1, maxProbes},
		{"answers", r.Answers, 0, maxProbes},
		{"warmup", r.Warmup, 0, maxWarmup},
		{"interval_ms", given.IntervalMS, 1, int(maxInterval.Milliseconds())},
		{"payload_bytes", r.PayloadBytes, markBytes, maxPayload},
		{"timeout_ms", given.TimeoutMS, 1, int(maxTimeout.Milliseconds())},
	} {
		if number.got < number.low || number.got > number.high {
			return r, fmt.Errorf("%s: got %d, allowed: %d to %d", number.field, number.got, number.low, number.high)
		}
	}
	r.Interval, r.Timeout = time.Duration(given.IntervalMS)*time.Millisecond,
		time.Duration(given.TimeoutMS)*time.Millisecond
	return r, checkHosts(r.Hosts)
}

func checkHosts(hosts []Host) error {
	if len(hosts) < 2 || len(hosts) > maxHosts {
		return fmt.Errorf("hosts: got %d, allowed: 2 to %d", len(hosts), maxHosts)
	}
	names, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for i, host := range hosts {
		switch {
		case host.Name == "" || len(host.Name) > maxNameBytes:
			return fmt.Errorf("hosts[%d].name: got %.60q, allowed: 1 to %d bytes", i, host.Name, maxNameBytes)
		case names[host.Name]:
			return fmt.Errorf("hosts[%d].name: there are two hosts %q", i, host.Name)
		case host.PID < 1 || host.PID > maxPID:
			return fmt.Errorf("hosts[%d].pid: got %d, allowed: 1 to %d", i, host.PID, maxPID)
		case !host.IP.Is4():
			return fmt.Errorf("hosts[%d].ip: got %v, allowed: an IPv4 address", i, host.IP)
		case addresses[host.IP]:
			return fmt.Errorf("hosts[%d].ip: there are two hosts with %s", i, host.IP)
		}
		names[host.Name], addresses[host.IP] = true, true
	}
	return nil
}
