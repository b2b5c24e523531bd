package fabric

import (
	"fmt"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/model"
)

func newTrace(t *testing.T, name string, kind model.TraceKind, times, values []int64) *model.Trace {
	t.Helper()
	trace, err := model.NewTrace(name, kind, 0)
	assert.OK(t, err)
	assert.OK(t, trace.Add(times, values))
	assert.OK(t, trace.End())
	return trace
}

func TestChangesOfATraceAreExactHoweverLateFramesAreRead(t *testing.T) {
	n := star(t, 5*ms, 5*ms)
	delay := newTrace(t, "d", model.DelayTrace, []int64{0, 10 * ms}, []int64{2 * ms, 7 * ms})
	assert.OK(t, n.Follow("l0", [2]model.Traces{{Delay: delay, StartNS: 0}}, 0))
	n.Advance(50 * ms) // the caller is late
	n.Ingress(n.ports["h0"], frame(1, 0, "before"), 10*ms-1)
	n.Ingress(n.ports["h0"], frame(1, 0, "after"), 10*ms)
	n.Advance(50 * ms)
	n.expect("h1", fmt.Sprintf("before@%d after@%d", 17*ms-1, 22*ms))
	assert.Equal(t, *n.State().Links["l0"].AToB.Traces.Delay, "d", "delay trace of l0")
	assert.That(t, n.State().Links["l0"].BToA.Traces == nil, "the other direction follows something")
	assert.OK(t, n.Follow("l0", [2]model.Traces{}, 60*ms))
	n.send("h0", frame(1, 0, "base"), 61*ms)
	n.Advance(80 * ms)
	n.expect("h1", fmt.Sprintf("base@%d", 71*ms))
	assert.That(t, n.State().Links["l0"].AToB.Traces == nil, "it still follows something")
	n.checkNothingIsLeft()
}

// A frame that is due at a switch is moved before it can be due behind it.
func TestAShortDelayOfATraceIsKeptBehindASwitch(t *testing.T) {
	n := star(t, 5*ms, 5*ms)
	delay := newTrace(t, "d", model.DelayTrace, []int64{0}, []int64{1})
	assert.OK(t, n.Follow("l1", [2]model.Traces{{}, {Delay: delay}}, 0))
	n.send("h0", frame(1, 0, "x"), 0)
	due, _ := n.NextDue()
	assert.Equal(t, due, 5*ms+1, "when it can be due")
}

func TestWhatFollowsATraceCannotBeChanged(t *testing.T) {
	n := star(t, 5*ms)
	delay := newTrace(t, "d", model.DelayTrace, []int64{0}, []int64{2 * ms})
	rate := newTrace(t, "r", model.RateTrace, []int64{0}, []int64{1e6})
	both := [2]model.Traces{{Rate: rate, Delay: delay}}
	assert.OK(t, n.Follow("l0", both, 0))
	for text, params := range map[string]model.Params{
		`a_to_b.delay_ns: got 1 while it follows the trace "d", allowed: 5000000`:  {DelayNS: 1},
		`a_to_b.rate_bps: got 1000 while it follows the trace "r", allowed: 0`:     {DelayNS: 5 * ms, RateBPS: 1000},
		`a_to_b.overhead_bytes: got 24 while it follows the trace "r", allowed: 0`: {DelayNS: 5 * ms, Overhead: 24},
		`a_to_b.delay: got "d" whose least is 2000000, allowed: at least 3000000, by which jitter shortens delays`: {
			DelayNS: 5 * ms, Jitter: model.Jitter{Distribution: model.Uniform, NS: 3 * ms}},
	} {
		err := n.SetLink("l0", [2]*Change{{Params: params}}, 0)
		assert.That(t, err != nil && err.Error() == text, "got %v, want %s", err, text)
	}
	assert.OK(t, n.SetLink("l0", [2]*Change{{Params: model.Params{DelayNS: 5 * ms, QueueFrames: 7}}}, 0))
	for text, traces := range map[string]model.Traces{
		`a_to_b.rate: got "d" of the kind delay, allowed: rate, opportunities`: {Rate: delay},
		`a_to_b.delay: got "r" of the kind rate, allowed: delay`:               {Delay: rate},
	} {
		err := n.Follow("l0", [2]model.Traces{traces}, 0)
		assert.That(t, err != nil && err.Error() == text, "got %v, want %s", err, text)
	}
	assert.Equal(t, n.links["l0"].directions[0].line.Following(), both[0], "what it follows")
}
