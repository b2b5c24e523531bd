package load

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestAMemberThatStallsKeepsItsOwnRequestsOnly stalls one of three members for a second. What was due there in that
// time takes until its end, and all the rest no time.
func TestAMemberThatStallsKeepsItsOwnRequestsOnly(t *testing.T) {
	const rate, total, stalled, members, from, to = 300, 600, 1, 3, 300 * time.Millisecond, 1300 * time.Millisecond
	for _, clients := range []int{members, 31} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			o := options(total, clients).in(w)
			o.Members, o.Pacer = members, NewOpenLoop(Constant(rate), total, 0, total)
			begin := w.Now()
			var sent [total]int
			NewRun(o).Attack(t.Context(), fake(func(_ context.Context, client int, r *Request) (int64, error) {
				sent[r.Number]++
				if r.Number%members != client%members {
					t.Errorf("client %d sends request %d", client, r.Number)
				}
				if at := w.Now() - begin; r.Number%members == stalled && at >= from && at < to {
					w.Await(to - at)
				}
				return 0, nil
			}))
			for i, record := range o.records() {
				want := time.Duration(1) // of no time, the record has 1 ns
				if start := Constant(rate).Start(i); i%members == stalled && start >= from && start < to {
					want = to - start
				}
				if sent[i] != 1 || !record.OK() || record.Start != Constant(rate).Start(i) || record.Latency()-want > 1 ||
					record.Latency() < want || record.Own() != record.Waited() {
					t.Fatalf("%d clients: request %d was sent %d times and took %v, expected %v: %+v", clients, i, sent[i],
						record.Latency(), want, record)
				}
			}
		})
	}
}

// TestRequestsWithoutAFreeClientWereDue pauses all clients shortly before the end, as a lost connection does: when they
// come back the time is over.
func TestRequestsWithoutAFreeClientWereDue(t *testing.T) {
	const sent, due, length = 10, 60, 60 * time.Millisecond
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		o := options(due, 1).in(w)
		o.Pacer = NewOpenLoop(Constant(1000), 0, length, math.MaxInt)
		result := NewRun(o).Attack(t.Context(), pauseAfter{w, sent, length})
		if result.Due != due || len(o.records()) != sent || !o.records()[sent-1].OK() {
			t.Errorf("%d requests were due, %d were sent", result.Due, len(o.records()))
		}
	})
}

// pauseAfter answers the first requests at once, and asks for others only when the time is over.
type pauseAfter struct {
	w        *worldtest.World
	requests int
	until    time.Duration
}

// Drive implements Transport.
func (p pauseAfter) Drive(ctx context.Context, _ int, run *Run) {
	for range p.requests {
		r, _ := next(ctx, run, 0)
		run.Done(r, 0, nil)
	}
	p.w.Await(p.until - run.elapsed())
	next(ctx, run, 0)
}

