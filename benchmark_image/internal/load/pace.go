package load

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Schedule is a list of intended starts that is fixed in advance.
type Schedule interface {
	// Start is the intended start of a request, since that of the schedule. It is a pure function that never decreases.
	Start(number int) time.Duration
	// Due is how many requests have an intended start at or before a time.
	Due(elapsed time.Duration) int
}

// Pacer decides when requests start; it is a pure function, so that schedules are tested without a clock. An open loop
// starts its requests at the times of a schedule, whether or not earlier ones were answered: a free client takes the
// next one, and if its start has passed, it is sent at once. A closed loop starts each as soon as a client is free.
type Pacer struct {
	Schedule Schedule // nil: a closed loop
	Total    int      // requests, at most
	// if not zero: nothing is sent after this time, but in an open loop by a client that was woken up to LateAfter late
	Duration time.Duration
}

// NewOpenLoop makes an open loop of total requests, or, if duration is not zero, of as many as start before the
// duration has passed.
func NewOpenLoop(schedule Schedule, total int, duration time.Duration) Pacer {
	if duration > 0 {
		total = schedule.Due(duration - 1)
	}
	return Pacer{schedule, total, duration}
}

// Planned tells whether starts are planned; if not, requests start when clients are free for them.
func (p Pacer) Planned() bool { return p.Schedule != nil }

// Pace tells whether a request is part of the load, and its intended start since the start of the load, which never is
// before that of a request with a smaller number. elapsed is when a client became free for it: if the intended start is
// before that, the request is late, and its latency still counts from the intended start.
func (p Pacer) Pace(number int, elapsed time.Duration) (start time.Duration, more bool) {
	if number >= p.Total || p.Duration > 0 && elapsed >= p.Duration {
		return 0, false
	}
	if !p.Planned() {
		return elapsed, true
	}
	start = p.Schedule.Start(number)
	return start, p.Duration == 0 || start < p.Duration
}

// Due is how many requests have an intended start at or before a time; 0 where starts are not planned.
func (p Pacer) Due(elapsed time.Duration) int {
	if !p.Planned() {
		return 0
	}
	if p.Duration > 0 {
		elapsed = min(elapsed, p.Duration-1)
	}
	return min(p.Schedule.Due(elapsed), p.Total)
}

// Last is the last intended start of an open loop, or a time before which it lies where requests are not counted ahead.
func (p Pacer) Last() time.Duration {
	switch p.Total {
	case 0:
		return 0
	case math.MaxInt:
		return p.Duration
	}
	return p.Schedule.Start(p.Total - 1)
}

// Rest is the schedule behind an open loop: of a measurement behind its warm-up.
func (p Pacer) Rest() From {
	if p.Duration > 0 {
		return From{p.Schedule, p.Total, p.Duration}
	}
	return From{p.Schedule, p.Total, p.Schedule.Start(p.Total)}
}

// From is the rest of a schedule, from a request and a time on.
type From struct {
	Schedule Schedule
	First    int
	Begin    time.Duration // not after the start of the first request
}

func (f From) Start(number int) time.Duration { return f.Schedule.Start(f.First+number) - f.Begin }

func (f From) Due(elapsed time.Duration) int { return max(f.Schedule.Due(f.Begin+elapsed)-f.First, 0) }

// Constant starts requests at equal intervals. The value is the rate in requests per second.
type Constant float64

// Start implements Schedule. Each start is computed from the number, so that rounding errors do not add up.
func (c Constant) Start(number int) time.Duration {
	return time.Duration(math.Round(float64(number) * 1e9 / float64(c)))
}

func (c Constant) Due(elapsed time.Duration) int {
	if elapsed < 0 {
		return 0
	}
	// One less than the quotient, which may be rounded up.
	due := max(int(float64(elapsed)*float64(c)/1e9)-1, 0)
	for c.Start(due) <= elapsed {
		due++
	}
	return due
}

const (
	// firstStride is the number of requests from one kept start of a Poisson schedule to the next, to begin with.
	firstStride = 64
	// maxKept is how many starts are kept at most, an even number: when there are as many, every other one goes.
	maxKept = 1 << 14
	// maxBlocks is how many blocks of firstStride starts are remembered: more than there may be members, which may all
	// be at different places of the schedule.
	maxBlocks = 256
)

// Poisson starts requests as independent callers would: the intervals between them are exponentially distributed.
// Starts are computed when they are needed, in blocks: each takes a single step, also where some members are far behind
// others.
type Poisson struct {
	mean float64 // interval in ns
	draw func(number uint64) float64

	current atomic.Pointer[block] // the latest one that was used: most starts are in it

	mu     sync.Mutex
	stride int
	kept   []time.Duration // the starts of requests 0, stride, 2*stride and so on, as far as any was computed
	blocks map[int]*block  // those that are remembered, by the number of their first request, divided by firstStride
	latest []*block        // the same, each in the place of the one that is maxBlocks older
	next   int             // place
}

