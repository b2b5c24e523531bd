package probe

import (
	"cmp"
	"slices"
)

// The schedule of the streams and their results: no I/O and no clock, so package simulate uses it in simulated time.

// course is one stream under way.
type course struct {
	stream   Stream
	index    uint32
	dueNS    int64 // of the next frame; times are from the start
	frame    []byte
	sent     []int64 // when each was sent, ns
	delays   []int64 // of each; -1: it did not arrive
	received int
	again    []bool // which arrived more than once
}

// advance records that a frame was sent at nowNS. A late sender keeps the pace and does not catch up in a burst; what
// it has not sent by the end of the stream it does not send.
func (c *course) advance(nowNS int64) {
	c.sent = append(c.sent, nowNS)
	c.dueNS = max(c.dueNS+c.stream.IntervalNS, nowNS)
}

func (c *course) done() bool { return len(c.sent) == c.stream.Count || c.dueNS > c.stream.UntilUS*1000 }

// Schedule holds the streams of one host.
type Schedule struct {
	run     uint64
	waiting []*course // in the order of their start
	active  []*course
}

// Next is when the next frame is due; false when all are sent.
func (s *Schedule) Next() (dueNS int64, ok bool) {
	for {
		next := s.first()
		if len(s.waiting) > 0 && (next == nil || s.waiting[0].dueNS <= next.dueNS) {
			s.active = append(s.active, s.waiting[0])
			s.waiting = s.waiting[1:]
			continue
		}
		if next == nil {
			return 0, false
		}
		return next.dueNS, true
	}
}

// Frame is the frame that Next announced, which is sent at nowNS. It is valid until the next call.
func (s *Schedule) Frame(nowNS int64) []byte {
	next := s.first()
	Mark{s.run, next.index, uint32(len(next.sent))}.Encode(next.frame[headerBytes:])
	next.advance(nowNS)
	if next.done() {
		s.active = slices.DeleteFunc(s.active, func(c *course) bool { return c == next })
	}
	return next.frame
}

// first is the course whose next frame is due first; of two that are due at once, that which has waited longer. So
// streams that are sent as fast as it goes take turns. nil when all are done.
func (s *Schedule) first() *course {
	var next *course
	for _, c := range s.active {
		if !c.done() && (next == nil || c.dueNS < next.dueNS || c.dueNS == next.dueNS && len(c.sent) < len(next.sent)) {
			next = c
		}
	}
	return next
}

// Run is a request under way: the schedules of its hosts, and the frames that have arrived.
type Run struct {
	Schedules []*Schedule // by host
	number    uint64
	courses   []*course
}

// NewRun plans a request between hosts with these addresses. number identifies the frames of this run.
func NewRun(r Request, addresses [][6]byte, number uint64) *Run {
	run := &Run{number: number}
	for range addresses {
		run.Schedules = append(run.Schedules, &Schedule{run: number})
	}
	for i, stream := range r.Streams {
		c := &course{
			stream: stream,
			index:  uint32(i),
			dueNS:  stream.StartUS * 1000,
			frame:  newFrame(addresses[stream.To], addresses[stream.From], stream.FrameBytes),
			sent:   make([]int64, 0, stream.Count),
			delays: slices.Repeat([]int64{-1}, stream.Count),
			again:  make([]bool, stream.Count),
		}
		run.courses = append(run.courses, c)
		from := run.Schedules[stream.From]
		from.waiting = append(from.waiting, c)
	}
	for _, s := range run.Schedules {
		slices.SortStableFunc(s.waiting, func(a, b *course) int { return cmp.Compare(a.dueNS, b.dueNS) })
	}
	return run
}

// Arrived records a frame that a host with an address got so long after the start. Frames of others are not counted.
func (r *Run) Arrived(host int, address [6]byte, frame []byte, atNS int64) {
	m, ok := decode(frame, address)
	if !ok || m.Run != r.number || int64(m.Stream) >= int64(len(r.courses)) || r.courses[m.Stream].stream.To != host {
		return
	}
	switch c := r.courses[m.Stream]; {
	case int(m.Number) >= len(c.sent):
	case c.delays[m.Number] < 0:
		c.delays[m.Number] = max(0, atNS-c.sent[m.Number])
		c.received++
	default:
		c.again[m.Number] = true
	}
}

// Streams are the results, in the order of the request.
func (r *Run) Streams() []StreamResult {
	results := make([]StreamResult, len(r.courses))
	for i, c := range r.courses {
		results[i] = StreamResult{Sent: len(c.sent), Received: c.received}
		for _, again := range c.again {
			if again {
				results[i].Repeated++
			}
		}
		if !c.stream.CountOnly {
			results[i].SentNS, results[i].DelayNS = c.sent, c.delays[:len(c.sent)]
		}
	}
	return results
}

// WarmupFrame is a frame of the warm-up.
func WarmupFrame(to, from [6]byte, number uint64, count uint32) []byte {
	frame := newFrame(to, from, minFrame)
	Mark{number, warmupStream, count}.Encode(frame[headerBytes:])
	return frame
}

// IsOf reports whether a frame for an address is one of a run.
func IsOf(frame []byte, to [6]byte, number uint64) bool {
	m, ok := decode(frame, to)
	return ok && m.Run == number
}
