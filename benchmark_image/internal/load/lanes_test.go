package load

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"
)

// TestAMemberThatStallsKeepsItsOwnRequestsOnly stalls one of three members for a second. All that was due there by then
// is late, and all the rest is sent in time.
func TestAMemberThatStallsKeepsItsOwnRequestsOnly(t *testing.T) {
	const rate, total, stalled, members = 300, 600, 1, 3
	for _, clients := range []int{members, 31} {
		late, others := 0, 0
		for chance := 0; chance < 3 && (late < 90 || late > 110 || others > 10); chance++ {
			o := options(total, clients)
			o.Members, o.Pacer = members, NewOpenLoop(Constant(rate), total, 0, total)
			begin := time.Now()
			var sent [total]atomic.Int32
			result := NewRun(o).Attack(t.Context(), fake(func(_ context.Context, client int, r *Request) (int64, error) {
				sent[r.Number].Add(1)
				if r.Number%members != client%members {
					t.Errorf("client %d sends request %d", client, r.Number)
				}
				if r.Number%members == stalled {
					<-time.After(time.Second - time.Since(begin))
				}
				return 0, nil
			}))
			late, others = 0, 0
			for i, record := range result.Records {
				if sent[i].Load() != 1 || !record.OK() || record.Start != Constant(rate).Start(i) {
					t.Fatalf("request %d was sent %d times: %+v", i, sent[i].Load(), record)
				}
				switch slow := record.Latency() > LateAfter; {
				case slow && i%members == stalled:
					late++
				case slow:
					others++
				}
			}
		}
		if late < 90 || late > 110 || others > 10 {
			t.Errorf("%d clients: of 100 requests to the member that stalled %d were slow, of all others %d", clients, late,
				others)
		}
	}
}

// TestFewerClientsThanMembers: each serves all members then.
func TestFewerClientsThanMembers(t *testing.T) {
	o := options(30, 2)
	o.Members, o.Pacer = 3, NewOpenLoop(Constant(1000), 30, 0, 30)
	var byClient [2][3]atomic.Int32
	result := NewRun(o).Attack(t.Context(), fake(func(_ context.Context, client int, r *Request) (int64, error) {
		byClient[client][r.Number%3].Add(1)
		<-time.After(time.Millisecond)
		return 0, nil
	}))
	for client := range byClient {
		for member := range byClient[client] {
			if byClient[client][member].Load() == 0 {
				t.Errorf("client %d sent nothing to member %d", client, member)
			}
		}
	}
	if result.Due != 30 || !result.Records[29].OK() {
		t.Errorf("%d due, the last one %+v", result.Due, result.Records[29])
	}
}

// TestTheAlarmGoesOffEarlierWhenItMust: the client of a member that was slow becomes free while the others wait for
// later requests than its next one.
func TestTheAlarmGoesOffEarlierWhenItMust(t *testing.T) {
	const interval = 100 * time.Millisecond
	best := time.Hour
	for chance := 0; chance < 5 && best > interval/2; chance++ {
		o := options(6, 3)
		o.Members, o.Pacer = 3, NewOpenLoop(Constant(float64(time.Second/interval)), 6, 0, 6)
		result := NewRun(o).Attack(t.Context(), fake(func(_ context.Context, _ int, r *Request) (int64, error) {
			if r.Number == 0 {
				<-time.After(5 * interval / 2) // request 3 is due 50 ms later, requests 4 and 5 after that
			}
			return 0, nil
		}))
		best = min(best, result.Records[3].Lag())
	}
	if best > interval/2 {
		t.Errorf("request 3 starts %v late", best)
	}
}

// TestWhatNobodyWasFreeForWasDue pauses all clients shortly before the end, as a lost connection does: when they come
// back the time is over.
func TestWhatNobodyWasFreeForWasDue(t *testing.T) {
	const sent, due, length = 10, 60, 60 * time.Millisecond
	o := options(due, 1)
	o.Pacer = NewOpenLoop(Constant(1000), 0, length, math.MaxInt)
	result := NewRun(o).Attack(t.Context(), pauseAfter{sent, length})
	lastSent := result.Records[sent-1].OK() && !result.Records[sent].Done()
	if !lastSent || result.Due != due || result.LastDue != length-time.Millisecond {
		t.Errorf("%d requests were due, the last one at %v", result.Due, result.LastDue)
	}
}

// pauseAfter answers the first requests at once, and asks for others only when the time is over.
type pauseAfter struct {
	requests int
	until    time.Duration
}

// Drive implements Transport.
func (p pauseAfter) Drive(_ context.Context, _ int, run *Run) {
	for range p.requests {
		r, _ := run.Next(0)
		run.Done(r, 0, nil)
	}
	time.Sleep(p.until - run.elapsed())
	run.Next(0)
}

// TestAClientThatIsWokenTooLateSendsNothing: it has a request that was due, of a phase that is over, as after a stop of
// the process. What a client sends that is woken as late as usual counts all the same.
func TestAClientThatIsWokenTooLateSendsNothing(t *testing.T) {
	const length = 1001 * time.Millisecond
	starts := Constant(1)
	// woken is what a client is told that had request 1, which is due after 1 s, and asks again that long after the
	// start.
	woken := func(o Options, after time.Duration) (run *Run, request *Request, more bool) {
		o.Total, o.Clients, o.Targeter = 10, 1, options(10, 1).Targeter
		run = NewRun(o)
		run.epoch = time.Now().Add(-length / 2)
		if request, _ = run.Ask(0, nil); request == nil || request.Number != 0 {
			t.Fatalf("the first one is %+v", request)
		}
		if request, more = run.Ask(0, nil); request != nil || !more {
			t.Fatalf("the second one is %+v", request)
		}
		run.epoch = time.Now().Add(-after)
		request, more = run.Ask(0, nil)
		return run, request, more
	}
	measured := Options{Pacer: NewOpenLoop(starts, 0, length, 10)}
	for _, c := range []struct {
		name  string
		o     Options
		after time.Duration
		sent  bool
	}{
		{"too late", measured, length + LateAfter, false},
		{"as late as usual", measured, length + LateAfter/10, true},
		{"before the end", measured, length - LateAfter/10, true},
		{"without a duration", Options{Pacer: NewOpenLoop(starts, 2, 0, 10)}, time.Minute, true},
	} {
		sent := false
		const chances = 5 // this test may be held up itself
		for chance := 0; chance < chances && !sent; chance++ {
			_, request, more := woken(c.o, c.after)
			if sent = request != nil && request.Number == 1; sent != more {
				t.Errorf("%s: %+v, more %v", c.name, request, more)
			}
			if !c.sent {
				break
			}
		}
		if sent != c.sent {
			t.Errorf("%s: sent %v", c.name, sent)
		}
	}
	warm := Options{
		Warmup: &Warmup{Pacer: NewOpenLoop(starts, 0, length, 10), Requests: 2, Length: length},
		Pacer:  NewOpenLoop(From{starts, 2, length}, 5, 0, 10),
	}
	run, request, more := woken(warm, length+LateAfter)
	if request != nil || !more {
		t.Errorf("the rest of a warm-up is sent: %+v, more %v", request, more)
	}
	run.epoch = time.Now().Add(-starts.Start(2))
	if request, _ = run.Ask(0, nil); request == nil || request.Number != 2 || request.warmup {
		t.Errorf("after the warm-up: %+v", request)
	}
}
