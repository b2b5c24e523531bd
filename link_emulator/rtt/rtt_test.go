package rtt

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/probe"
	"containernet-env/link_emulator/segment"
)

const twoHosts = `"hosts":[{"name":"a","pid":1,"ip":"10.0.0.1"},{"name":"b","pid":2,"ip":"10.0.0.2"}]`

func TestParse(t *testing.T) {
	r, err := Parse([]byte(`{` + twoHosts + `}`))
	assert.That(t, err == nil && r.Probes == 25 && r.Warmup == 3 && r.IntervalMS == 10 && r.PayloadBytes == 56 &&
		r.TimeoutMS == 5000 && len(r.Hosts) == 2, "got %+v, %v", r, err)
	const first, second = `{"hosts":[{"name":"a","pid":1,"ip":"10.0.0.1"},`, `{"name":"b","pid":2,"ip":"10.0.0.2"}]}`
	for input, said := range map[string]string{
		`{"hosts":[{"name":"a","pid":1,"ip":"10.0.0.1"}]}`:               "hosts: got 1, allowed: 2 to 256",
		first + `{"name":"a","pid":2,"ip":"10.0.0.2"}]}`:                 "hosts[1]: hosts[0] has the same",
		first + `{"name":"b","pid":2,"ip":"10.0.0.1"}]}`:                 "hosts[1]: hosts[0] has the same",
		first + `{"name":"b","pid":2,"ip":"10.0.0.999"}]}`:               "10.0.0.999",
		first + `{"name":"b","pid":2,"ip":"::1"}]}`:                      "hosts[1].ip",
		`{"hosts":[{"name":"a","pid":"x","ip":"10.0.0.1"},` + second:     "hosts.pid",
		`{"hosts":[{"name":"a","pid":1,"ip":"10.0.0.1","x":1},` + second: "x: unknown field",
		`{` + twoHosts + `,"probes":0}`:                                  "probes: got 0, allowed: 1 to 10000",
		`{` + twoHosts + `,"payload_bytes":15}`:                          "payload_bytes",
		`{` + twoHosts + `,"interval":10}`:                               "interval: unknown field",
	} {
		_, err := Parse([]byte(input))
		assert.That(t, err != nil && strings.Contains(err.Error(), said), "%s: got %v, want a refusal that says %q", input,
			err, said)
	}
}

func TestEchoRoundTrip(t *testing.T) {
	m := probe.Mark{Run: 0x0123456789abcdef, Stream: 7, Number: warmupMark | 3}
	message := append(make([]byte, icmpHeaderBytes), payloadFill(57)...) // odd: the checksum pads
	encode(m, message)
	assert.That(t, segment.Checksum(message) == 0, "the checksum of a request is wrong")
	reply := append([]byte{0x46, 23: 0}, message...) // an IPv4 header with one option word
	_, ok := decodeReply(reply)
	assert.That(t, !ok, "a request was taken for a reply")
	reply[24] = typeEchoReply
	binary.BigEndian.PutUint16(reply[26:], 0)
	binary.BigEndian.PutUint16(reply[26:], segment.Checksum(reply[24:]))
	found, known := decodeReply(reply)
	assert.That(t, known && found == m, "got %+v (%v), want %+v", found, known, m)
	reply[40]++
	_, taken := decodeReply(reply)
	assert.That(t, !taken, "a damaged reply was accepted")
	for length := range len(reply) {
		decodeReply(reply[:length]) // must not crash
	}
}

// simulate runs one pair in simulated time over a network with a round trip; lose says which probe is lost.
func simulate(r *Request, roundTrip time.Duration, lose func(probe uint32) bool) *pair {
	p := &pair{deadline: r.timeout()}
	type flight struct {
		probe uint32
		at    time.Duration
	}
	var flights []flight
	for now := time.Duration(0); !p.over && now < time.Hour; now += 100 * time.Microsecond {
		for len(flights) > 0 && flights[0].at <= now {
			at := stamp{wallNS: int64(1e18) + flights[0].at.Nanoseconds(), monotonicNS: now.Nanoseconds()}
			p.replied(r, flights[0].probe, at.wallNS, at)
			flights = flights[1:]
		}
		if probe, send := p.tick(r, now, r.interval()); send {
			if probe&warmupMark == 0 {
				p.sent(r, stamp{wallNS: int64(1e18) + now.Nanoseconds(), monotonicNS: now.Nanoseconds()}, now)
			}
			if !lose(probe) {
				flights = append(flights, flight{probe, now + roundTrip})
			}
		}
	}
	return p
}

