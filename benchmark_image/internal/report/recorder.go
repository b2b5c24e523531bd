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

	// Starts are those of an open loop whose intervals differ; nil: they are equal.
	Starts load.Schedule
	// Kind is that of a request of the schedule, by its number; nil: those that are never sent are not counted by their
	// kinds.
	Kind func(number int) load.Kind
}

func (p *Plan) open() bool { return p.Rate > 0 }

// length is that of the schedule's first requests, in s: until the next one is due, or the duration is over.
func (p *Plan) length(due int) float64 {
	if p.Starts == nil {
		return float64(due) / p.Rate
	}
	length := p.Starts.Start(due)
	if p.Duration > 0 {
		length = min(length, p.Duration)
	}
	return length.Seconds()
}

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

func NewRecorder(plan Plan) *Recorder {
	expected := max(plan.Duration, plan.LastStart)
	return &Recorder{plan: plan, timeline: newTimeline(plan.Interval, expected, plan.Duration)}
}

func (r *Recorder) Begin(epoch time.Time) { r.clock.epoch = epoch }

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

// maxRows is how many rows a timeline may have; longer runs get longer intervals. It is even.
const maxRows = 18_000

// Row describes the requests that ended within one interval of a run.
type Row struct {
	Second       float64  `json:"second"` // start of the interval since the start of the run
	OK           int      `json:"ok"`
	Failed       int      `json:"failed"`  // did not happen
	Unknown      int      `json:"unknown"` // may have happened, including those that the end of the run cut off
	RequestsPerS float64  `json:"requests_per_s"`
	P50S         *float64 `json:"p50_s"` // of the response times; null where there are too few
	P99S         *float64 `json:"p99_s"`
	MaxS         *float64 `json:"max_s"`

	// The successes of the interval, since the start of the run; null where there are none.
	FirstOKNs *int64 `json:"first_ok_ns"`
	LastOKNs  *int64 `json:"last_ok_ns"`
	// The longest time between two successes, or from the start to the first, that ended in the interval, and its end.
	GapNs    *int64 `json:"gap_ns"`
	GapEndNs *int64 `json:"gap_end_ns"`
}

// interval is what becomes a Row. Without successes all its times are 0, but for the percentiles.
type interval struct {
	ok, failed, unknown int
	p50, p99            time.Duration // 0: not known
	max                 time.Duration
	first, last         time.Duration
	gap, gapEnd         time.Duration
}

// timeline takes outcomes in their order. Its memory is bounded.
type timeline struct {
	width   time.Duration // of an interval
	past    []interval
	current interval
	end     time.Duration // of the current interval
	samples series        // response times of the current interval
	find    selector

	window   time.Duration // no gap lasts longer than to here; 0: to the end of the run
	lastOK   time.Duration
	gap      time.Duration // the longest
	gapStart time.Duration
}

// newTimeline makes one with the given interval, or a multiple of it where a run of the expected length would have too
// many; 0: the length is not known.
func newTimeline(step, expected, window time.Duration) *timeline {
	if step == 0 {
		step = time.Second
	}
	// What is still in flight at the end finds room, too.
	most := maxRows * 9 / 10 * step
	width := step * max((expected+most-1)/most, 1)
	return &timeline{width: width, end: width, window: window}
}

// add takes an outcome that happened at the given time; none may be earlier than the one before.
func (t *timeline) add(at time.Duration, outcome load.Outcome, latency time.Duration) {
	t.advance(at)
	row := &t.current
	switch outcome {
	case load.OK:
		gap := at - t.lastOK
		if row.ok == 0 {
			row.first = at
		}
		if gap > row.gap {
			row.gap, row.gapEnd = gap, at
		}
		t.noteGap(at)
		row.ok++
		row.last, t.lastOK = at, at
		row.max = max(row.max, latency)
		t.samples.add(latency)
	case load.Failed:
		row.failed++
	default:
		row.unknown++
	}
}

// noteGap compares the time from the last success until now with the longest such time.
func (t *timeline) noteGap(now time.Duration) {
	if t.window > 0 {
		now = min(now, t.window)
	}
	if now-t.lastOK > t.gap {
		t.gap, t.gapStart = now-t.lastOK, t.lastOK
	}
}

// advance ends the intervals that ended before a time.
func (t *timeline) advance(now time.Duration) {
	for now >= t.end {
		t.close()
	}
}

// close ends the current interval, or makes it longer where there is no room for another one.
func (t *timeline) close() {
	if len(t.past) == maxRows {
		t.widen()
		return
	}
	row := &t.current
	if row.ok > 0 {
		// A percentile that cannot be distinguished from the maximum is not known.
		ranks := []int{rank(row.ok, 50), rank(row.ok, 99)}
		values := t.find.find(latencies{&t.samples}, ranks)
		for i, place := range []*time.Duration{&row.p50, &row.p99} {
			if ranks[i] < row.ok {
				*place = values[i]
			}
		}
	}
	t.past = append(t.past, *row)
	t.samples.reset()
	*row = interval{}
	t.end += t.width
}

// widen joins each two past intervals. What their percentiles would be is not known any more.
func (t *timeline) widen() {
	for i := range maxRows / 2 {
		a, b := t.past[2*i], t.past[2*i+1]
		joined := interval{
			ok: a.ok + b.ok, failed: a.failed + b.failed, unknown: a.unknown + b.unknown,
			max: max(a.max, b.max), first: a.first, last: b.last, gap: a.gap, gapEnd: a.gapEnd,
		}
		switch {
		case a.ok == 0:
			joined = b
			joined.failed, joined.unknown = a.failed+b.failed, a.unknown+b.unknown
		case b.ok == 0:
			joined.last, joined.p50, joined.p99 = a.last, a.p50, a.p99
		case b.gap > a.gap:
			joined.gap, joined.gapEnd = b.gap, b.gapEnd
		}
		t.past[i] = joined
	}
	t.past = t.past[:maxRows/2]
	t.end += t.width
	t.width *= 2
}

// rows ends the timeline of a run that took so long. There is a row for each interval up to there, also where no
// request ended.
func (t *timeline) rows(took time.Duration) (step time.Duration, rows []Row) {
	last := took
	if t.window > 0 {
		last = min(took, t.window)
	}
	t.noteGap(last)
	t.advance(took)
	for t.current != (interval{}) || time.Duration(len(t.past))*t.width < took {
		t.close()
	}
	rows = make([]Row, len(t.past))
	for i, past := range t.past {
		start := time.Duration(i) * t.width
		width := min(t.width, took-start)
		if width <= 0 { // the last outcome came at the end of an interval, and of the run
			width = t.width
		}
		row := Row{
			Second: start.Seconds(), OK: past.ok, Failed: past.failed, Unknown: past.unknown,
			RequestsPerS: float64(past.ok) / width.Seconds(),
			P50S:         orNil(past.p50), P99S: orNil(past.p99),
		}
		if past.ok > 0 {
			row.MaxS = new(past.max.Seconds())
			row.FirstOKNs, row.LastOKNs = new(int64(past.first)), new(int64(past.last))
			row.GapNs, row.GapEndNs = new(int64(past.gap)), new(int64(past.gapEnd))
		}
		rows[i] = row
	}
	return t.width, rows
}

func orNil(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return new(d.Seconds())
}
