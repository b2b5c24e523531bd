package fabric

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/model"
)

func twoSwitches(t testing.TB) *network {
	n := newNetwork(t)
	assert.OK(n.t, n.AddSwitch("s1"))
	assert.OK(n.t, n.AddSwitch("s2"))
	params := model.Params{DelayNS: 100_000, RateBPS: 1e9}
	for i, end := range []End{sw("s1"), sw("s1"), sw("s2"), sw("s2")} {
		n.addPort(fmt.Sprint("h", i))
		n.addLink(fmt.Sprint("l", i), port(fmt.Sprint("h", i)), end, params)
	}
	n.addLink("l4", sw("s1"), sw("s2"), params)
	return n
}

// play has a script decide on frames, changes, cuts and partitions. At every moment what was offered to a direction has
// arrived, was dropped for a named cause, or is on its way; at the end no frame is held. A caller that advances only at
// NextDue delivers every frame on time.
func play(t testing.TB, script []byte) {
	n := twoSwitches(t)
	now, handled := int64(0), int64(0)
	for _, sink := range n.sinks {
		sink.check = func(dueNS int64) {
			assert.Must(t, dueNS >= handled, "a frame due at %d is delivered at %d", dueNS, handled)
		}
	}
	for i, code := range script {
		argument := int64(script[(i*7+3)%len(script)])
		now += argument * 1000
		for due, ok := n.NextDue(); ok && due < now; due, ok = n.NextDue() {
			handled = due
			n.Advance(due)
		}
		handled = now
		n.Advance(now)
		link := fmt.Sprintf("l%d", argument%5)
		switch code % 16 {
		case 0:
			assert.OK(n.t, n.SetLinkUp(link, argument%2 == 0, nil, now))
		case 1:
			change := Change{Params: model.Params{DelayNS: 1 + argument*5000, RateBPS: input.Limit(1e6 + argument*1e7),
				QueueBytes: input.Limit(1 + argument*100)}, Restart: true}
			change.Params.Jitter = model.Jitter{Distribution: model.Uniform, NS: 1 + argument*4000, Reorder: argument%3 == 0}
			change.Params.Loss = model.Loss{Model: model.GilbertElliott, GoodToBad: 0.2, BadToGood: 0.5, BadLoss: 1}
			change.Params.Duplication, change.Params.Corruption = float64(argument%4)/4, float64(argument%5)/5
			aqm := model.AQM{Kind: model.CoDel, TargetNS: 1 + argument*1000, IntervalNS: 1 + argument*10_000}
			switch argument % 7 {
			case 2, 3:
				aqm.Kind, aqm.ECN, aqm.Flows, aqm.Quantum = model.FQCoDel, true, input.Limit(argument%6+1), 300
				fallthrough
			case 0, 1:
				change.Params.AQM = aqm
			}
			assert.OK(n.t, change.Params.Check())
			assert.OK(n.t, n.SetLink(link, [2]*Change{&change}, now))
		case 2:
			assert.OK(n.t, n.Partition([][]string{{"h0"}, {fmt.Sprintf("h%d", 1+argument%3)}}))
		case 3:
			n.Heal()
		case 4:
			n.Reset(now)
		default:
			from := int(code) % 4
			to := []byte{0, 1, 2, 3, 255}[argument%5]
			n.Ingress(n.ports[fmt.Sprint("h", from)], frame(to, byte(from), string(script[:i])), now)
		}
		n.checkSchedule()
		if i%20 == 0 {
			n.checkConserved()
		}
	}
	n.checkNothingIsLeft()
}