// TestAClientThatIsWokenTooLateSendsNothing: it has a request that was due, of a phase that is over, as after a stop of
// the process. What a client sends that is woken as late as usual counts all the same.
func TestAClientThatIsWokenTooLateSendsNothing(t *testing.T) {
	const length = 1001 * time.Millisecond
	starts := Constant(1)
	// woken is what a client gets that had request 1, which is due after 1 s, and asks again that long after the start.
	woken := func(w *worldtest.World, o Options, after time.Duration) (run *Run, request *Request, more bool) {
		o.Clients, o.Targeter = 1, options(10, 1).Targeter
		run = NewRun(o.in(w))
		run.began.Store(int64(w.Now()))
		if request, _ = run.Ask(0); request == nil || request.Number != 0 {
			t.Fatalf("the first one is %+v", request)
		}
		if request, more = run.Ask(0); request != nil || !more {
			t.Fatalf("the second one is %+v", request)
		}
		w.Sleep(after)
		request, more = run.Ask(0)
		return run, request, more
	}
	measured := Options{Pacer: NewOpenLoop(starts, 0, length, 10)}
	for _, c := range []struct {
		name  string
		o     Options
		after time.Duration
		sent  bool
	}{
		{"too late", measured, starts.Start(1) + LateAfter + 1, false},
		{"as late as usual", measured, starts.Start(1) + LateAfter, true},
		{"before the end", measured, length - 1, true},
		{"without a duration", Options{Pacer: NewOpenLoop(starts, 2, 0, 10)}, time.Minute, true},
	} {
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			_, request, more := woken(w, c.o, c.after)
			if sent := request != nil && request.Number == 1; sent != more || sent != c.sent {
				t.Errorf("%s: %+v, more %v", c.name, request, more)
			}
		})
	}
	warm := Options{
		Warmup: &Warmup{Pacer: NewOpenLoop(starts, 0, length, 10), Requests: 2, Length: length},
		Pacer:  NewOpenLoop(From{starts, 2, length}, 5, 0, 10),
	}
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		run, request, more := woken(w, warm, length+LateAfter)
		if request != nil || !more {
			t.Errorf("the rest of a warm-up is sent: %+v, more %v", request, more)
		}
		w.Sleep(starts.Start(2) - length - LateAfter)
		if request, _ = run.Ask(0); request == nil || request.Number != 2 || request.warmup {
			t.Errorf("after the warm-up: %+v", request)
		}
	})
}

// TestTheDeal deals to clients that come in random order, those of one member much more often than the others.
func TestTheDeal(t *testing.T) {
	for _, c := range []struct{ members, clients, total int }{
		{1, 5, 100}, {3, 1, 100}, {3, 2, 101}, {3, 30, 1000}, {3, 31, 1000}, {5, 12, 12},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		var d deal
		d.init(c.members, c.clients)
		pacer := ClosedLoop{Total: c.total}
		seen, shares := make([]bool, c.total), make([]int, c.members)
		for i := range c.total {
			client := random.IntN(c.clients)
			if random.IntN(4) > 0 {
				client -= client % c.members
			}
			number, _, more := d.next(client, pacer, 0, 0)
			if !more || number >= c.total || seen[number] {
				t.Fatalf("%+v: request %d has the number %d, %v", c, i, number, more)
			}
			if c.clients == 1 && number != i {
				t.Errorf("%+v: one client does not send in order: %d at %d", c, number, i)
			}
			seen[number] = true
			shares[number%c.members]++
			if most, least := slices.Max(shares), slices.Min(shares); most-least > c.clients {
				t.Fatalf("%+v: the members got %v", c, shares)
			}
		}
		if _, _, more := d.next(0, pacer, 0, 0); more {
			t.Errorf("%+v: more than all were dealt", c)
		}
	}
}

// TestClientsGoFromMemberToMember one after the other: what comes together is sent together, to one member.
func TestClientsGoFromMemberToMember(t *testing.T) {
	const members, clients = 3, 30
	var d deal
	d.init(members, clients)
	for round := range 50 {
		for home := range members {
			for client := home; client < clients; client += members {
				if number, _, _ := d.next(client, ClosedLoop{Total: 10_000}, 0, 0); number%members != (home+round)%members {
					t.Fatalf("client %d sends number %d in round %d", client, number, round)
				}
			}
		}
	}
}

// TestWhatAWarmupLeavesOut: numbers go on after the largest one that was dealt, at every member.
func TestWhatAWarmupLeavesOut(t *testing.T) {
	d := deal{dealt: []int{5, 2, 3}} // up to number 12
	if first := d.align(); first != 13 {
		t.Errorf("the next number is %d", first)
	}
	for member, want := range []int{15, 13, 14} {
		if got := d.number(member); got != want {
			t.Errorf("member %d goes on with number %d, want %d", member, got, want)
		}
	}
	var none deal
	if none.init(3, 3); none.align() != 0 || none.number(2) != 2 {
		t.Errorf("nothing was dealt, and the next numbers are %v", none.dealt)
	}
}

