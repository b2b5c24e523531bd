package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/model"
)

const ms = int64(1e6)

// network is a fabric under test whose ports record what they are given.
type network struct {
	*Fabric
	t     testing.TB
	pool  *framepool.Pool
	sinks map[string]*fakeSink
}

type fakeSink struct {
	check   func(dueNS int64) // if there is one
	frames  []delivery
	outcome Drop
	lateNS  int64
}

type delivery struct {
	dueNS int64
	frame string
}

func (s *fakeSink) Deliver(frames [][]byte, _ bool, dueNS int64) (Drop, int64) {
	if s.check != nil {
		s.check(dueNS)
	}
	if s.outcome == Delivered {
		s.frames = append(s.frames, delivery{dueNS, string(bytes.Join(frames, []byte("+")))})
	}
	return s.outcome, s.lateNS
}

func newNetwork(t testing.TB) *network { return newNetworkOf(t, 64<<20) }

// newNetworkOf has so much memory for frames.
func newNetworkOf(t testing.TB, bytes int64) *network {
	t.Helper()
	pool, err := framepool.New(bytes, 0)
	assert.OK(t, err)
	t.Cleanup(pool.Close)
	return &network{Fabric: New(pool), t: t, pool: pool, sinks: map[string]*fakeSink{}}
}

func (n *network) addPort(name string) *Port {
	n.t.Helper()
	n.sinks[name] = &fakeSink{outcome: Delivered}
	port, err := n.AddPort(name, 1500, n.sinks[name])
	assert.OK(n.t, err)
	return port
}

func (n *network) addLink(name string, a, b End, params model.Params) {
	n.t.Helper()
	assert.OK(n.t, n.AddLink(LinkSpec{name, a, b, params, params}, 0))
}

func port(name string) End { return End{Port: name} }

func sw(name string) End { return End{Switch: name} }

// star is a switch s1 with one port h0, h1, ... for each delay, by the links l0, l1, ...
func star(t *testing.T, delays ...int64) *network {
	t.Helper()
	n := newNetwork(t)
	assert.OK(n.t, n.AddSwitch("s1"))
	for i, delay := range delays {
		n.addPort(fmt.Sprintf("h%d", i))
		n.addLink(fmt.Sprintf("l%d", i), port(fmt.Sprintf("h%d", i)), sw("s1"), model.Params{DelayNS: delay})
	}
	return n
}

// frame is an Ethernet frame between stations that are named by small numbers; 255 is broadcast.
func frame(to, from byte, payload string) []byte {
	f := []byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5}
	if to == 255 {
		copy(f, "\xff\xff\xff\xff\xff\xff")
	}
	return append(f, payload...)
}

func (n *network) send(portName string, f []byte, nowNS int64) {
	n.Advance(nowNS)
	n.Ingress(n.ports[portName], f, nowNS)
}

// received takes what the port has got: "payload@due" in order.
func (n *network) received(portName string) string {
	var texts []string
	for _, d := range n.sinks[portName].frames {
		texts = append(texts, fmt.Sprintf("%s@%d", d.frame[headerBytes:], d.dueNS))
	}
	n.sinks[portName].frames = nil
	return strings.Join(texts, " ")
}

func (n *network) expect(portName, want string) {
	n.t.Helper()
	assert.Equal(n.t, n.received(portName), want, "%s received", portName)
}

// TestSwitching has frames that hosts of one switch send, from station to station (255: broadcast), and what h0, h1 and
// h2 receive.
func TestSwitching(t *testing.T) {
	type sent struct {
		host     string
		to, from byte
		payload  string
		atNS     int64
	}
	for name, c := range map[string]struct {
		sent     []sent
		received [3]string
		counted  SwitchCounts
	}{
		"unknown is flooded, known is not": {
			[]sent{{"h0", 1, 0, "a", 0}, {"h1", 0, 1, "b", 10}, {"h0", 1, 0, "c", 20}},
			[3]string{"b@10", "a@0 c@20", "a@0"}, SwitchCounts{Forwarded: 2, Flooded: 1}},
		"what was learned ages": {
			[]sent{{"h1", 0, 1, "x", 0}, {"h0", 1, 0, "y", ageingNS}, {"h0", 1, 0, "z", ageingNS + 1}},
			[3]string{"x@0", "y@300000000000 z@300000000001", "x@0 z@300000000001"}, SwitchCounts{Forwarded: 1, Flooded: 2}},
		"a station that moves is learned again": {
			[]sent{{"h1", 255, 9, "x", 0}, {"h2", 255, 9, "y", 1}, {"h0", 9, 0, "z", 2}},
			[3]string{"x@0 y@1", "y@1", "x@0 z@2"}, SwitchCounts{Forwarded: 1, Flooded: 2}},
		"a frame to its own side is filtered": {
			[]sent{{"h0", 255, 7, "x", 0}, {"h0", 7, 8, "y", 1}}, [3]string{"", "x@0", "x@0"},
			SwitchCounts{Flooded: 1, Filtered: 1}},
	} {
		n := star(t, 0, 0, 0)
		for _, f := range c.sent {
			n.send(f.host, frame(f.to, f.from, f.payload), f.atNS)
			n.Advance(f.atNS)
		}
		received := [3]string{n.received("h0"), n.received("h1"), n.received("h2")}
		assert.Equal(t, received, c.received, "%s: received", name)
		assert.Equal(t, n.State().Switches["s1"], c.counted, "%s", name)
	}
}