// TestFramesMayEnterLater: frames that enter up to their LeastDelayNS later than they came, port by port, are
// delivered, dropped and altered as if each had entered at once. Four hosts send to each other over two switches.
func TestFramesMayEnterLater(t *testing.T) {
	drops := uint64(0)
	for seed := range uint64(60) {
		deliver := func(entersLater bool) *network {
			random := rand.New(rand.NewPCG(seed, 6))
			n := twoSwitches(t)
			for i := range 5 {
				change := Change{Params: kinds[[]string{"plain", "chance", "aqm", "reorder"}[random.IntN(4)]]}
				change.Params.DelayNS += random.Int64N(3 * ms)
				change.Params.RateBPS, change.Params.QueueFrames = input.Limit(random.IntN(2)*5e6), 20
				if change.Params.AQM.Kind != model.FIFO {
					change.Params.RateBPS = 5e6
				}
				assert.OK(t, n.SetLink(fmt.Sprint("l", i), [2]*Change{&change, &change}, 0))
			}
			leastNS := n.ports["h0"].LeastDelayNS()
			for _, port := range n.ports {
				leastNS = min(leastNS, port.LeastDelayNS())
			}
			var waiting [4][]delivery // frames that came to a host and have not entered yet
			now, entered := int64(0), int64(0)
			for i := range 1000 {
				now += random.Int64N(ms / 10)
				host, to := random.IntN(4), []byte{0, 1, 2, 3, 255}[random.IntN(5)]
				came := delivery{now, string(frame(to, byte(host), fmt.Sprintf("%0400d", i)))}
				waiting[host] = append(waiting[host], came)
				if entersLater && now+ms/10-entered < leastNS && i < 999 {
					continue
				}
				n.Advance(now)
				for host, frames := range waiting {
					for _, came := range frames {
						n.Ingress(n.ports[fmt.Sprint("h", host)], []byte(came.frame), came.dueNS)
					}
				}
				waiting, entered = [4][]delivery{}, now
			}
			n.checkNothingIsLeft()
			return n
		}
		atOnce, later := deliver(false), deliver(true)
		for name, link := range atOnce.State().Links {
			drops += link.AToB.Drops[DropQueue] + link.BToA.Drops[DropQueue]
			state := later.links[name].state()
			assert.Equal(t, state.AToB.Drops, link.AToB.Drops, "seed %d: drops of %s", seed, name)
			assert.Equal(t, state.BToA.Drops, link.BToA.Drops, "seed %d: drops of %s back", seed, name)
		}
		for name, sink := range atOnce.sinks {
			same := slices.Equal(sink.frames, later.sinks[name].frames)
			assert.That(t, same, "seed %d: %s gets other frames", seed, name)
		}
	}
	assert.That(t, drops > 1000, "only %d frames found a queue full", drops)
}

// FuzzChanges: no sequence of frames, changes, cuts and partitions loses count of a frame or of the frame memory.
func FuzzChanges(f *testing.F) {
	for seed := range byte(100) {
		script := make([]byte, 400)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(script)
		f.Add(script)
	}
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"))
	f.Add(bytes.Repeat([]byte("\x06\x00\x00\x17\x28\x01"), 40))
	f.Fuzz(func(t *testing.T, script []byte) { play(t, script[:min(len(script), 400)]) })
}

func (n *network) checkNothingIsLeft() {
	n.t.Helper()
	n.checkConserved()
	n.Advance(1 << 61)
	n.checkConserved()
	frames := n.pool.Usage().Frames
	assert.Must(n.t, frames == 0, "%d frames leaked", frames)
}

func (n *network) checkConserved() {
	n.t.Helper()
	for name, link := range n.State().Links {
		for _, d := range []DirectionState{link.AToB, link.BToA} {
			sum := d.Frames + uint64(d.InFlight)
			for _, dropped := range d.Drops {
				sum += dropped
			}
			assert.Must(n.t, sum == d.Offered+d.Duplicated, "link %s: offered %d, accounted for %d: %+v", name,
				d.Offered, sum, d)
		}
	}
}

// discard is a sink that keeps nothing, so that only the fabric's own allocations and time are measured.
type discard struct{ frames int }

func (d *discard) Deliver([][]byte, bool, int64) (Drop, int64) {
	d.frames++
	return Delivered, 0
}

// path is host - switch - host, in steady state, and a step that carries one full frame each way.
func path(t testing.TB, params model.Params) (step func(), delivered func() int) {
	n := newNetwork(t)
	assert.OK(n.t, n.AddSwitch("s1"))
	sinks := [2]discard{}
	var ports [2]*Port
	for i, name := range []string{"a", "b"} {
		var err error
		ports[i], err = n.AddPort(name, 1500, &sinks[i])
		assert.OK(n.t, err)
		n.addLink(name, port(name), sw("s1"), params)
	}
	there, back := make([]byte, 1514), make([]byte, 1514)
	copy(there, frame(1, 0, ""))
	copy(back, frame(0, 1, ""))
	now := int64(0)
	step = func() {
		now += 12_112
		n.Advance(now)
		n.Ingress(ports[0], there, now)
		n.Ingress(ports[1], back, now)
	}
	for range 5000 {
		step()
	}
	return step, func() int { return sinks[0].frames + sinks[1].frames }
}

// kinds of links.
var kinds = map[string]model.Params{
	"plain": {DelayNS: 3 * ms, RateBPS: 1e9},
	"chance": {DelayNS: ms, RateBPS: 1e9, Jitter: model.Jitter{Distribution: model.Normal, NS: ms / 4},
		Loss: model.Loss{Model: model.GilbertElliott, GoodToBad: 0.1, BadToGood: 0.1, BadLoss: 0.5}},
	"aqm": {DelayNS: ms, RateBPS: 0.9e9, QueueFrames: 100, Duplication: 0.01, Corruption: 0.01, AQM: model.AQM{
		Kind: model.FQCoDel, TargetNS: ms / 10, IntervalNS: ms, ECN: true, Flows: 1024, Quantum: 1514}},
	"reorder": {DelayNS: ms, Jitter: model.Jitter{Distribution: model.Uniform, NS: ms / 2, Reorder: true},
		Loss: model.Loss{Model: model.Independent, Ratio: 0.1}},
}

