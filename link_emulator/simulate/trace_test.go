package simulate

import (
	"math"
	"math/rand/v2"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/model"
)

// Each frame has the delay that the trace has when it is stamped, whatever the machine does to the emulator meanwhile.
func TestTracesAreExactOnABusyMachine(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 24))
		machine, err := NewMachine(seed)
		assert.OK(t, err)
		defer machine.Close()
		var hosts [2]*Host
		for i, name := range []string{"h0", "h1"} {
			hosts[i], err = machine.AddHost(name, mtu)
			assert.OK(t, err)
		}
		var times, values []int64
		for ns := int64(0); ns < 100*ms; ns += 1 + random.Int64N(ms) {
			times, values = append(times, ns), append(values, random.Int64N(5*ms))
		}
		trace, err := model.NewTrace("t", model.DelayTrace, 0)
		assert.OK(t, err)
		assert.OK(t, trace.Add(times, values))
		assert.OK(t, trace.End())
		link := fabric.LinkSpec{Name: "l", A: fabric.End{Port: "h0"}, B: fabric.End{Port: "h1"}}
		assert.OK(t, machine.Fabric.AddLink(link, machine.NowNS()))
		startNS := machine.NowNS() + ms
		follows := [2]model.Traces{{Delay: trace, StartNS: startNS}}
		assert.OK(t, machine.Fabric.Follow("l", follows, machine.NowNS()))
		noise := Quiet()
		noise.LateWake = Chance{0.1, 2 * ms}
		for range 5 {
			from := random.Int64N(100 * ms)
			noise.Stalls = append(noise.Stalls, Span{from, from + random.Int64N(10*ms)})
			noise.Unread = append(noise.Unread, Span{from + ms, from + random.Int64N(10*ms)})
		}
		machine.Disturb(noise)
		var dueNS []int64
		sum, received := int64(0), 0
		hosts[1].Received = func(_ []byte, atNS int64) {
			assert.Must(t, atNS >= dueNS[received], "seed %d: frame %d is early", seed, received)
			received++
		}
		lastNS := int64(0)
		for ns := startNS; ns < startNS+100*ms; ns += 1 + random.Int64N(200_000) {
			at := 0
			for at+1 < len(times) && times[at+1] <= ns-startNS {
				at++
			}
			lastNS = max(lastNS, ns+values[at])
			dueNS, sum = append(dueNS, lastNS), sum+lastNS-ns
			machine.At(ns, func(atNS int64) { hosts[0].Send(make([]byte, 100), atNS) })
		}
		assert.OK(t, machine.Run(startNS+200*ms))
		state := machine.Fabric.State().Links["l"].AToB
		assert.Equal(t, received, len(dueNS), "seed %d: frames", seed)
		mean := int64(math.Round(float64(sum) / float64(len(dueNS))))
		assert.Equal(t, state.WireDelay.MeanNS(), mean, "seed %d: mean of the delays", seed)
	}
}
