package load

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

func schedules(rate float64) map[string]Schedule {
	return map[string]Schedule{
		"constant": Constant(rate),
		"poisson":  NewPoisson(rate, keys.NewDraw(5, keys.StreamArrival).At),
	}
}

// TestSchedules checks, in simulated time, what must hold for every schedule.
func TestSchedules(t *testing.T) {
	const total = 20_000
	for _, rate := range []float64{0.1, 1, 3, 500, 30_000, 1e6} {
		for name, schedule := range schedules(rate) {
			previous := time.Duration(0)
			for i := range total {
				start := schedule.Start(i)
				assert.Must(t, start >= previous && start == schedule.Start(i),
					"%s at %v/s: request %d starts at %v, the one before at %v", name, rate, i, start, previous)
				previous = start
			}
			// The mean distance of n independent exponential ones is off by 1/sqrt(n) of itself, here five times that.
			got := total / previous.Seconds()
			assert.That(t, math.Abs(got/rate-1) <= 5/math.Sqrt(total), "%s: %v/s instead of %v/s", name, got, rate)
		}
	}
}

func TestAConstantScheduleDoesNotDrift(t *testing.T) {
	for _, rate := range []float64{3, 7, 500, 29_989} {
		for _, n := range []int{0, 1, 999_999, 10_000_000} {
			want := float64(n) / rate * 1e9
			got := float64(Constant(rate).Start(n))
			assert.That(t, math.Abs(got-want) <= 1, "request %d at %v/s is off by %v ns", n, rate, got-want)
		}
	}
}

// TestPoissonDistances compares the distribution of the distances with the exponential one.
func TestPoissonDistances(t *testing.T) {
	const total, rate = 50_000, 1000
	p := NewPoisson(rate, keys.NewDraw(1, keys.StreamArrival).At)
	distances := []float64{p.Start(0).Seconds()}
	for i := 1; i < total; i++ {
		distances = append(distances, (p.Start(i) - p.Start(i-1)).Seconds())
	}
	slices.Sort(distances)
	worst := 0.0 // Kolmogorov-Smirnov
	for i, d := range distances {
		worst = max(worst, math.Abs(1-math.Exp(-d*rate)-float64(i)/total))
	}
	if limit := 1.95 / math.Sqrt(total); worst > limit { // exceeded by chance once in 1000 seeds
		t.Errorf("the distribution is off by %v, at most %v is chance", worst, limit)
	}
	other := NewPoisson(rate, keys.NewDraw(2, keys.StreamArrival).At)
	assert.That(t, other.Start(0) != p.Start(0), "another seed makes the same schedule")
}

// TestALongPoissonScheduleIsTheSameInAnyOrder compares starts that were computed one after the other with those that
// are looked up later, after most of what is kept has gone.
func TestALongPoissonScheduleIsTheSameInAnyOrder(t *testing.T) {
	const total = 5 * maxKept * firstStride / 2
	draw := keys.NewDraw(9, keys.StreamArrival).At
	p := NewPoisson(1e6, draw)
	want := make(map[int]time.Duration)
	at := time.Duration(0)
	for i := range total {
		at += p.gap(i)
		if i%9973 == 0 || i%65536 < 2 || i == total-1 {
			want[i] = at
		}
		assert.Must(t, p.Start(i) == at, "request %d starts at %v, want %v", i, p.Start(i), at)
	}
	assert.That(t, len(p.kept) < maxKept && p.stride == 4*firstStride, "%d starts are kept, every %d", len(p.kept),
		p.stride)
	fresh := NewPoisson(1e6, draw)
	assert.Equal(t, fresh.Due(at), total, "requests that are due at the start of the last")
	for number, start := range want {
		got := p.Start(number)
		assert.That(t, got == start, "request %d starts at %v, want %v", number, got, start)
		if due := p.Due(start); due != number+1 && p.Start(due-1) != start {
			t.Errorf("%d requests are due at the start of request %d", due, number)
		}
		if due := p.Due(start - 1); due > number || due > 0 && p.Start(due-1) >= start {
			t.Errorf("%d requests are due before the start of request %d", due, number)
		}
	}
}

// TestMembersThatAreBehindDoNotMakePoissonStartsExpensive: the start of every request takes about one step for each of
// the places that members are at.
func TestMembersThatAreBehindDoNotMakePoissonStartsExpensive(t *testing.T) {
	const total, members, behind = 900_000, 3, 600_000
	draw := keys.NewDraw(9, keys.StreamArrival).At
	steps := 0
	p := NewPoisson(1e6, func(number uint64) float64 {
		steps++
		return draw(number)
	})
	plain := NewPoisson(1e6, draw)
	want, at := make([]time.Duration, total), time.Duration(0)
	for i := range want {
		at += plain.gap(i)
		want[i] = at
	}
	next := [members]int{0, 1, 2} // the first member is behind, until the others are done
	for next[0] < total {
		for member := range members {
			number := next[member]
			if number >= total || member == 0 && next[1] < behind {
				continue
			}
			got := p.Start(number)
			assert.Must(t, got == want[number], "request %d starts at %v, want %v", number, got, want[number])
			next[member] += members
		}
	}
	assert.That(t, steps <= 5*total/2, "%d steps for %d starts", steps, total)
}

