package load

import (
	"sync"
	"sync/atomic"
	"time"
)

// WarmupResult is what became of the warm-up.
type WarmupResult struct {
	OK, Failed, Unknown, Abandoned int           // requests, by outcome
	InDuration                     int           // of OK: those that ended within the measurement's duration
	Took                           time.Duration // from the start to that of the measurement, or to the early end
}

// plan tells when requests start: those of the warm-up, if there is one, and then those of the measurement, which have
// pacers of their own.
type plan struct {
	warmup   *Pacer // nil: none
	measured Pacer

	warming atomic.Bool   // it is not yet decided when the measurement begins; the next two are not valid while it is
	first   int           // number of the measurement's first request
	begin   time.Duration // when it begins, since the start of the run
	begun   chan struct{} // closed when it begins

	turn sync.Mutex // for one claim of a closed loop after the other
	deal deal
}

func (p *plan) init(warmup *Pacer, measured Pacer, members, clients int) {
	p.deal.init(members, clients)
	p.warmup, p.measured, p.begun = warmup, measured, make(chan struct{})
	switch {
	case warmup == nil:
		close(p.begun)
	case measured.Planned():
		rest := warmup.Rest()
		p.first, p.begin = rest.First, rest.Begin
	default:
		p.warming.Store(true)
	}
}

// pace is the Pacer of both phases where starts are planned. What a warm-up that is over has not sent is left out: the
// next number that may start is then at least as large as the one in skip.
func (p *plan) pace(number int, elapsed time.Duration) (start time.Duration, more bool, skip int) {
	if number < p.first {
		start, more = p.warmup.Pace(number, elapsed)
		return start, more, p.first
	}
	start, more = p.measured.Pace(number-p.first, elapsed-p.begin)
	return start + p.begin, more, 0
}

// open tells whether the phase of a planned request still sends requests at a time.
func (p *plan) open(number int, elapsed time.Duration) bool {
	_, more, _ := p.pace(number, elapsed)
	return more
}

// claim gives the client the next request of a closed loop, which starts now.
func (p *plan) claim(client int, elapsed func() time.Duration) (number int, start time.Duration, more bool) {
	p.turn.Lock()
	defer p.turn.Unlock()
	now := elapsed()
	if p.warming.Load() {
		if number, start, more = p.deal.next(client, *p.warmup, 0, now); more {
			return number, start, true
		}
		p.first, p.begin = p.deal.align(), now
		p.warming.Store(false)
		close(p.begun)
	}
	number, start, more = p.deal.next(client, p.measured, p.first, now-p.begin)
	return number, start + p.begin, more
}

// measuring tells whether the measurement has begun, and when it did.
func (p *plan) measuring(now time.Duration) (since time.Duration, begun bool) {
	if p.warming.Load() {
		return 0, false
	}
	return p.begin, now >= p.begin
}

// inDuration tells whether a time is within the measurement's duration; false where it has none.
func (p *plan) inDuration(now time.Duration) bool {
	begin, begun := p.measuring(now)
	return begun && now > begin && now <= begin+p.measured.Duration
}

// deal hands out the numbers of a closed loop's requests, each once. Each client goes from member to member, so all
// members get the same share. What one connection brings at once is answered over one other connection: dealt to
// members by their number alone, requests to three of them took half as much CPU time again.
type deal struct {
	dealt []int // of each member; with n of them, its next request has the number of the member + n * dealt
	turn  []int // the member of each client's next request
}

func (d *deal) init(members, clients int) {
	d.dealt = make([]int, members)
	d.turn = make([]int, clients)
	for client := range d.turn {
		d.turn[client] = client % members
	}
}

// next gives the client a request that the pacer lets start. first is the number of the pacer's own first request.
func (d *deal) next(
	client int, pacer Pacer, first int, elapsed time.Duration,
) (number int, start time.Duration, more bool) {
	member := d.turn[client]
	if number, start, more = d.take(member, pacer, first, elapsed); more {
		d.turn[client] = (member + 1) % len(d.dealt)
		return number, start, true
	}
	slowest := 0
	for member, dealt := range d.dealt {
		if dealt < d.dealt[slowest] {
			slowest = member
		}
	}
	// Its number is the smallest of all: if it may not start, none may.
	return d.take(slowest, pacer, first, elapsed)
}

func (d *deal) take(
	member int, pacer Pacer, first int, elapsed time.Duration,
) (number int, start time.Duration, more bool) {
	number = d.number(member)
	if start, more = pacer.Pace(number-first, elapsed); more {
		d.dealt[member]++
	}
	return number, start, more
}

func (d *deal) number(member int) int { return member + len(d.dealt)*d.dealt[member] }

// align makes the number after the largest one that was dealt the smallest one to come, and gives it.
func (d *deal) align() (first int) {
	for member, dealt := range d.dealt {
		if dealt > 0 {
			first = max(first, d.number(member)-len(d.dealt)+1)
		}
	}
	for member := range d.dealt {
		for d.number(member) < first {
			d.dealt[member]++
		}
	}
	return first
}