// triangle has a host h0, h1, h2 at each of three switches; ab, bc and ca join them.
func triangle(t *testing.T) *network {
	n := newNetwork(t)
	for i, name := range []string{"a", "b", "c"} {
		assert.OK(t, n.AddSwitch(name))
		n.addPort(fmt.Sprint("h", i))
		n.addLink(fmt.Sprint("l", i), port(fmt.Sprint("h", i)), sw(name), model.Params{})
	}
	n.addLink("ab", sw("a"), sw("b"), model.Params{DelayNS: 1})
	n.addLink("bc", sw("b"), sw("c"), model.Params{DelayNS: 10})
	n.addLink("ca", sw("c"), sw("a"), model.Params{DelayNS: 100})
	return n
}

func TestALoopWithoutRoutesRepeatsNothing(t *testing.T) {
	n := triangle(t)
	n.send("h0", frame(255, 0, "x"), 0)
	n.send("h1", frame(0, 1, "y"), 1)
	n.Advance(ms)
	n.expect("h0", "")
	n.expect("h1", "")
	assert.Equal(t, n.State().Switches["b"].NoRoute, 1, "frames to a switch without a route")
	n.checkNothingIsLeft()
}

func TestRoutesDecideAndLinksThatGoAreNotTakenAnyMore(t *testing.T) {
	n := triangle(t)
	// From a to c over b, from c to a directly.
	routes := map[string]map[string]string{
		"a": {"b": "ab", "c": "ab"}, "b": {"a": "ab", "c": "bc"}, "c": {"a": "ca", "b": "bc"}}
	assert.OK(t, n.SetRoutes(routes))
	n.send("h2", frame(255, 2, "f"), 0)
	n.Advance(ms)
	n.expect("h0", "f@11") // in the opposite direction of the route from a
	n.expect("h1", "f@10")
	n.send("h0", frame(2, 0, "x"), ms)
	n.send("h2", frame(0, 2, "y"), ms)
	n.Advance(2 * ms)
	n.expect("h2", fmt.Sprintf("x@%d", ms+11))
	n.expect("h0", fmt.Sprintf("y@%d", ms+100))
	assert.OK(t, n.RemoveLink("ca", 2*ms))
	n.send("h2", frame(0, 2, "z"), 2*ms)
	n.Advance(3 * ms)
	n.expect("h0", "")
	routes["c"]["a"] = "bc"
	assert.OK(t, n.SetRoutes(routes))
	n.send("h2", frame(0, 2, "z"), 3*ms)
	n.Advance(4 * ms)
	n.expect("h0", fmt.Sprintf("z@%d", 3*ms+11))
	for _, wrong := range []map[string]map[string]string{
		{"x": {}}, {"a": {"x": "ab"}}, {"a": {"b": "l0"}}, {"a": {"b": "bc"}}, {"a": {"c": "ab"}},
		{"a": {"c": "ab"}, "b": {"c": "ab"}}, {"a": {"a": "ab", "b": "ab"}},
	} {
		err := n.SetRoutes(wrong)
		assert.That(t, err != nil, "routes %v were taken", wrong)
	}
	n.checkNothingIsLeft()
}

