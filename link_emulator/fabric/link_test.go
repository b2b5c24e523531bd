package fabric

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/model"
)

func TestSinkOutcomesAreCounted(t *testing.T) {
	n := pair(t, model.Params{})
	for _, outcome := range []Drop{DropDown, DropDevice, DropError, Delivered} {
		n.sinks["b"].outcome = outcome
		n.send("a", frame(1, 0, "x"), 0)
		n.Advance(0)
	}
	state, _ := n.LinkState("l")
	if d := state.AToB.Drops; d[DropDown] != 1 || d[DropDevice] != 1 || d[DropError] != 1 || state.AToB.Frames != 1 {
		t.Errorf("got %+v", state.AToB)
	}
	n.checkNothingIsLeft()
}

func TestLinkDownCutsAndUpCarriesAgain(t *testing.T) {
	n := star(t, 3*ms, 3*ms, 0)
	n.send("h1", frame(255, 1, "hello"), 0)
	n.Advance(10 * ms)
	n.received("h0")
	n.received("h2")
	n.send("h0", frame(1, 0, "in flight"), 10*ms)
	n.must(n.SetLinkUp("l0", false, 11*ms))
	n.send("h0", frame(1, 0, "while down"), 12*ms)
	n.Advance(20 * ms)
	n.expect("h1", "")
	got := n.drops("l0")
	assert.That(t, got[DropCut] == 1 && got[DropDown] == 1, "drops of l0: %v, want cut 1 and down 1", got)
	// What was learned behind l0 is forgotten: this frame is flooded, and lost on l0 only.
	n.send("h1", frame(0, 1, "to nobody"), 20*ms)
	n.Advance(30 * ms)
	n.expect("h2", fmt.Sprintf("to nobody@%d", 23*ms))
	n.must(n.SetLinkUp("l0", true, 30*ms))
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
		n.must(n.SetLink("l0", [2]*Change{&lossy}, 0))
		for range 100 {
			n.send("h0", frame(1, 0, "x"), 0)
			n.Advance(0)
			// marks which were lost
			n.sinks["h1"].frames = append(n.sinks["h1"].frames, delivery{frame: string(frame(0, 0, "|"))})
		}
		return n.received("h1")
	}
	first := received()
	lost := n.drops("l0")[DropLoss]
	again := received()
	assert.That(t, again == first, "the same seed lost other frames")
	state, _ := n.LinkState("l0")
	if d := state.AToB; lost < 30 || lost > 70 || d.Drops[DropLoss] != 2*lost || d.Frames != 200-2*lost {
		t.Errorf("lost %d of 100, then: %+v", lost, d)
	}
	n.checkNothingIsLeft()
}

func TestResetKeepsTheSumRight(t *testing.T) {
	n := star(t, ms, 0)
	n.send("h0", frame(1, 0, "before"), 0)
	n.Advance(2 * ms)
	n.send("h0", frame(1, 0, "across"), 2*ms)
	n.Reset(2 * ms)
	n.sinks["h1"].lateNS = 5
	n.Advance(4 * ms)
	state := n.State()
	d := state.Links["l0"].AToB
	assert.That(t, d.Offered == 1 && d.Frames == 1 && d.InFlight == 0, "l0: %+v", d)
	if d := state.Links["l1"].BToA; d.Lateness.Count != 1 || d.Lateness.MaxNS != 5 {
		t.Errorf("lateness: %d times, max %d", d.Lateness.Count, d.Lateness.MaxNS)
	}
	p := state.Ports["h0"]
	assert.That(t, p.ReceivedFrames == 0, "h0: %+v", p.ReceivedFrames)
	n.checkConserved()
}