func TestPauses(t *testing.T) {
	const ms = time.Millisecond
	var p pauses
	if p.cover(5*ms, 500*ms) {
		t.Error("a pause before the first beat")
	}
	for at := ms; at < 100*ms; at += 10 * ms { // to run again at 101 ms
		p.beat(at, at+10*ms)
	}
	p.beat(111*ms, 121*ms) // 10 ms late is not a pause
	for _, c := range []struct {
		start, now time.Duration
		want       bool
	}{
		{105 * ms, 120 * ms, false},
		{120 * ms, 400 * ms, false},
		{121 * ms, 131 * ms, false}, // the next beat may still come
		{121 * ms, 400 * ms, true},  // it has not come
		{200 * ms, 400 * ms, true},
	} {
		if got := p.cover(c.start, c.now); got != c.want {
			t.Errorf("due at %v, at %v: %v", c.start, c.now, got)
		}
	}
	p.beat(1121*ms, 1131*ms)
	p.beat(1131*ms, 1141*ms)
	p.beat(1641*ms, 1651*ms)
	for start := 500 * ms; start < 1700*ms; start += ms {
		want := start <= 1121*ms || start >= 1141*ms && start <= 1641*ms
		if got := p.cover(start, 1650*ms); got != want {
			t.Errorf("due at %v: %v", start, got)
		}
	}
	if got := p.cover(500*ms, 1650*ms); !got {
		t.Error("an earlier start than before is not judged any more")
	}
	if p.forget(1700 * ms); len(p.known) != 0 {
		t.Errorf("%d pauses are kept", len(p.known))
	}
}

func TestRests(t *testing.T) {
	const ms = time.Millisecond
	var r rests
	if r.mostlyBusy(0, time.Hour) {
		t.Error("a transport that does not report its rests is judged")
	}
	r.add(0, 0)
	for at := time.Duration(0); at < 1000*ms; at += 10 * ms { // works for 8 ms, rests for 2 ms
		r.add(at+8*ms, at+10*ms)
	}
	r.add(1000*ms, 2000*ms) // the members stand still
	for at := 2000 * ms; at < 2100*ms; at += 10 * ms {
		r.add(at+2*ms, at+10*ms)
	}
	early := rests{total: 24 * ms, marks: r.marks[:13:13]} // as at 120 ms
	if !early.mostlyBusy(100*ms, 120*ms) {
		t.Error("16 ms of work in 20 are not seen")
	}
	for start := 100 * ms; start < 2090*ms; start += 10 * ms {
		if r.mostlyBusy(start, 2100*ms) { // from 100 ms on 1260 ms of rest in 2000 ms, and later more than that
			t.Errorf("from %v on it had much to do", start)
		}
	}
	if r.mostlyBusy(500*ms, 2100*ms) {
		t.Error("an earlier start than before is not judged any more")
	}
	r.forget(time.Hour)
	if len(r.marks) != 1 {
		t.Errorf("%d marks are kept", len(r.marks))
	}
	// It works from the last mark on.
	if now := 2200 * ms; !r.mostlyBusy(2100*ms, now) {
		t.Error("100 ms of work are not seen")
	}
}

// TestRestsWhileAMemberStallsForLong: no mark may be dropped, but there is not one for each millisecond either.
func TestRestsWhileAMemberStallsForLong(t *testing.T) {
	const ms, minutes = time.Millisecond, 5
	var r rests
	for at := time.Duration(0); at < minutes*time.Minute; at += ms { // half idle in the first minute, then nearly always
		idle := ms / 2
		if at > time.Minute {
			idle = ms * 9 / 10
		}
		if r.add(at+ms-idle, at+ms); len(r.marks) > maxMarks {
			r.forget(0)
		}
	}
	if len(r.marks) > maxMarks {
		t.Errorf("%d marks", len(r.marks))
	}
	if r.mostlyBusy(0, minutes*time.Minute) || r.mostlyBusy(59*time.Second, minutes*time.Minute) || !r.mostlyBusy(0,
		10*minutes*time.Minute) {
		t.Errorf("%v of rest in %d minutes, with marks %v...", r.total, minutes, r.marks[:3])
	}
}