// A link that goes down with other routes: what was on it is lost, what was on its way there follows the new routes
// from the next switch on, also back, and whatever comes later takes them at once; until it comes up with the old ones.
func TestFramesTakeOtherWaysFromTheMomentThatALinkGoesDown(t *testing.T) {
	n := routedTriangle(t) // ab takes 1, bc 10, ca 100
	direct := map[string]map[string]string{
		"a": {"b": "ab", "c": "ab"}, "b": {"a": "ab", "c": "bc"}, "c": {"a": "bc", "b": "bc"}}
	around := map[string]map[string]string{
		"a": {"b": "ab", "c": "ca"}, "b": {"a": "ab", "c": "ab"}, "c": {"a": "ca", "b": "ca"}}
	assert.OK(t, n.SetRoutes(direct))
	for i := range byte(3) { // they learn where each is
		n.send(fmt.Sprint("h", i), frame(255, i, "f"), 0)
	}
	n.Advance(ms)
	for i := range 3 {
		n.received(fmt.Sprint("h", i))
	}
	n.send("h0", frame(2, 0, "lost"), ms)
	n.send("h0", frame(2, 0, "back"), ms+5)
	n.Advance(ms + 5)
	assert.OK(t, n.SetLinkUp("bc", false, around, ms+5))
	n.send("h0", frame(2, 0, "later"), ms+6)
	n.Advance(2 * ms)
	n.expect("h2", fmt.Sprintf("later@%d back@%d", ms+6+100, ms+5+1+1+100))
	assert.Equal(t, n.links["bc"].directions[0].Drops[DropCut], 1, "frames lost on the link")
	assert.Equal(t, n.State().Switches["b"].Filtered, 0, "frames that may not go back")
	assert.OK(t, n.SetLinkUp("bc", true, direct, 2*ms))
	n.send("h0", frame(2, 0, "x"), 2*ms)
	n.Advance(3 * ms)
	n.expect("h2", fmt.Sprintf("x@%d", 2*ms+11))
	err := n.SetLinkUp("bc", false, map[string]map[string]string{"a": {"c": "ab"}}, 3*ms)
	assert.That(t, err != nil && n.links["bc"].adminUp, "refused routes leave a link as it is: %v", err)
	n.checkNothingIsLeft()
}

// What a host flooded before it was unplugged is dropped, since nothing tells any more which way it may take.
func TestAHostThatGoesLeavesNoFrameInARoutedNetwork(t *testing.T) {
	for _, remove := range []func(n *network){
		func(n *network) { assert.OK(t, n.RemoveLink("l0", 0)) },
		func(n *network) {
			n.PortDied(n.ports["h0"], 0)
			assert.OK(t, n.RemoveLink("l0", 0), n.RemovePort("h0"))
		},
	} {
		n := routedTriangle(t)
		n.send("h0", frame(255, 0, "x"), 0)
		n.Advance(0)
		remove(n)
		n.Advance(ms)
		n.expect("h1", "")
		n.checkNothingIsLeft()
	}
}

// A frame that was under way when its station moved, or when its link went down, does not say where the station is.
func TestFramesUnderWayDoNotMoveAStation(t *testing.T) {
	n := routedTriangle(t)
	n.send("h2", frame(255, 9, "old"), 0)
	n.send("h1", frame(255, 9, "new"), 5)
	n.Advance(ms)
	n.received("h1")
	n.send("h0", frame(9, 0, "z"), ms)
	n.Advance(2 * ms)
	n.expect("h1", fmt.Sprintf("z@%d", ms+1))
	n.send("h2", frame(255, 8, "x"), 2*ms)
	n.Advance(2 * ms)
	assert.OK(t, n.SetLinkUp("l2", false, nil, 2*ms))
	n.Advance(3 * ms)
	for address := range n.addresses.behind {
		assert.That(t, address&0xff != 8, "learned behind a link that is down")
	}
}

func routedTriangle(t *testing.T) *network {
	n := triangle(t)
	assert.OK(t, n.SetRoutes(map[string]map[string]string{
		"a": {"b": "ab", "c": "ca"}, "b": {"a": "ab", "c": "bc"}, "c": {"a": "ca", "b": "bc"}}))
	return n
}