// An early frame has no lateness; it is counted: how early at most, and how many were earlier than allowed.
func TestEarlyFramesAreCounted(t *testing.T) {
	n := star(t, 0, 0)
	for _, lateNS := range []int64{5, -3000, -20_000, -20_001, -90_000} {
		n.sinks["h1"].lateNS = lateNS
		n.send("h0", frame(1, 0, "x"), 0)
		n.Advance(0)
	}
	got := n.State().Links["l1"].BToA.Lateness
	assert.That(t, got.Count == 5 && got.MaxNS == 5 && got.EarlyMaxNS == 90_000 && got.TooEarly == 2,
		"count %d, max %d, early max %d, too early %d", got.Count, got.MaxNS, got.EarlyMaxNS, got.TooEarly)
	n.Reset(0)
	found := n.State().Links["l1"].BToA.Lateness
	assert.That(t, found.EarlyMaxNS == 0 && found.TooEarly == 0, "after a reset: %+v", found)
}

// The losses of directions with one seed are independent, and the same names and seed give the same losses.
func TestDirectionsOfOneSeedAreIndependent(t *testing.T) {
	fates := func(seed input.Number) map[string]bool {
		n := star(t, 0, 0)
		lossy := Change{Params: model.Params{Loss: model.Loss{Model: model.Independent, Ratio: 0.5}, Seed: seed}}
		drawn := map[string]bool{}
		for name, link := range n.links {
			n.must(n.SetLink(name, [2]*Change{&lossy, &lossy}, 0))
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
	got := fates(0)
	assert.That(t, len(got) == 8, "four directions of one seed have %d fates", len(got)-4)
	if first, again := fates(7), fates(7); len(first) != 8 || !maps.Equal(first, again) {
		t.Errorf("the same seed and names, other fates:\n%v\n%v", first, again)
	}
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
	n.must(n.Partition([][]string{{"h0"}, {"h1", "h2"}})) // h3 is in no set
	n.send("h0", frame(1, 0, "no"), 1)
	n.send("h1", frame(2, 1, "within"), 1)
	n.send("h3", frame(0, 3, "outside"), 1)
	n.send("h1", frame(255, 1, "all"), 1)
	n.Advance(1)
	n.expect("h0", "outside@1")
	n.expect("h1", "")
	n.expect("h2", "within@1 all@1")
	n.expect("h3", "all@1")
	state, _ := n.LinkState("l1")
	got := state.BToA.Drops[DropPartition]
	assert.That(t, got == 1, "dropped before h1: got %d, want 1", got)
	n.checkConserved()
	n.Heal()
	n.send("h0", frame(1, 0, "again"), 2)
	n.Advance(2)
	n.expect("h1", "again@2")
	n.checkNothingIsLeft()
}

func TestPartitionIsCheckedOnArrival(t *testing.T) {
	n := star(t, ms, ms)
	n.send("h0", frame(1, 0, "in flight when it starts"), 0)
	n.Advance(ms)
	n.must(n.Partition([][]string{{"h0"}, {"h1"}}))
	n.Advance(3 * ms)
	n.send("h0", frame(1, 0, "in flight when it heals"), 3*ms)
	n.Advance(4 * ms)
	n.Heal()
	n.Advance(5 * ms)
	n.expect("h1", fmt.Sprintf("in flight when it heals@%d", 5*ms))
}

func TestNewPartitionReplacesTheOld(t *testing.T) {
	n := star(t, 0, 0, 0)
	n.must(n.Partition([][]string{{"h0"}, {"h1"}, {"h2"}}))
	n.must(n.Partition([][]string{{"h0", "h1"}, {"h2"}}))
	n.send("h0", frame(255, 0, "x"), 0)
	n.Advance(0)
	n.expect("h1", "x@0")
	n.expect("h2", "")
	// A port of the same name is another port.
	n.must(n.RemoveLink("l2", 0))
	n.must(n.RemovePort("h2"))
	n.addPort("h2")
	got := n.State().Partition
	assert.That(t, len(got) == 2 && got["h0"] == 0 && got["h1"] == 0, "got %v, want h0 and h1 in set 0", got)
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
