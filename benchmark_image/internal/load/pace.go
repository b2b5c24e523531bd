package load

import (
	"math"
	"sort"
	"time"
)

// Pacer decides when requests start; it is a pure function, so that schedules are tested without a clock.
type Pacer interface {
	// Pace tells whether a request is part of the load, and its intended start since the start of the load, which
	// never is before that of a request with a smaller number. elapsed is when a client became free for it: if the
	// intended start is before that, the request is late, and its latency still counts from the intended start.
	Pace(number int, elapsed time.Duration) (start time.Duration, more bool)
	// Due is how many requests have an intended start at or before a time; 0 where starts are not planned.
	Due(elapsed time.Duration) int
	// Planned tells whether starts are planned; if not, requests start when clients are free for them.
	Planned() bool
}

// ClosedLoop starts each of its requests as soon as a client is free, until Total requests have started or, if
// Duration is not zero, until that time has passed.
type ClosedLoop struct {
	Total    int
	Duration time.Duration
}

// Pace implements Pacer.
func (c ClosedLoop) Pace(number int, elapsed time.Duration) (time.Duration, bool) {
	return elapsed, number < c.Total && (c.Duration == 0 || elapsed < c.Duration)
}

// Due implements Pacer.
func (ClosedLoop) Due(time.Duration) int { return 0 }

// Planned implements Pacer.
func (ClosedLoop) Planned() bool { return false }

// Schedule is a list of intended starts that is fixed in advance.
type Schedule interface {
	// Start is the intended start of a request, since that of the schedule. It is a pure function that never decreases.
	Start(number int) time.Duration
}

// OpenLoop starts its requests at the times of a schedule, whether or not earlier ones were answered. A
// client that is free takes the next one; if its start has passed, it is sent at once.
type OpenLoop struct {
	Schedule Schedule
	Total    int           // requests in the schedule
	Duration time.Duration // if not zero: nothing is sent after this time
}

// NewOpenLoop makes an open loop of total requests, or, if duration is not zero, of as many as start before the
// duration has passed, at most limit.
func NewOpenLoop(schedule Schedule, total int, duration time.Duration, limit int) OpenLoop {
	if duration > 0 {
		total = sort.Search(limit, func(i int) bool { return schedule.Start(i) >= duration })
	}
	return OpenLoop{schedule, total, duration}
}

// Pace implements Pacer.
func (o OpenLoop) Pace(number int, elapsed time.Duration) (time.Duration, bool) {
	if number >= o.Total || o.Duration > 0 && elapsed >= o.Duration {
		return 0, false
	}
	return o.Schedule.Start(number), true
}

// From is the rest of a schedule, from a request and a time on.
type From struct {
	Schedule Schedule
	First    int
	Begin    time.Duration // not after the start of the first request
}

// Start implements Schedule.
func (f From) Start(number int) time.Duration { return f.Schedule.Start(f.First+number) - f.Begin }

// Due implements Pacer.
func (o OpenLoop) Due(elapsed time.Duration) int {
	return sort.Search(o.Total, func(i int) bool { return o.Schedule.Start(i) > elapsed })
}

// Planned implements Pacer.
func (OpenLoop) Planned() bool { return true }

// Constant starts requests at equal intervals. The value is the rate in requests per second.
type Constant float64

// Start implements Schedule. Each start is computed from the number, so that rounding errors do not add up.
func (c Constant) Start(number int) time.Duration {
	return time.Duration(math.Round(float64(number) * 1e9 / float64(c)))
}

// stride is the number of requests from one stored start of a Poisson schedule to the next.
const stride = 64

// Poisson starts requests as independent callers would: the intervals between them are exponentially distributed.
// It is immutable.
type Poisson struct {
	mean float64 // interval in ns
	draw func(number uint64) float64
	kept []time.Duration // the starts of requests 0, stride, 2*stride and so on
}

// NewPoisson makes a schedule with the given mean rate in requests per second. uniform gives numbers of (0, 1) that
// are a pure function of their argument. The schedule ends with request total-1 or, if duration is not zero, with
// the first request after it.
func NewPoisson(rate float64, uniform func(number uint64) float64, total int, duration time.Duration) *Poisson {
	p := &Poisson{mean: 1e9 / rate, draw: uniform}
	at := time.Duration(0)
	for i := 0; i < total; i++ {
		at += p.gap(i)
		if i%stride == 0 {
			p.kept = append(p.kept, at)
		}
		if duration > 0 && at >= duration {
			break
		}
	}
	return p
}

// gap is the interval from the previous request to this one.
func (p *Poisson) gap(number int) time.Duration {
	return time.Duration(math.Round(-math.Log(p.draw(uint64(number))) * p.mean))
}

// Start implements Schedule. After the end of the schedule nothing ever starts.
func (p *Poisson) Start(number int) time.Duration {
	if number/stride >= len(p.kept) {
		return math.MaxInt64
	}
	at := p.kept[number/stride]
	for i := number/stride*stride + 1; i <= number; i++ {
		at += p.gap(i)
	}
	return at
}