func TestMalformedAndOversizeAreDroppedByRule(t *testing.T) {
	n := star(t, 0, 0)
	group := frame(1, 0, "x")
	group[6] |= 1
	for _, f := range [][]byte{nil, make([]byte, headerBytes-1), group,
		frame(1, 0, strings.Repeat("x", 1508)), frame(1, 0, strings.Repeat("x", 1509))} { // MTU and two VLAN tags
		n.send("h0", f, 0)
	}
	n.Advance(0)
	n.Ingress(n.addPort("lone"), frame(1, 0, "x"), 0)
	got, arrived := n.State(), len(n.sinks["h1"].frames) // the one that fits
	assert.That(t, got.Ports["h0"].Dropped == PortDrops{Malformed: 2} && got.Ports["lone"].Dropped.NoLink == 1 &&
		got.Links["l0"].AToB.Drops[DropOversize] == 1 && got.Switches["s1"].InvalidSource == 1 && arrived == 1,
		"%d frames arrived; %+v", arrived, got)
}

// checkSchedule checks that every direction with frames in flight is in the schedule with its next due frame, and that
// NextDue is not later than a frame that is due at a port.
func (n *network) checkSchedule() {
	n.t.Helper()
	next, some := n.NextDue()
	for name, link := range n.links {
		for _, d := range link.directions {
			due, carries := d.line.Next()
			assert.Must(n.t, (d.position != unscheduled) == carries && (!carries || d.dueNS == due),
				"link %s: a frame is due at %d (%v), the schedule says %d", name, due, carries, d.dueNS)
			assert.Must(n.t, !carries || d.to.port == nil || (some && next <= due),
				"link %s: a frame is due at a port at %d, NextDue says %d (%v)", name, due, next, some)
		}
	}
}

func TestHostDeathTakesItsLinkDownAndNothingElse(t *testing.T) {
	n := star(t, 0, 3*ms, 0)
	n.send("h0", frame(255, 0, "x"), 0)
	n.Advance(ms)
	n.PortDied(n.ports["h1"], 2*ms)
	n.Advance(10 * ms)
	n.expect("h1", "")
	n.expect("h2", "x@0")
	n.send("h0", frame(255, 0, "y"), 10*ms)
	n.Advance(20 * ms)
	n.expect("h2", fmt.Sprintf("y@%d", 10*ms))
	state, _ := n.LinkState("l1")
	assert.That(t, !state.Up && state.AdminUp && state.BToA.Drops[DropCut] == 1 && state.BToA.Drops[DropDown] == 1,
		"got %+v", state)
	err := n.RemovePort("h1")
	assert.That(t, err != nil, "a port with a link was removed")
	assert.OK(n.t, n.RemoveLink("l1", 20*ms))
	assert.OK(n.t, n.RemovePort("h1"))
	n.addPort("h1")
	n.addLink("l1", port("h1"), sw("s1"), model.Params{})
	n.send("h0", frame(255, 0, "z"), 20*ms)
	n.Advance(20 * ms)
	n.expect("h1", fmt.Sprintf("z@%d", 20*ms))
}

func TestAddressTableIsBounded(t *testing.T) {
	n := star(t, 0, 0)
	f := frame(255, 0, "")
	for i := range uint32(maxAddresses + 100) {
		binary.BigEndian.PutUint32(f[8:], i)
		n.send("h0", f, int64(i))
	}
	n.Advance(ms)
	assert.Equal(t, len(n.switches["s1"].addresses.behind), maxAddresses, "addresses")
	n.send("h0", f, 2*ageingNS) // the old ones have aged
	n.Advance(2 * ageingNS)
	assert.Equal(t, len(n.switches["s1"].addresses.behind), 1, "addresses after ageing")
}

func TestJumboFramesPassBetweenPortsThatAllowThem(t *testing.T) {
	n := newNetwork(t)
	assert.OK(n.t, n.AddSwitch("s1"))
	for i, mtu := range []int{9000, 9000, 65521, 1500} {
		name := fmt.Sprint("h", i)
		n.addPort(name)
		assert.OK(n.t, n.SetMTU(name, mtu))
		n.addLink(name, port(name), sw("s1"), model.Params{RateBPS: 1e9})
	}
	n.send("h0", frame(255, 0, strings.Repeat("j", 9000)), 0)
	n.send("h2", frame(255, 2, strings.Repeat("g", 65521)), 0)
	n.Advance(10 * ms)
	for name, want := range map[string]struct {
		received int
		oversize uint64
	}{"h0": {0, 1}, "h1": {1, 1}, "h2": {1, 0}, "h3": {0, 2}} {
		got, oversize := len(n.sinks[name].frames), n.State().Links[name].BToA.Drops[DropOversize]
		assert.That(t, got == want.received && oversize == want.oversize, "%s got %d frames, %d were too long; want %+v",
			name, got, oversize, want)
	}
	n.checkNothingIsLeft()
}