// TestPairs: probes are sent in a pipeline until there are answers to take a median of, but not for ever; what comes
// after the timeout is lost.
func TestPairs(t *testing.T) {
	const ms = time.Millisecond
	warmup := func(probe uint32) bool { return probe&warmupMark != 0 }
	for name, c := range map[string]struct {
		request             Request
		roundTrip           time.Duration
		lose                func(probe uint32) bool
		sent, lost, samples int
		warmup              int // probes of it, about
	}{
		"pipeline": {Request{Probes: 25, Warmup: 3, TimeoutMS: 1000}, 200 * ms,
			func(uint32) bool { return false }, 25, 0, 25, 21},
		"losses": {Request{Probes: 10, Warmup: 1, TimeoutMS: 100}, 6 * ms,
			func(probe uint32) bool { return probe == 2 || probe == 9 }, 10, 2, 8, 1},
		"an answer to every twentieth probe": {Request{Probes: 10, Answers: 3, Warmup: 1, TimeoutMS: 1000}, 6 * ms,
			func(probe uint32) bool { return !warmup(probe) && probe%20 != 7 }, 48, 45, 3, 1},
		"no answer within a second": {Request{Probes: 10, Answers: 3, Warmup: 1, TimeoutMS: 1000}, 6 * ms,
			func(probe uint32) bool { return !warmup(probe) }, 101, 101, 0, 1},
		"enough answers": {Request{Probes: 10, Answers: 3, Warmup: 1, TimeoutMS: 1000}, 6 * ms,
			func(probe uint32) bool { return probe == 2 }, 10, 1, 9, 1},
		"after the timeout": {Request{Probes: 3, TimeoutMS: 50}, 60 * ms,
			func(uint32) bool { return false }, 3, 3, 0, 0},
		"silence": {Request{Probes: 10, Warmup: 3, TimeoutMS: 100}, ms,
			func(uint32) bool { return true }, 10, 10, 0, 10},
	} {
		c.request.IntervalMS = 10
		p := simulate(&c.request, c.roundTrip, c.lose)
		got := summarize("a", p)
		assert.That(t, got.Sent == c.sent && got.Lost == c.lost && len(got.SamplesNS) == c.samples &&
			(got.MedianNS == nil) == (c.samples == 0) && (got.MedianNS == nil || *got.MedianNS == c.roundTrip.Nanoseconds()),
			"%s: got %+v", name, got)
		assert.That(t, p.warmupSent >= c.warmup-1 && p.warmupSent <= c.warmup+1, "%s: warm-up of %d probes, want about %d",
			name, p.warmupSent, c.warmup)
	}
}

// TestSamples: neither a wall clock that is set, nor duplicates, nor replies to what was not sent yet spoil a sample.
func TestSamples(t *testing.T) {
	r := &Request{Probes: 2, TimeoutMS: 1000}
	for _, step := range []int64{int64(-3600e9), int64(3600e9), int64(5e6)} {
		p := &pair{warm: true}
		p.sent(r, stamp{wallNS: 1e18, monotonicNS: 0}, 0)
		for _, probe := range []uint32{0, 0, 1} {
			p.replied(r, probe, 1e18+step+6e6, stamp{wallNS: 1e18 + step + 6e6 + 1000, monotonicNS: 6e6 + 1000})
		}
		assert.That(t, p.open == 0 && !p.over && p.samplesNS[0] == 6e6+1000, "a step of %d ns: %+v", step, p)
	}
}

func TestFiftyHostsAreSpreadOut(t *testing.T) {
	var hosts []string
	for i := range 50 {
		hosts = append(hosts, fmt.Sprintf(`{"name":"h%d","pid":1,"ip":"10.0.0.%d"}`, i, i+1))
	}
	r, err := Parse([]byte(`{"hosts":[` + strings.Join(hosts, ",") + `]}`))
	assert.OK(t, err)
	interval, probers := plan(&r, 1)
	assert.Equal(t, interval, 1225*minSpacing, "interval")
	seen := map[time.Duration]bool{}
	for _, p := range probers {
		for _, pair := range p.pairs {
			assert.Must(t, pair.next < interval && !seen[pair.next], "pair %d starts at %v", pair.index, pair.next)
			seen[pair.next] = true
		}
	}
	assert.Equal(t, len(seen), 1225, "pairs")
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		samples []int64
		want    int64
	}{{[]int64{5}, 5}, {[]int64{9, 1}, 5}, {[]int64{3, 1, 2}, 2}, {[]int64{4, 1, 3, 2}, 2}} {
		got := median(c.samples)
		assert.That(t, got != nil && *got == c.want, "%v: got %v, want %d", c.samples, got, c.want)
	}
	assert.That(t, median(nil) == nil, "there is a median of nothing")
}
