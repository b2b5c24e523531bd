package fabric

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"containernet-env/link_emulator/model"
)

// typed is a frame between small numbers (see frame) with a type field and what follows it.
func typed(to, from byte, after string) []byte { return append(frame(to, from, "")[:12], after...) }

// Every kind of frame that is a frame comes out as it went in, whatever is inside.
func TestKindsOfFramesPassUnchanged(t *testing.T) {
	group := func(address, after string) []byte {
		f := typed(0, 0, after)
		copy(f, address)
		return f
	}
	for name, f := range map[string][]byte{
		"ARP request":          typed(255, 0, "\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01"),
		"IPv4":                 typed(1, 0, "\x08\x00E"),
		"IPv6":                 typed(1, 0, "\x86\xdd`"),
		"IPv6 neighbour":       group("\x33\x33\xff\x00\x00\x02", "\x86\xdd`"),
		"VLAN":                 typed(1, 0, "\x81\x00\x00\x05\x08\x00E"),
		"VLAN in VLAN":         typed(1, 0, "\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00E"),
		"VLAN tag cut off":     typed(1, 0, "\x81\x00"),
		"IPv4 multicast":       group("\x01\x00\x5e\x00\x00\x01", "\x08\x00E"),
		"LLDP":                 group("\x01\x80\xc2\x00\x00\x0e", "\x88\xcc\x02"),
		"spanning tree":        group("\x01\x80\xc2\x00\x00\x00", "\x00\x26\x42\x42\x03"),
		"pause":                group("\x01\x80\xc2\x00\x00\x01", "\x88\x08\x00\x01\xff\xff"),
		"header alone":         typed(1, 0, "\x00\x00"),
		"to itself, unknown":   typed(9, 0, "\x08\x00"),
		"of an unknown type":   typed(1, 0, "\xff\xff"),
		"a length that is off": typed(1, 0, "\x05\xdc"),
		"full with a VLAN tag": typed(1, 0, "\x81\x00\x00\x05\x08\x00"+strings.Repeat("x", 1500)),
	} {
		n := star(t, ms, 0)
		n.send("h0", f, 0)
		n.Advance(ms)
		if got := n.sinks["h1"].frames; len(got) != 1 || got[0].frame != string(f) || got[0].dueNS != ms {
			t.Errorf("%s: got %d frames", name, len(got))
		}
		if len(n.sinks["h0"].frames) != 0 {
			t.Errorf("%s: came back to its sender", name)
		}
	}
}

func TestJumboFramesPassBetweenPortsThatAllowThem(t *testing.T) {
	n := newNetwork(t)
	n.must(n.AddSwitch("s1"))
	for i, mtu := range []int{9000, 9000, 65521, 1500} {
		name := fmt.Sprintf("h%d", i)
		n.sinks[name] = &fakeSink{}
		_, err := n.AddPort(name, mtu, n.sinks[name])
		n.must(err)
		n.addLink(fmt.Sprintf("l%d", i), port(name), sw("s1"), model.Params{RateBPS: 1e9})
	}
	jumbo := append(frame(255, 0, ""), bytes.Repeat([]byte("j"), 9000)...)
	n.send("h0", jumbo, 0)
	giant := append(frame(255, 2, ""), bytes.Repeat([]byte("g"), 65521)...)
	n.send("h2", giant, 0)
	n.Advance(10 * ms)
	for name, want := range map[string][]string{"h1": {string(jumbo)}, "h2": {string(jumbo)}, "h3": nil, "h0": nil} {
		var got []string
		for _, d := range n.sinks[name].frames {
			got = append(got, d.frame)
		}
		if fmt.Sprint(len(got)) != fmt.Sprint(len(want)) || len(got) == 1 && got[0] != want[0] {
			t.Errorf("%s got %d frames, want %d", name, len(got), len(want))
		}
	}
	for link, want := range map[string]uint64{"l0": 1, "l1": 1, "l2": 0, "l3": 2} {
		state, err := n.LinkState(link)
		n.must(err)
		if got := state.BToA.Drops["oversize"]; got != want {
			t.Errorf("%s: %d oversize, want %d", link, got, want)
		}
	}
	n.checkConserved(0)
	if frames, _, _ := n.pool.Usage(); frames != 0 {
		t.Errorf("%d frames leaked", frames)
	}
}

// Fifty hosts that broadcast at once: every frame arrives 49 times or is counted where it was lost.
func TestBroadcastStormOfFiftyHosts(t *testing.T) {
	delays := make([]int64, 50)
	for i := range delays {
		delays[i] = int64(i) * 1000
	}
	n := star(t, delays...)
	for round := range int64(20) {
		for i := range 50 {
			n.send(fmt.Sprintf("h%d", i), frame(255, byte(i), "storm"), round*10_000)
		}
	}
	n.Advance(10 * ms)
	for i := range 50 {
		if got := len(n.sinks[fmt.Sprintf("h%d", i)].frames); got != 20*49 {
			t.Errorf("h%d received %d, want %d", i, got, 20*49)
		}
	}
	n.checkConserved(0)
	if frames, _, _ := n.pool.Usage(); frames != 0 {
		t.Errorf("%d frames leaked", frames)
	}
}

// FuzzChanges: no sequence of frames, changes, cuts and partitions loses count of a frame or of the frame memory.
func FuzzChanges(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"))
	f.Add(bytes.Repeat([]byte("\x06\x00\x00\x17\x28\x01"), 40))
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 400)]
		n := twoSwitches(t)
		now := int64(0)
		for i, code := range script {
			argument := int64(script[(i*7+3)%len(script)])
			now += argument * 1000
			n.Advance(now)
			link := fmt.Sprintf("l%d", argument%5)
			switch code % 8 {
			case 0:
				n.must(n.SetLinkUp(link, argument%2 == 0, now))
			case 1:
				change := Change{Params: model.Params{DelayNS: 1 + argument*5000, RateBPS: 1e6 + argument*1e7,
					QueueBytes: 1 + argument*100}, Restart: true}
				change.Params.Jitter = model.Jitter{Distribution: model.Uniform, NS: 1 + argument*4000, Reorder: argument%3 == 0}
				change.Params.Loss = model.Loss{Model: model.GilbertElliott, GoodToBad: 0.2, BadToGood: 0.5, BadLoss: 1}
				n.must(change.Params.Check())
				n.must(n.SetLink(link, &change, nil, now))
			case 2:
				n.must(n.Partition([][]string{{"h0"}, {fmt.Sprintf("h%d", 1+argument%3)}}))
			case 3:
				n.Heal()
			case 4:
				n.Reset(now)
			default:
				from := int(code) % 4
				to := []byte{0, 1, 2, 3, 255}[argument%5]
				n.Ingress(n.ports[fmt.Sprintf("h%d", from)], frame(to, byte(from), string(script[:i])), now)
			}
			n.checkSchedule(0)
		}
		n.checkConserved(0)
		n.Advance(1 << 61)
		n.checkConserved(0)
		if frames, _, _ := n.pool.Usage(); frames != 0 {
			t.Errorf("%d frames leaked", frames)
		}
	})
}
