package load

import (
	"context"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestAMemberThatStallsKeepsItsOwnRequestsOnly stalls one of three members for a second. What was due there in that
// time takes until its end, and all the rest no time.
func TestAMemberThatStallsKeepsItsOwnRequestsOnly(t *testing.T) {
	const rate, total, stalled, members, from, to = 300, 600, 1, 3, 300 * time.Millisecond, 1300 * time.Millisecond
	for _, clients := range []int{members, 31} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			o := options(total, clients).in(w)
			o.Endpoints, o.Pacer = make([]string, members), NewOpenLoop(Constant(rate), total, 0)
			begin := w.Now()
			var sent [total]int
			NewRun(o).Attack(t.Context(), fake(func(_ context.Context, client int, r *Request) (int64, error) {
				sent[r.Number]++
				assert.That(t, r.Number%members == client%members, "client %d sends request %d", client, r.Number)
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
				assert.Must(t, sent[i] == 1 && record.Outcome == OK && record.Start == Constant(rate).Start(i) &&
					record.Latency()-want <= 1 && record.Latency() >= want && record.Own == record.Waited,
					"%d clients: request %d was sent %d times and took %v, expected %v: %+v", clients, i, sent[i],
					record.Latency(), want, record)
			}
		})
	}
}

// TestAClientThatIsWokenTooLateSendsNothing: it has a request that was due, of a phase that is over, as after a stop of
// the process. What a client sends that is woken as late as usual counts all the same.
func TestAClientThatIsWokenTooLateSendsNothing(t *testing.T) {
	const length = 1001 * time.Millisecond
	starts := Constant(1)
	// woken is what a client gets that had request 1, which is due after 1 s, and asks again that long after the start.
	woken := func(w *worldtest.World, o Options, after time.Duration) (run *Run, request *Request, more bool) {
		o.Spec, o.Targeter = &spec.Spec{Clients: 1}, options(10, 1).Targeter
		run = NewRun(o.in(w))
		run.began.Store(int64(w.Now()))
		first, _ := run.Ask(0)
		assert.Must(t, first != nil && first.Number == 0, "the first one is %+v", first)
		request, more = run.Ask(0)
		assert.Must(t, request == nil && more, "the second one is %+v", request)
		w.Sleep(after)
		request, more = run.Ask(0)
		return run, request, more
	}
	measured := Options{Pacer: NewOpenLoop(starts, 0, length)}
	for _, c := range []struct {
		name  string
		o     Options
		after time.Duration
		sent  bool
	}{
		{"too late", measured, starts.Start(1) + LateAfter + 1, false},
		{"as late as usual", measured, starts.Start(1) + LateAfter, true},
		{"before the end", measured, length - 1, true},
		{"without a duration", Options{Pacer: NewOpenLoop(starts, 2, 0)}, time.Minute, true},
	} {
		worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
			_, request, more := woken(w, c.o, c.after)
			sent := request != nil && request.Number == 1
			assert.That(t, sent == more && sent == c.sent, "%s: %+v, more %v", c.name, request, more)
		})
	}
	warm := Options{
		Warmup: new(NewOpenLoop(starts, 0, length)),
		Pacer:  NewOpenLoop(From{starts, 2, length}, 5, 0),
	}
	worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
		run, request, more := woken(w, warm, length+LateAfter)
		assert.That(t, request == nil && more, "the rest of a warm-up is sent: %+v, more %v", request, more)
		w.Sleep(starts.Start(2) - length - LateAfter)
		request, _ = run.Ask(0)
		assert.That(t, request != nil && request.Number == 2 && !request.warmup, "after the warm-up: %+v", request)
	})
}

// TestClientsGoFromMemberToMember one after the other: what comes together is sent together, to one member.
func TestClientsGoFromMemberToMember(t *testing.T) {
	const members, clients = 3, 30
	var d deal
	d.init(members, clients)
	for round := range 50 {
		for home := range members {
			for client := home; client < clients; client += members {
				number, _, _ := d.next(client, Pacer{Total: 10_000}, 0, 0)
				assert.Must(t, number%members == (home+round)%members, "client %d, round %d: %d", client, round, number)
			}
		}
	}
}

// TestARestThatSpansAStart counts from there on: of the 40 ms after the start at 490 ms, the transport is idle for the
// first 10.
func TestARestThatSpansAStart(t *testing.T) {
	const ms = time.Millisecond
	for _, more := range []time.Duration{0, 10 * ms} { // idle before now
		var r rests
		r.add(0, 0)
		r.add(0, 500*ms)
		r.add(530*ms-more, 530*ms)
		assert.Equal(t, r.mostlyBusy(490*ms, 530*ms), more == 0, "mostly busy, with %v more", more)
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
	assert.That(t, len(r.marks) <= maxMarks, "%d marks", len(r.marks))
	assert.That(t, !r.mostlyBusy(0, minutes*time.Minute) && !r.mostlyBusy(59*time.Second, minutes*time.Minute) &&
		r.mostlyBusy(0, 10*minutes*time.Minute), "%v of rest in %d minutes, with marks %v...", r.total, minutes,
		r.marks[:3])
}
