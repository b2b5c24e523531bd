package fabric

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/model"
)

func TestSinkOutcomesAreCounted(t *testing.T) {
	n := star(t, 0, 0)
	for _, outcome := range []Drop{DropDown, DropDevice, DropError, Delivered} {
		n.sinks["h1"].outcome = outcome
		n.send("h0", frame(1, 0, "x"), 0)
		n.Advance(0)
	}
	d := n.State().Links["l1"].BToA
	assert.Equal(t, d.Drops, Drops{DropDown: 1, DropDevice: 1, DropError: 1}, "drops of %d frames", d.Frames)
	n.checkNothingIsLeft()
}

func TestLinkDownCutsAndUpCarriesAgain(t *testing.T) {
	n := star(t, 3*ms, 3*ms, 0)
	n.send("h1", frame(255, 1, "hello"), 0)
	n.Advance(10 * ms)
	n.received("h0")
	n.received("h2")
	n.send("h0", frame(1, 0, "in flight"), 10*ms)
	assert.OK(n.t, n.SetLinkUp("l0", false, nil, 11*ms))
	n.send("h0", frame(1, 0, "while down"), 12*ms)
	n.Advance(20 * ms)
	n.expect("h1", "")
	assert.Equal(t, n.State().Links["l0"].AToB.Drops, Drops{DropCut: 1, DropDown: 1}, "drops of l0")
	// What was learned behind l0 is forgotten: this frame is flooded, and lost on l0 only.
	n.send("h1", frame(0, 1, "to nobody"), 20*ms)
	n.Advance(30 * ms)
	n.expect("h2", fmt.Sprintf("to nobody@%d", 23*ms))
	assert.OK(n.t, n.SetLinkUp("l0", true, nil, 30*ms))
	n.send("h0", frame(1, 0, "again"), 30*ms)
	n.Advance(40 * ms)
	n.expect("h1", fmt.Sprintf("again@%d", 36*ms))
	n.checkNothingIsLeft()
}

func TestLossIsACountedDropAndItsSequenceCanBeRestarted(t *testing.T) {
	n := star(t, 0, 0)
	lossy := Change{Params: model.Params{Loss: model.Loss{Model: model.Independent, Ratio: 0.5}, Seed: 3}}
	received := func() string {
		lossy.Restart = true
		assert.OK(n.t, n.SetLink("l0", [2]*Change{&lossy}, 0))
		for range 100 {
			n.send("h0", frame(1, 0, "x"), 0)
			n.Advance(0)
			// marks which were lost
			n.sinks["h1"].frames = append(n.sinks["h1"].frames, delivery{frame: string(frame(0, 0, "|"))})
		}
		return n.received("h1")
	}
	first := received()
	lost := n.State().Links["l0"].AToB.Drops[DropLoss]
	assert.Equal(t, received(), first, "the same seed")
	d := n.State().Links["l0"].AToB
	assert.That(t, lost >= 30 && lost <= 70 && d.Drops[DropLoss] == 2*lost && d.Frames == 200-2*lost,
		"lost %d of 100, then: %+v", lost, d)
	n.checkNothingIsLeft()
}