func TestPacketPathDoesNotAllocate(t *testing.T) {
	for name, params := range kinds {
		step, delivered := path(t, params)
		before := delivered()
		const steps = 10_000
		assert.Equal(t, testing.AllocsPerRun(steps, step), 0, "%s: allocations for two frames", name)
		got := delivered() - before
		assert.That(t, got >= steps/2, "%s: only %d of %d frames came through", name, got, 2*steps)
	}
}

// TestRoutedNetworksDeliverOnceAndAlongTheRoutes: random networks of switches with loops. What is flooded reaches every
// other port once, and a known station gets its frames after the delays of the routes, there and back.
func TestRoutedNetworksDeliverOnceAndAlongTheRoutes(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		n, count := newNetworkOf(t, 1<<20), 2+random.IntN(6)
		const never = ms * 1000
		delays := make([][]int64, count) // between switches, one way
		for i := range count {
			delays[i] = make([]int64, count)
			assert.OK(t, n.AddSwitch(fmt.Sprint("s", i)))
			n.addPort(fmt.Sprint("h", i))
			n.addLink(fmt.Sprint("l", i), port(fmt.Sprint("h", i)), sw(fmt.Sprint("s", i)), model.Params{})
		}
		for i := range count {
			for j := range i {
				delays[i][j], delays[j][i] = never, never
				if j == i-1 || random.IntN(2) == 0 {
					delays[i][j], delays[j][i] = 1+random.Int64N(ms), 1+random.Int64N(ms)
					assert.OK(t, n.AddLink(LinkSpec{fmt.Sprintf("%d-%d", j, i), sw(fmt.Sprint("s", j)), sw(fmt.Sprint("s", i)),
						model.Params{DelayNS: delays[j][i]}, model.Params{DelayNS: delays[i][j]}}, 0))
				}
			}
		}
		least, routes := shortest(delays)
		assert.OK(t, n.SetRoutes(routes))
		for i := range count {
			n.send(fmt.Sprint("h", i), frame(255, byte(i), "flood"), 0)
			n.Advance(never)
			for j := range count {
				want := 1
				if i == j {
					want = 0
				}
				got := len(n.sinks[fmt.Sprint("h", j)].frames)
				assert.That(t, got == want, "seed %d: h%d got %d frames that h%d flooded", seed, j, got, i)
				n.received(fmt.Sprint("h", j))
			}
		}
		atNS := never
		for i := range count {
			for j := range count {
				if i == j {
					continue
				}
				n.send(fmt.Sprint("h", i), frame(byte(j), byte(i), "x"), atNS)
				n.Advance(atNS + never)
				got, want := n.received(fmt.Sprint("h", j)), fmt.Sprintf("x@%d", atNS+least[i][j])
				atNS += never
				assert.That(t, got == want, "seed %d: from h%d to h%d %s, not %s", seed, i, j, got, want)
			}
		}
		n.checkNothingIsLeft()
	}
}

// shortest has the least sum of delays between any two switches, and routes that take so long.
func shortest(delays [][]int64) (least [][]int64, routes map[string]map[string]string) {
	routes = map[string]map[string]string{}
	for i := range delays {
		least = append(least, append([]int64{}, delays[i]...))
		routes[fmt.Sprint("s", i)] = map[string]string{}
	}
	for via := range delays {
		for i := range delays {
			for j := range delays {
				least[i][j] = min(least[i][j], least[i][via]+least[via][j])
			}
		}
	}
	for i := range delays {
		for j := range delays {
			for next := range delays {
				if i != j && next != i && least[i][j] == delays[i][next]+least[next][j] {
					routes[fmt.Sprint("s", i)][fmt.Sprint("s", j)] = fmt.Sprintf("%d-%d", min(i, next), max(i, next))
				}
			}
		}
	}
	return least, routes
}

// FuzzIngress: no bytes that a host can send crash the fabric, and none stay in it.
func FuzzIngress(f *testing.F) {
	f.Add(frame(1, 0, "x"), frame(255, 1, "y"))
	f.Add([]byte{}, []byte{1})
	f.Add(make([]byte, 14), make([]byte, 1518))
	f.Add(make([]byte, 1519), []byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x81\x00\x00\x05\x86\xdd"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		n := twoSwitches(t)
		for i, bytes := range [][]byte{one, two, one} {
			n.send("h0", bytes, int64(i))
			n.send("h3", bytes, int64(i))
		}
		n.checkNothingIsLeft()
	})
}