// block is the starts of consecutive requests. It does not change any more once it is remembered.
type block struct {
	at     int // in blocks
	starts [firstStride]time.Duration
}

// walk is at the start of a request.
type walk struct {
	number int
	at     time.Duration
}

// NewPoisson makes a schedule with the given mean rate in requests per second. uniform gives numbers of (0, 1) that
// are a pure function of their argument.
func NewPoisson(rate float64, uniform func(number uint64) float64) *Poisson {
	p := &Poisson{mean: 1e9 / rate, draw: uniform, stride: firstStride, blocks: make(map[int]*block)}
	p.kept = append(p.kept, p.gap(0))
	return p
}

// gap is the interval from the previous request to this one.
func (p *Poisson) gap(number int) time.Duration {
	return time.Duration(exponential(p.draw(uint64(number)))*p.mean + 0.5)
}

func (p *Poisson) Start(number int) time.Duration {
	b := p.current.Load()
	if b == nil || b.at != number/firstStride {
		b = p.block(number / firstStride)
	}
	return b.starts[number%firstStride]
}

// block gives a block that is not the current one.
func (p *Poisson) block(at int) *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.blocks[at]
	if b == nil {
		b = p.compute(at)
	}
	p.current.Store(b)
	return b
}

func (p *Poisson) Due(elapsed time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	later := sort.Search(len(p.kept), func(i int) bool { return p.kept[i] > elapsed })
	if later == 0 {
		return 0
	}
	w := walk{(later - 1) * p.stride, p.kept[later-1]}
	for w.at <= elapsed {
		p.step(&w)
	}
	return w.number
}

// compute gives a block that is not remembered, and remembers it instead of the oldest one.
func (p *Poisson) compute(at int) *block {
	var w walk
	if before := p.blocks[at-1]; before != nil {
		w = walk{at*firstStride - 1, before.starts[firstStride-1]}
		p.step(&w)
	} else {
		kept := min(at*firstStride/p.stride, len(p.kept)-1)
		for w = (walk{kept * p.stride, p.kept[kept]}); w.number < at*firstStride; {
			p.step(&w)
		}
	}
	// Starts are kept at the beginnings of blocks only.
	b := &block{at: at}
	b.starts[0] = w.at
	for i := 1; i < firstStride; i++ {
		b.starts[i] = b.starts[i-1] + p.gap(w.number+i)
	}
	if len(p.latest) < maxBlocks {
		p.latest = append(p.latest, b)
	} else {
		delete(p.blocks, p.latest[p.next].at)
		p.latest[p.next] = b
	}
	p.next = (p.next + 1) % maxBlocks
	p.blocks[at] = b
	return b
}

// step goes to the next request.
func (p *Poisson) step(w *walk) {
	w.number++
	w.at += p.gap(w.number)
	if w.number < len(p.kept)*p.stride {
		return
	}
	if p.kept = append(p.kept, w.at); len(p.kept) == maxKept {
		for i := range maxKept / 2 {
			p.kept[i] = p.kept[2*i]
		}
		p.kept, p.stride = p.kept[:maxKept/2], 2*p.stride
	}
}

// logarithmBits is how many bits of a number choose its place in the table of logarithms.
const logarithmBits = 7

// logarithms has, for numbers of [1, 2) that begin with the same bits, the inverse of the one in the middle, and its
// natural logarithm.
var logarithms = func() (table [1 << logarithmBits]struct{ inverse, log float64 }) {
	for i := range table {
		middle := 1 + (float64(i)+0.5)/(1<<logarithmBits)
		table[i].inverse, table[i].log = 1/middle, math.Log(middle)
	}
	return table
}()

// exponential is -log(u) for u of (0, 1), exact to 1e-15: where u is evenly distributed, exponentially distributed
// with mean 1. It takes a third of the time of math.Log, because its steps do not depend on each other, and it is
// computed in the same way on each kind of processor.
func exponential(u float64) float64 {
	const mantissa, one = 52, 1023
	bits := math.Float64bits(u)
	exponent := int(bits>>mantissa) - one
	entry := &logarithms[bits>>(mantissa-logarithmBits)%(1<<logarithmBits)]
	x := math.Float64frombits(bits&(1<<mantissa-1)|one<<mantissa)*entry.inverse - 1 // at most 2^-8
	series := x * (1 - x*(1./2-x*(1./3-x*(1./4-x*(1./5-x/6)))))
	return max(-(float64(exponent)*math.Ln2 + entry.log + series), 0)
}
