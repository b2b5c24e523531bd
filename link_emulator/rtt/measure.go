package rtt

import (
	"slices"
	"sync"
	"time"

	"containernet-env/link_emulator/input"
)

// Result of a measurement, as JSON.
type Result struct {
	Pairs      []PairResult `json:"pairs"`       // each unordered pair once, in the order of the hosts
	FrameBytes int          `json:"frame_bytes"` // length of each probe and reply as a TAP shows it
	IntervalNS int64        `json:"interval_ns"` // between two probes of a pair, as used
}

// PairResult is one pair; A sent. Of a pair that never answered, Sent and Lost count the warm-up.
type PairResult struct {
	A         string  `json:"a"`
	B         string  `json:"b"`
	Sent      int     `json:"sent"`
	Lost      int     `json:"lost"`
	SamplesNS []int64 `json:"samples_ns"` // of the probes that were answered, in the order of sending
	MedianNS  *int64  `json:"median_ns"`  // mean of the middle two where their number is even; nil without samples
	Error     string  `json:"error,omitempty"`
}

// Measure carries out a request; its sockets stay open until the process ends. Pairs that do not answer are data, not
// an error. A namespace that cannot be entered, a socket that cannot be opened and a payload that does not fit a frame
// are errors.
func Measure(r Request) (Result, error) {
	interval, probers := plan(&r, input.Nonce())
	for _, p := range probers {
		if err := p.open(); err != nil {
			return Result{}, err
		}
	}
	start := time.Now()
	errs := make([]error, len(probers))
	var running sync.WaitGroup
	for i, p := range probers {
		running.Go(func() { errs[i] = p.run(start) })
	}
	running.Wait()
	result := Result{FrameBytes: headerBytes + r.PayloadBytes, IntervalNS: interval.Nanoseconds()}
	for i, p := range probers {
		if errs[i] != nil {
			return Result{}, errs[i]
		}
		for _, pair := range p.pairs {
			result.Pairs = append(result.Pairs, summarize(p.host.Name, pair))
		}
	}
	return result, nil
}

// plan makes a prober for every host but the last, and spreads the pairs evenly over the interval.
func plan(r *Request, nonce uint64) (time.Duration, []*prober) {
	n := len(r.Hosts)
	count := n * (n - 1) / 2
	interval := max(r.interval(), time.Duration(count)*minSpacing)
	var probers []*prober
	index := 0
	for i, host := range r.Hosts[:n-1] {
		p := &prober{request: r, host: host, nonce: nonce, interval: interval, first: uint32(index)}
		for _, to := range r.Hosts[i+1:] {
			p.pairs = append(p.pairs, &pair{
				index:    uint32(index),
				to:       to,
				next:     interval * time.Duration(index) / time.Duration(count),
				deadline: r.timeout(),
			})
			index++
		}
		probers = append(probers, p)
	}
	return interval, probers
}

func summarize(from string, p *pair) PairResult {
	result := PairResult{A: from, B: p.to.Name, Sent: len(p.sentAt), SamplesNS: []int64{}, Error: p.failure}
	for _, ns := range p.samplesNS {
		if ns > 0 {
			result.SamplesNS = append(result.SamplesNS, ns)
		}
	}
	if !p.warm {
		result.Sent = p.warmupSent
	}
	result.Lost = result.Sent - len(result.SamplesNS)
	result.MedianNS = median(result.SamplesNS)
	return result
}

func median(samples []int64) *int64 {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(samples))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return new(sorted[middle-1] + (sorted[middle]-sorted[middle-1])/2)
	}
	return new(sorted[middle])
}
