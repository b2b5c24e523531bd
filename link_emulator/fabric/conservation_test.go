package fabric

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/model"
)

// TestConservation drives two switches with random traffic, changes and cuts: at every moment what was offered to a
// direction has arrived, was dropped for a named cause, or is on its way; at the end no frame is held.
func TestConservation(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		n := twoSwitches(t)
		now := int64(0)
		for range 4000 {
			now += random.Int64N(30_000)
			n.Advance(now)
			from := byte(random.IntN(4))
			to := []byte{0, 1, 2, 3, 255}[random.IntN(5)]
			n.Ingress(n.ports[fmt.Sprintf("h%d", from)], frame(to, from, strings.Repeat("x", random.IntN(1500))), now)
			link := fmt.Sprintf("l%d", random.IntN(5))
			switch random.IntN(100) {
			case 2:
				n.Reset(now)
			case 0:
				n.must(n.SetLinkUp(link, random.IntN(3) > 0, now))
			case 1:
				change := Change{Params: model.Params{DelayNS: 1 + random.Int64N(ms), RateBPS: 1e6 + random.Int64N(1e9),
					QueueFrames: 1 + random.IntN(50)}}
				if random.IntN(2) == 0 {
					change.Params.Jitter = model.Jitter{Distribution: model.Uniform, NS: change.Params.DelayNS,
						Reorder: random.IntN(2) == 0}
					change.Params.Loss = model.Loss{Model: model.Independent, Ratio: 0.1}
				}
				n.must(n.SetLink(link, &change, nil, now))
			}
			n.checkSchedule(seed)
			if random.IntN(50) == 0 {
				n.checkConserved(seed)
			}
		}
		n.Advance(1 << 61)
		n.checkConserved(seed)
		if frames, _, _ := n.pool.Usage(); frames != 0 {
			t.Fatalf("seed %d: %d frames leaked", seed, frames)
		}
	}
}

func twoSwitches(t testing.TB) *network {
	pool, err := framepool.New(64<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	n := &network{Fabric: New(pool), pool: pool, sinks: map[string]*fakeSink{}}
	if testingT, ok := t.(*testing.T); ok {
		n.t = testingT
	}
	for _, name := range []string{"s1", "s2"} {
		if err := n.AddSwitch(name); err != nil {
			t.Fatal(err)
		}
	}
	ends := []End{sw("s1"), sw("s1"), sw("s2"), sw("s2")}
	params := model.Params{DelayNS: 100_000, RateBPS: 1e9}
	for i, end := range ends {
		name := fmt.Sprintf("h%d", i)
		n.sinks[name] = &fakeSink{}
		if _, err := n.AddPort(name, 1500, n.sinks[name]); err != nil {
			t.Fatal(err)
		}
		if err := n.AddLink(fmt.Sprintf("l%d", i), port(name), end, params, params, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.AddLink("l4", sw("s1"), sw("s2"), params, params, 0); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *network) checkConserved(seed uint64) {
	n.t.Helper()
	for name, link := range n.State().Links {
		for _, d := range []DirectionState{link.AToB, link.BToA} {
			sum := d.Frames + uint64(d.InFlight)
			for _, dropped := range d.Drops {
				sum += dropped
			}
			if sum != d.Offered {
				n.t.Fatalf("seed %d: link %s: offered %d, accounted for %d: %+v", seed, name, d.Offered, sum, d)
			}
		}
	}
}