// TestResetsAndEarlyFrames: an early frame has no lateness; it is counted: how early at most, and how many were earlier
// than allowed.
func TestResetsAndEarlyFrames(t *testing.T) {
	n := star(t, ms, 0)
	n.send("h0", frame(1, 0, "before"), 0)
	n.Advance(2 * ms)
	n.send("h0", frame(1, 0, "across"), 2*ms)
	n.Reset(2 * ms)
	n.sinks["h1"].lateNS = 5
	n.Advance(4 * ms)
	state := n.State()
	d, late := state.Links["l0"].AToB, state.Links["l1"].BToA.Lateness
	assert.That(t, d.Offered == 1 && d.Frames == 1 && d.InFlight == 0 && state.Ports["h0"].ReceivedFrames == 0,
		"%+v of %+v", d, state.Ports["h0"])
	assert.That(t, late.Count == 1 && late.MaxNS == 5, "late %d times, at most %d", late.Count, late.MaxNS)
	for i, lateNS := range []int64{-3000, -20_000, -20_001, -90_000} {
		n.sinks["h1"].lateNS = lateNS
		n.send("h0", frame(1, 0, "x"), int64(4+i)*ms)
		n.Advance(int64(5+i) * ms)
	}
	late = n.State().Links["l1"].BToA.Lateness
	assert.That(t, late.Count == 5 && late.MaxNS == 5 && late.PercentileNS(50) == 0 && late.EarlyMaxNS == 90_000 &&
		late.TooEarly == 2, "count %d, median %d, max %d, early max %d, too early %d", late.Count,
		late.PercentileNS(50), late.MaxNS, late.EarlyMaxNS, late.TooEarly)
	n.Reset(8 * ms)
	late = n.State().Links["l1"].BToA.Lateness
	assert.That(t, late.EarlyMaxNS == 0 && late.TooEarly == 0, "after a reset: %+v", late)
	n.checkConserved()
}

// The losses of directions with one seed are independent, and the same names and seed give the same losses.
func TestDirectionsOfOneSeedAreIndependent(t *testing.T) {
	fates := func(seed int64) map[string]bool {
		n := star(t, 0, 0)
		lossy := Change{Params: model.Params{Loss: model.Loss{Model: model.Independent, Ratio: 0.5}, Seed: seed}}
		drawn := map[string]bool{}
		for name, link := range n.links {
			assert.OK(n.t, n.SetLink(name, [2]*Change{&lossy, &lossy}, 0))
			for side, d := range link.directions {
				text := fmt.Sprint(seed, name, side, " ")
				fate := ""
				for range 64 {
					d.line.Offer(0, 0, 100)
					fate += fmt.Sprint(d.line.Pop().Lost)
				}
				drawn[text+fate], drawn[fate] = true, true
			}
		}
		return drawn
	}
	assert.Equal(t, [2]int{len(fates(0)), len(fates(7))}, [2]int{8, 8}, "four directions, and their fates")
	assert.Equal(t, fates(7), fates(7), "the same seed and names")
}

func TestPartitionSeparatesSetsAndNothingElse(t *testing.T) {
	n := star(t, 0, 0, 0, 0)
	for i := range byte(4) { // all stations are learned
		n.send(fmt.Sprintf("h%d", i), frame(255, i, "hello"), 0)
	}
	n.Advance(0)
	for i := range 4 {
		n.received(fmt.Sprintf("h%d", i))
	}
	assert.OK(n.t, n.Partition([][]string{{"h0"}, {"h1", "h2"}})) // h3 is in no set
	n.send("h0", frame(1, 0, "no"), 1)
	n.send("h1", frame(2, 1, "within"), 1)
	n.send("h3", frame(0, 3, "outside"), 1)
	n.send("h1", frame(255, 1, "all"), 1)
	n.Advance(1)
	n.expect("h0", "outside@1")
	n.expect("h1", "")
	n.expect("h2", "within@1 all@1")
	n.expect("h3", "all@1")
	assert.Equal(t, n.State().Links["l1"].BToA.Drops, Drops{DropPartition: 1}, "dropped before h1")
	n.checkConserved()
	n.Heal()
	n.send("h0", frame(1, 0, "again"), 2)
	n.Advance(2)
	n.expect("h1", "again@2")
	assert.OK(n.t, n.Partition([][]string{{"h0"}, {"h1"}, {"h2"}}))
	assert.OK(n.t, n.Partition([][]string{{"h0", "h1"}, {"h2"}})) // in place of the other
	n.send("h0", frame(255, 0, "x"), 3)
	n.Advance(3)
	n.expect("h1", "x@3")
	n.expect("h2", "")
	// A port of the same name is another port.
	assert.OK(n.t, n.RemoveLink("l2", 3))
	assert.OK(n.t, n.RemovePort("h2"))
	n.addPort("h2")
	assert.Equal(t, n.State().Partition, map[string]int{"h0": 0, "h1": 0}, "sets")
	n.checkNothingIsLeft()
}