func TestOpenLoopsByDuration(t *testing.T) {
	const limit = 100_000
	for rate, total := range map[float64]int{500: 2000, 0.1: 1, 3: 12, 1000: 4000} {
		o := NewOpenLoop(Constant(rate), 0, 4*time.Second, limit)
		assert.That(t, o.Total == total, "4 s at %v/s have %d requests, want %d", rate, o.Total, total)
	}
	p := NewPoisson(500, keys.NewDraw(1, keys.StreamArrival).At)
	o := NewOpenLoop(p, 0, 4*time.Second, limit)
	assert.That(t, p.Start(o.Total-1) < 4*time.Second && p.Start(o.Total) >= 4*time.Second && o.Total >= 1700 &&
		o.Total <= 2300, "4 s of a poisson schedule at 500/s have %d requests", o.Total)
	unknown := Pacer{NewPoisson(500, keys.NewDraw(1, keys.StreamArrival).At), math.MaxInt, 4 * time.Second}
	start, more := unknown.Pace(o.Total-1, 0)
	assert.That(t, more && start == p.Start(o.Total-1) && unknown.Due(time.Hour) == o.Total,
		"without a number of requests, the last starts at %v; %d are due", start, unknown.Due(time.Hour))
	_, another := unknown.Pace(o.Total, 0)
	assert.That(t, !another, "a request starts after the end of the duration")
	assert.That(t, NewOpenLoop(Constant(1e6), 0, time.Hour, limit).Total == limit, "the limit is not kept")
}

// TestDueAgreesWithPace walks through simulated time.
func TestDueAgreesWithPace(t *testing.T) {
	for name, schedule := range schedules(1000) {
		o := NewOpenLoop(schedule, 3000, 0, 3000)
		for now := time.Duration(0); now < 4*time.Second; now += 7 * time.Millisecond {
			due := o.Due(now)
			assert.Must(t, (due <= 0 || schedule.Start(due-1) <= now) && (due >= 3000 || schedule.Start(due) > now),
				"%s: %d requests are due at %v", name, due, now)
			start, more := o.Pace(due, now)
			assert.Must(t, more == (due < 3000) && (!more || start > now), "%s: request %d is due at %v", name, due, now)
		}
	}
	_, another := (Pacer{Constant(1), 100, time.Second}).Pace(0, time.Second)
	assert.That(t, !another, "a request is sent after the end of the duration")
	assert.That(t, (Pacer{Total: 5}).Due(time.Hour) == 0, "a closed loop has a schedule")
}

// manyPerGoroutine serves all clients from one goroutine, as a transport that owns its connections does. The function
// is called for each request before it is done.
type manyPerGoroutine struct {
	w    *worldtest.World
	each func(*Request)
}

func (m manyPerGoroutine) Drive(ctx context.Context, clients int, run *Run) {
	run.NoteIdle(0)
	ready := slices.Collect(func(yield func(int) bool) {
		for client := 0; client < clients && yield(client); client++ {
		}
	})
	for clients > 0 {
		if len(ready) == 0 {
			begin := m.w.Now()
			timer := m.w.NewTimer(run.NextStart() - begin)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			run.NoteIdle(m.w.Now() - begin)
			ready = append(ready, run.Wake())
		}
		client := ready[0]
		switch request, more := run.Ask(client); {
		case !more:
			clients--
		case request != nil:
			if m.each != nil {
				m.each(request)
			}
			run.Done(request, 0, nil)
			ready = append(ready, client)
		}
		ready = ready[1:]
	}
}

// TestWhoMadeARequestLate has loops that are too slow because of what they do themselves, and because all clients wait.
func TestWhoMadeARequestLate(t *testing.T) {
	count := func(transport func(*worldtest.World) Transport) (late, own int) {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			o := options(200, 4).in(w)
			o.Pacer = NewOpenLoop(Constant(2000), 200, 0, 200)
			NewRun(o).Attack(t.Context(), transport(w))
			for _, record := range o.records() {
				if record.Late() {
					late++
					if record.Own {
						own++
					}
				}
			}
		})
		return late, own
	}
	// Request n is due after n/2 ms and sent after n ms.
	busy := func(w *worldtest.World) Transport {
		return manyPerGoroutine{w, func(*Request) { w.Busy(time.Millisecond) }}
	}
	if late, own := count(busy); late != 179 || own != 179 {
		t.Errorf("a transport that is busy itself: %d late, %d of them its own", late, own)
	}
	// Four are sent each 5 ms.
	waits := func(w *worldtest.World) Transport {
		return fake(func(context.Context, int, *Request) (int64, error) {
			w.Await(5 * time.Millisecond)
			return 0, nil
		})
	}
	if late, own := count(waits); late < 180 || own != 0 {
		t.Errorf("while all clients wait: %d late, %d of them by the generator", late, own)
	}
}

