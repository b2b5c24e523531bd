package fabric

import (
	"testing"

	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/model"
)

// discard is a sink that keeps nothing, so that only the fabric's own allocations and time are measured.
type discard struct{ frames int }

func (d *discard) Deliver([]byte, int64) (Outcome, int64) {
	d.frames++
	return Delivered, 0
}

// path is host - switch - host with 3 ms links at 1 Gbit/s, in steady state, and a step that carries one frame of a
// length.
func path(t testing.TB, bytes int) (step func(), delivered func() int) {
	pool, err := framepool.New(64<<20, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := New(pool)
	if err := f.AddSwitch("s1"); err != nil {
		t.Fatal(err)
	}
	sinks := [2]discard{}
	var ports [2]*Port
	for i, name := range []string{"a", "b"} {
		if ports[i], err = f.AddPort(name, 1500, &sinks[i]); err != nil {
			t.Fatal(err)
		}
		params := model.Params{DelayNS: 3 * ms, RateBPS: 1e9}
		if err := f.AddLink(name, port(name), sw("s1"), params, params, 0); err != nil {
			t.Fatal(err)
		}
	}
	there, back := make([]byte, bytes), make([]byte, bytes)
	copy(there, frame(1, 0, ""))
	copy(back, frame(0, 1, ""))
	now := int64(0)
	step = func() {
		now += 12_112
		f.Advance(now)
		f.Ingress(ports[0], there, now)
		f.Ingress(ports[1], back, now)
	}
	for range 5000 {
		step()
	}
	return step, func() int { return sinks[0].frames + sinks[1].frames }
}

func TestPacketPathDoesNotAllocate(t *testing.T) {
	step, delivered := path(t, 1514)
	before := delivered()
	const steps = 20_000
	if allocations := testing.AllocsPerRun(steps, step); allocations != 0 {
		t.Errorf("got %v allocations for two frames, want 0", allocations)
	}
	if got := delivered() - before; got < 2*steps {
		t.Errorf("only %d of %d frames came through", got, 2*steps)
	}
}

// Two frames per operation, each over two links and a switch.
func BenchmarkPath64(b *testing.B)   { benchmarkPath(b, 64) }
func BenchmarkPath1514(b *testing.B) { benchmarkPath(b, 1514) }

func benchmarkPath(b *testing.B, bytes int) {
	step, delivered := path(b, bytes)
	before := delivered()
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	b.ReportMetric(float64(delivered()-before)/b.Elapsed().Seconds(), "frames/s")
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
		n.Advance(1 << 61)
		n.checkConserved(0)
		if frames, _, _ := n.pool.Usage(); frames != 0 {
			t.Errorf("%d frames leaked", frames)
		}
	})
}
