package load

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

func schedules(rate float64) map[string]Schedule {
	return map[string]Schedule{
		"constant": Constant(rate),
		"poisson":  NewPoisson(rate, keys.NewDraw(5, keys.StreamArrival).At),
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

func TestPoissonDistances(t *testing.T) {
	const total = 50_000
	for _, rate := range []float64{0.1, 1000, 1e6} {
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
		limit := 1.95 / math.Sqrt(total) // exceeded by chance once in 1000 seeds
		assert.That(t, worst <= limit && distances[0] >= 0, "%v/s: off by %v, at most %v is chance", rate, worst, limit)
		other := NewPoisson(rate, keys.NewDraw(2, keys.StreamArrival).At)
		assert.That(t, other.Start(0) != p.Start(0), "another seed makes the same schedule")
	}
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
		assert.Equal(t, p.Start(number), start, "start of request %d", number)
		due, before := p.Due(start), p.Due(start-1)
		assert.That(t, due == number+1 || p.Start(due-1) == start, "%d are due at the start of request %d", due, number)
		assert.That(t, before <= number && (before == 0 || p.Start(before-1) < start),
			"%d are due before the start of request %d", before, number)
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
	for rate, total := range map[float64]int{500: 2000, 0.1: 1, 3: 12, 1000: 4000} {
		assert.Equal(t, NewOpenLoop(Constant(rate), 0, 4*time.Second).Total, total, "in 4 s at %v/s", rate)
	}
	p := NewPoisson(500, keys.NewDraw(1, keys.StreamArrival).At)
	o := NewOpenLoop(p, 0, 4*time.Second)
	assert.That(t, p.Start(o.Total-1) < 4*time.Second && p.Start(o.Total) >= 4*time.Second && o.Total >= 1700 &&
		o.Total <= 2300, "4 s of a poisson schedule at 500/s have %d requests", o.Total)
	unknown := Pacer{NewPoisson(500, keys.NewDraw(1, keys.StreamArrival).At), math.MaxInt, 4 * time.Second}
	start, more := unknown.Pace(o.Total-1, 0)
	assert.That(t, more && start == p.Start(o.Total-1) && unknown.Due(time.Hour) == o.Total,
		"without a number of requests, the last starts at %v; %d are due", start, unknown.Due(time.Hour))
	_, another := unknown.Pace(o.Total, 0)
	assert.That(t, !another, "a request starts after the end of the duration")
}

func TestDueAgreesWithPace(t *testing.T) {
	for name, schedule := range schedules(1000) {
		o := NewOpenLoop(schedule, 3000, 0)
		for now := time.Duration(0); now < 4*time.Second; now += 7 * time.Millisecond {
			due := o.Due(now)
			assert.Must(t, (due <= 0 || schedule.Start(due-1) <= now) && (due >= 3000 || schedule.Start(due) > now),
				"%s: %d requests are due at %v", name, due, now)
			start, more := o.Pace(due, now)
			assert.Must(t, more == (due < 3000) && (!more || start > now), "%s: request %d is due at %v", name, due, now)
		}
	}
	_, another := (Pacer{Constant(1), 100, time.Second}).Pace(0, time.Second)
	assert.That(t, !another && (Pacer{Total: 5}).Due(time.Hour) == 0,
		"a request is sent after the end of the duration: %v, or a closed loop has a schedule", another)
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
			m.each(request)
			run.Done(request, 0, nil)
			ready = append(ready, client)
		}
		ready = ready[1:]
	}
}

// TestWhoMadeARequestLate has loops that are too slow because of what they do themselves, and because all clients wait.
func TestWhoMadeARequestLate(t *testing.T) {
	for name, c := range map[string]struct {
		transport func(*worldtest.World) Transport
		late, own int
	}{
		"busy itself": {func(w *worldtest.World) Transport { // request n is due after n/2 ms and sent after n ms
			return manyPerGoroutine{w, func(*Request) { w.Busy(time.Millisecond) }}
		}, 179, 179},
		"all clients wait": {func(w *worldtest.World) Transport { // four are sent each 5 ms
			return fake(func(context.Context, int, *Request) (int64, error) {
				w.Await(5 * time.Millisecond)
				return 0, nil
			})
		}, 184, 0},
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			o := options(200, 4).in(w)
			o.Pacer = NewOpenLoop(Constant(2000), 200, 0)
			NewRun(o).Attack(t.Context(), c.transport(w))
			late := slices.DeleteFunc(o.records(), func(r Record) bool { return !r.Late() })
			own := slices.DeleteFunc(slices.Clone(late), func(r Record) bool { return !r.Own })
			assert.Equal(t, [2]int{len(late), len(own)}, [2]int{c.late, c.own}, "%s: late, and by itself", name)
		})
	}
}

// TestAnOpenLoopThatIsEndedEarly: the requests that clients wait for are neither waited for nor sent.
func TestAnOpenLoopThatIsEndedEarly(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		ctx, cancel := w.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		o := options(10, 30).in(w)
		o.Pacer = NewOpenLoop(Constant(0.001), 10, 0)
		result := NewRun(o).Attack(ctx, manyPerGoroutine{w, func(*Request) {}})
		assert.That(t, o.records()[0].Outcome == OK && result.Due == 1 && result.Took == 30*time.Millisecond, "%+v", result)
	})
}

// TestClientsThatWaitOneAfterTheOther has a queue that is never empty, of which the beginning is dropped at times.
func TestClientsThatWaitOneAfterTheOther(t *testing.T) {
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		o := options(2500, 30).in(w)
		o.Pacer = NewOpenLoop(Constant(5000), 2500, 0)
		NewRun(o).Attack(t.Context(), manyPerGoroutine{w, func(*Request) {}})
		for i, record := range o.records() {
			assert.That(t, record.Outcome == OK && record.Lag == 0, "request %d: %+v", i, record)
		}
	})
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