func TestPartitionIsCheckedOnArrival(t *testing.T) {
	n := star(t, ms, ms)
	n.send("h0", frame(1, 0, "in flight when it starts"), 0)
	n.Advance(ms)
	assert.OK(n.t, n.Partition([][]string{{"h0"}, {"h1"}}))
	n.Advance(3 * ms)
	n.send("h0", frame(1, 0, "in flight when it heals"), 3*ms)
	n.Advance(4 * ms)
	n.Heal()
	n.Advance(5 * ms)
	n.expect("h1", fmt.Sprintf("in flight when it heals@%d", 5*ms))
}

func TestBuffersExhaustedIsACountedDrop(t *testing.T) {
	n := newNetworkOf(t, 256<<10) // one chunk: 128 ordinary frames
	n.addPort("a")
	n.addPort("b")
	n.addLink("l", port("a"), port("b"), model.Params{DelayNS: ms})
	for range 130 {
		n.send("a", frame(1, 0, strings.Repeat("x", 1000)), 0)
	}
	n.Advance(ms)
	state, _ := n.LinkState("l")
	assert.That(t, state.AToB.Drops[DropBuffers] == 2 && state.AToB.Frames == 128 && state.AToB.Offered == 130,
		"got %+v", state.AToB)
}

// TestWhatALinkChangesIsItsOwn: a flooded frame is stored once; what one link marks, damages and doubles, the others
// deliver as it was sent, once.
func TestWhatALinkChangesIsItsOwn(t *testing.T) {
	n := newNetwork(t)
	assert.OK(t, n.AddSwitch("s1"))
	codel := model.AQM{Kind: model.CoDel, TargetNS: 1, IntervalNS: 1, ECN: true}
	for i, params := range []model.Params{{}, {}, {Corruption: 1}, {Duplication: 1}, {RateBPS: 1e6, AQM: codel}} {
		name := fmt.Sprint("h", i)
		n.addPort(name)
		assert.OK(t, n.AddLink(LinkSpec{name, port(name), sw("s1"), model.Params{}, params}, 0))
	}
	ip := make([]byte, 60)
	copy(ip, frame(255, 0, ""))
	copy(ip, "\x01\x80\xc2\x00\x00\x00")                                        // of a spanning tree: no bridge would pass it on
	copy(ip[12:], []byte{8, 0, 0x45, 1, 0, 46, 0, 0, 0, 0, 64, 17, 0x7a, 0xb9}) // ECT(1)
	marked := bytes.Clone(ip)
	copy(marked[15:], []byte{3})
	copy(marked[24:], []byte{0x7a, 0xb7})
	for range 100 {
		n.send("h0", ip, 0)
	}
	n.Advance(1 << 61)
	for name, want := range map[string]struct{ same, other, marked int }{
		"h1": {100, 0, 0}, "h2": {0, 100, 0}, "h3": {200, 0, 0}, "h4": {28, 0, 72},
	} {
		got := want
		got.same, got.other, got.marked = 0, 0, 0
		for _, delivered := range n.sinks[name].frames {
			switch delivered.frame {
			case string(ip):
				got.same++
			case string(marked):
				got.marked++
			default:
				got.other++
			}
		}
		assert.Equal(t, got, want, "what %s got", name)
	}
	links := n.State().Links
	assert.Equal(t, [3]uint64{links["h2"].BToA.Corrupted, links["h3"].BToA.Duplicated, links["h4"].BToA.Marked},
		[3]uint64{100, 100, 72}, "damaged, doubled, marked")
	n.checkNothingIsLeft()
}

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
		`a_to_b.rate: got "r" with the queue discipline codel, allowed: without one`: {
			DelayNS: 5 * ms, AQM: model.AQM{Kind: model.CoDel, TargetNS: 1, IntervalNS: 1}},
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
