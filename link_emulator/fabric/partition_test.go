package fabric

import (
	"fmt"
	"testing"
)

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
	if got := state.BToA.Drops["partition"]; got != 1 {
		t.Errorf("dropped before h1: got %d, want 1", got)
	}
	n.checkConserved(0)
	n.Heal()
	n.send("h0", frame(1, 0, "again"), 2)
	n.Advance(2)
	n.expect("h1", "again@2")
	if frames, _, _ := n.pool.Usage(); frames != 0 {
		t.Errorf("%d frames leaked", frames)
	}
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
	if got := n.State().Partition; len(got) != 2 || got["h0"] != 0 || got["h1"] != 0 {
		t.Errorf("got %v, want h0 and h1 in set 0", got)
	}
}

func TestPartitionRefusals(t *testing.T) {
	n := star(t, 0, 0)
	n.must(n.Partition([][]string{{"h0"}, {"h1"}}))
	for name, sets := range map[string][][]string{
		"none": {}, "one": {{"h0"}}, "empty": {{"h0"}, {}}, "unknown": {{"h0"}, {"h9"}}, "switch": {{"h0"}, {"s1"}},
		"twice": {{"h0"}, {"h0"}}, "twice in one": {{"h0", "h0"}, {"h1"}},
	} {
		if n.Partition(sets) == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
	if len(n.State().Partition) != 2 {
		t.Error("a refused partition changed the one there was")
	}
}
