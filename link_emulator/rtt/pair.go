package rtt

import (
	"time"

	"containernet-env/link_emulator/input"
)

// pair is the state of one pair. It does no I/O: the time of every event is an argument (since the start of the run,
// monotonic clock).
type pair struct {
	index    uint32
	to       input.Host
	next     time.Duration // when the next probe is to be sent
	deadline time.Duration // when the first reply must have come; after the last probe, when the last reply must have

	warm       bool // the warm-up is done
	warmupSent int
	answered   bool // a reply has come
	sentAt     []stamp
	samplesNS  []int64       // by probe; 0: no reply yet
	open       int           // probes sent and not answered
	until      time.Duration // probes beyond the configured number are sent until then
	over       bool
	failure    string // the last error of sending
}

// stamp is one moment by both clocks. The wall clock is compared with the kernel's receive stamp; the monotonic clock
// shows whether the wall clock was set meanwhile.
type stamp struct {
	wallNS      int64
	monotonicNS int64
}

// warmupMark is set in the probe number of warm-up probes.
const warmupMark = uint32(1) << 31

// sentAll reports whether all probes have been sent: the configured number, and more if too few of them have been
// answered.
func (p *pair) sentAll(r *Request) bool {
	sent := len(p.sentAt)
	return sent >= r.Probes && (sent-p.open >= r.Answers || p.next > p.until)
}

// due is when p has to be called next; false when it is done.
func (p *pair) due(r *Request) (time.Duration, bool) {
	switch {
	case p.over:
		return 0, false
	case p.warm && p.sentAll(r):
		return p.deadline, true
	case !p.warm:
		return min(p.next, p.deadline), true
	}
	return p.next, true
}

// tick advances p to now and returns the number of the probe to send, if any.
func (p *pair) tick(r *Request, now, interval time.Duration) (probe uint32, send bool) {
	if !p.warm && (r.Warmup == 0 || p.answered && p.warmupSent >= r.Warmup) {
		p.warm = true
	}
	switch {
	case p.over:
	case !p.warm && now >= p.deadline:
		p.over = true
	case p.warm && p.sentAll(r):
		p.over = now >= p.deadline // or, earlier, when the last reply came: see replied
	case now >= p.next:
		p.next += interval
		if p.next <= now { // this thread was delayed: keep the pace, do not catch up in a burst
			p.next = now + interval
		}
		if !p.warm {
			p.warmupSent++
			return warmupMark | uint32(p.warmupSent), true
		}
		return uint32(len(p.sentAt)), true
	}
	return 0, false
}

func (p *pair) sent(r *Request, at stamp, now time.Duration) {
	if len(p.sentAt) == 0 {
		p.until = now + r.timeout()
	}
	p.sentAt = append(p.sentAt, at)
	p.samplesNS = append(p.samplesNS, 0)
	p.open++
	p.deadline = now + r.timeout()
}

// replied records a reply: kernelNS is its receive stamp (wall clock), at is now by both clocks.
func (p *pair) replied(r *Request, probe uint32, kernelNS int64, at stamp) {
	p.answered = true
	if probe&warmupMark != 0 || int(probe) >= len(p.sentAt) || p.samplesNS[probe] != 0 {
		return
	}
	from := p.sentAt[probe]
	sampleNS := kernelNS - from.wallNS
	const stepNS = int64(time.Millisecond) // far above what slewing does within a round trip, 0.5 ms/s
	moved := (at.wallNS - at.monotonicNS) - (from.wallNS - from.monotonicNS)
	if kernelNS == 0 || sampleNS <= 0 || moved > stepNS || moved < -stepNS {
		sampleNS = at.monotonicNS - from.monotonicNS // the wall clock was set: this is slightly too long, but valid
	}
	if sampleNS <= r.timeout().Nanoseconds() {
		p.samplesNS[probe] = sampleNS
		p.open--
		p.over = p.open == 0 && p.sentAll(r)
	}
}
