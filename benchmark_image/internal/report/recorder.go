package report

import (
	"time"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
)

// Plan is what a Recorder knows of a run before it begins.
type Plan struct {
	Rate      float64       // at which starts are planned; 0: a closed loop
	LastStart time.Duration // of an open loop: the last intended start
	Duration  time.Duration // for how long requests are sent; 0: until all are
	Interval  time.Duration // of the timeline; 0: a second
	Seconds   bool          // keep the figures of each second of the clock, for TextOptions.Sample

	// Kind is that of a request of the schedule, by its number; nil: those that are never sent are not counted by their
	// kinds.
	Kind func(number int) load.Kind
}

func (p *Plan) open() bool { return p.Rate > 0 }

// Recorder computes the figures of a run while outcomes come, in an amount of memory that does not depend on their
// number.
type Recorder struct {
	plan       Plan
	kinds      [load.Kinds]kindRecord
	own        series               // lateness of requests that had a free client
	codes      [store.Check + 1]int // requests that failed
	late       int                  // requests that started more than load.LateAfter late
	ownLate    int                  // of these, by the generator
	inTime     int                  // started before the schedule was over
	worstLag   time.Duration
	inDuration int             // succeeded within the duration
	due        [load.Kinds]int // requests of each kind among the first counted ones
	counted    int
	timeline   *timeline
	clock      secondsOfClock
}

// kindRecord is what became of the requests of one kind. A closed loop has no service times of its own: all its
// requests start when they are to.
type kindRecord struct {
	response, service          series
	failed, unknown, abandoned int // abandoned ones are unknown, too
}

// NewRecorder makes one for one run.
func NewRecorder(plan Plan) *Recorder {
	expected := max(plan.Duration, plan.LastStart)
	return &Recorder{plan: plan, timeline: newTimeline(plan.Interval, expected, plan.Duration)}
}

// Begin implements load.Sink.
func (r *Recorder) Begin(epoch time.Time) { r.clock.epoch = epoch }

// Add implements load.Sink.
func (r *Recorder) Add(number int, outcome load.Record) {
	k, how, latency := &r.kinds[outcome.Kind], outcome.Outcome, outcome.Latency()
	switch how {
	case load.OK:
		k.response.add(latency)
		if r.plan.open() {
			k.service.add(outcome.Service)
		}
		if r.plan.Seconds {
			r.clock.add(outcome.Start, latency)
		}
		if outcome.End() <= r.plan.Duration {
			r.inDuration++
		}
	case load.Failed:
		k.failed++
	case load.Abandoned:
		k.abandoned++
		k.unknown++
	default:
		k.unknown++
	}
	if outcome.Done() && how != load.OK {
		r.codes[outcome.Code]++
	}
	r.timeline.add(outcome.End(), how, latency)
	if !r.plan.open() {
		return
	}
	r.countDue(number + 1)
	lag := outcome.Lag
	r.worstLag = max(r.worstLag, lag)
	if outcome.Late() {
		r.late++
		if outcome.Own {
			r.ownLate++
		}
	}
	if outcome.Waited {
		r.own.add(lag)
	}
	// How long answers take does not matter here.
	if outcome.Start+lag <= r.plan.LastStart+load.LateAfter {
		r.inTime++
	}
}

// countDue counts the kinds of the first requests of the schedule, sent or not.
func (r *Recorder) countDue(requests int) {
	if r.plan.Kind == nil {
		return
	}
	for ; r.counted < requests; r.counted++ {
		r.due[r.plan.Kind(r.counted)]++
	}
}

func (k *kindRecord) serviceTimes(open bool) *series {
	if open {
		return &k.service
	}
	return &k.response
}

func (k *kindRecord) sent() int { return k.response.count + k.failed + k.unknown }

func (r *Recorder) kindFigures(kind load.Kind) *ByOperation {
	k := &r.kinds[kind]
	unsent := max(r.due[kind]-k.sent(), 0)
	bad := k.failed + k.unknown + unsent
	return &ByOperation{
		Outcomes{k.response.count, k.failed, k.unknown, unsent},
		newDistribution(latencies{&k.response}, bad), newDistribution(latencies{k.serviceTimes(r.plan.open())}, bad),
	}
}

// secondsOfClock has one entry for each second from the first start of a good request to the last one.
type secondsOfClock struct {
	epoch  time.Time
	series []second
}

// second is what succeeded among the requests that started within one second of the clock.
type second struct {
	unix          int64
	count         int
	min, max, sum time.Duration
}

func (c *secondsOfClock) add(start, latency time.Duration) {
	first := c.epoch.Unix()
	at := int(c.epoch.Add(start).Unix() - first)
	for len(c.series) <= at {
		c.series = append(c.series, second{unix: first + int64(len(c.series))})
	}
	s := &c.series[at]
	if s.count == 0 || latency < s.min {
		s.min = latency
	}
	s.max = max(s.max, latency)
	s.sum += latency
	s.count++
}