// TestAnOpenLoopThatIsEndedEarly: the requests that clients wait for are neither waited for nor sent.
func TestAnOpenLoopThatIsEndedEarly(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		ctx, cancel := w.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		o := options(10, 30).in(w)
		o.Pacer = NewOpenLoop(Constant(0.001), 10, 0, 10)
		result := NewRun(o).Attack(ctx, manyPerGoroutine{w: w})
		assert.That(t, o.records()[0].OK() && result.Due == 1 && result.Took == 30*time.Millisecond, "%+v", result)
	})
}

// TestClientsThatWaitOneAfterTheOther has a queue that is never empty, of which the beginning is dropped at times.
func TestClientsThatWaitOneAfterTheOther(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		o := options(2500, 30).in(w)
		o.Pacer = NewOpenLoop(Constant(5000), 2500, 0, 2500)
		NewRun(o).Attack(t.Context(), manyPerGoroutine{w: w})
		for i, record := range o.records() {
			assert.That(t, record.OK() && record.Lag == 0, "request %d: %+v", i, record)
		}
	})
}

func TestChecksOfCounts(t *testing.T) {
	get := Request{Kind: Range, Request: store.Request{Key: []byte("k")}}
	with := func(change func(*Request)) Request {
		r := get
		change(&r)
		return r
	}
	counts := with(func(r *Request) { r.CountOnly = true })
	span := with(func(r *Request) { r.End = []byte("l") })
	limited := with(func(r *Request) { r.End, r.Limit = []byte("l"), 3 })
	for _, c := range []struct {
		request     Request
		keys, count int64
		right       bool
	}{
		{get, 0, 0, true}, {get, 1, 1, true}, {get, 1, 0, false}, {get, 2, 2, false},
		{get, 0, 1, false}, // a member that hides the key
		{with(func(r *Request) { r.KeysOnly = true }), 1, 1, true},
		{counts, 0, 1, true}, {counts, 1, 1, false},
		{span, 7, 7, true}, {span, 6, 7, false}, {span, 0, -1, false},
		{limited, 3, 7, true}, {limited, 4, 7, false}, {limited, 2, 7, false}, {limited, 2, 2, true},
		{with(func(r *Request) { r.End, r.CountOnly = []byte("l"), true }), 0, 7, true},
		{Request{Kind: Put, Request: get.Request}, 0, 0, true},
	} {
		more := !c.request.CountOnly && c.count > c.keys
		err := c.request.CheckCounts(c.keys, c.count, more)
		assert.That(t, (err == nil) == c.right, "%+v: %d keys of %d: %v", c.request, c.keys, c.count, err)
		assert.That(t, c.request.Kind != Range || c.request.CheckCounts(c.keys, c.count, !more) != nil,
			"%+v: %d keys of %d: the opposite of what it has for more is right too", c.request, c.keys, c.count)
	}
}

func BenchmarkOpenLoop(b *testing.B) { benchmarkOpenLoop(b, Constant(1e9)) }

func BenchmarkPoisson(b *testing.B) {
	benchmarkOpenLoop(b, NewPoisson(1e9, keys.NewDraw(1, keys.StreamArrival).At))
}

func benchmarkOpenLoop(b *testing.B, schedule Schedule) {
	o := options(100_000_000, 1)
	o.Pacer = NewOpenLoop(schedule, 100_000_000, 0, 100_000_000)
	o.Sink = nothing{}
	run := NewRun(o)
	run.began.Store(int64(run.world.Now() - time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		request, more := run.Ask(0)
		if !more {
			break
		}
		run.Done(request, 0, nil)
	}
}

// TestExponential compares it with the logarithm, near the ends of each table entry's numbers too.
func TestExponential(t *testing.T) {
	draw := keys.NewDraw(3, keys.StreamArrival)
	check := func(u float64) {
		got, want := exponential(u), -math.Log(u)
		assert.That(t, math.Abs(got-want) <= 1e-15*max(1, want) && got >= 0, "of %v it is %v, want %v", u, got, want)
	}
	for i := range uint64(100_000) {
		check(draw.At(i))
	}
	for i := range 4 << logarithmBits {
		u := float64(i+1) / (4 << logarithmBits)
		for range 40 {
			check(math.Nextafter(u, 0))
			check(u - 1e-17)
			u /= 2
		}
	}
	check(0x1p-54)
	check(1 - 0x1p-53)
}
