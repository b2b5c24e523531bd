// Package rtt measures the round-trip time between hosts with ICMP echo (RFC 792), sent from inside their network namespaces.
//
// All pairs are measured at once, each at its own moment within the interval. A sample is the kernel's receive time stamp of the
// reply less the time just before the request was sent, so how late this process wakes up does not matter.
package rtt

import (
	"net/netip"
	"time"

	"containernet-env/link_emulator/strictjson"
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

// minSpacing is the least mean time between two probes of the whole run. A probe costs about 50 us of processor time, nearly all
// of it in the kernel; at this pace fifty hosts (1225 pairs) leave most of two cores free. The interval grows if need be.
const minSpacing = 200 * time.Microsecond

// Frame bytes around the payload: Ethernet, IPv4 without options, ICMP.
const headerBytes = 14 + 20 + 8

// Host is one end of pairs.
type Host struct {
	Name string
	PID  int // a process in the host's network namespace
	IP   netip.Addr
}

// Request is what is to be measured.
type Request struct {
	Hosts        []Host
	Probes       int           // per pair, after the warm-up
	Answers      int           // a pair with fewer answers goes on, at most Timeout from its first probe on
	Warmup       int           // probes before that, at least; repeated until the first reply
	Interval     time.Duration // between two probes of one pair, at least
	PayloadBytes int
	Timeout      time.Duration // for the first reply, and for each reply
}

// Parse reads a request as JSON, strictly; see the README for its form.
func Parse(data []byte) (Request, error) {
	o, err := strictjson.Parse(data)
	if err != nil {
		return Request{}, err
	}
	var r Request
	names, addresses := map[string]bool{}, map[netip.Addr]bool{}
	o.Objects("hosts", 2, maxHosts, func(h *strictjson.Object) {
		host := Host{Name: h.String("name", maxNameBytes), PID: int(h.Int("pid", 1, maxPID))}
		text := h.String("ip", 64)
		if h.Err() != nil {
			return
		}
		if host.IP, err = netip.ParseAddr(text); err != nil || !host.IP.Is4() {
			h.Refuse("ip", "got %q, allowed: an IPv4 address", text)
		}
		if names[host.Name] {
			h.Refuse("name", "there are two hosts %q", host.Name)
		}
		if addresses[host.IP] {
			h.Refuse("ip", "there are two hosts with %s", host.IP)
		}
		names[host.Name], addresses[host.IP] = true, true
		r.Hosts = append(r.Hosts, host)
	})
	r.Probes = int(o.IntOr("probes", defaultProbes, 1, maxProbes))
	r.Answers = int(o.IntOr("answers", 0, 0, maxProbes))
	r.Warmup = int(o.IntOr("warmup", defaultWarmup, 0, maxWarmup))
	r.Interval = time.Duration(o.IntOr("interval_ms", 10, 1, maxInterval.Milliseconds())) * time.Millisecond
	r.PayloadBytes = int(o.IntOr("payload_bytes", defaultPayload, markBytes, maxPayload))
	r.Timeout = time.Duration(o.IntOr("timeout_ms", 5000, 1, maxTimeout.Milliseconds())) * time.Millisecond
	return r, o.Done()
}
