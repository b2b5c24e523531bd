package model

import (
	"math"
	"slices"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
)

// fates returns, by frame, whether it was lost.
func fates(loss Loss, frames int) (lost []bool) {
	line := newLine(Params{Loss: loss, Seed: 7})
	for i := range frames {
		line.Offer(int64(i), 0, 100)
		lost = append(lost, line.Pop().Lost)
	}
	return lost
}

func share(of []bool) float64 {
	n := 0
	for _, is := range of {
		if is {
			n++
		}
	}
	return float64(n) / float64(len(of))
}

// within: a sample share of n independent draws deviates by more than 5 standard deviations once in two million seeds;
// the seed is fixed.
func within(t *testing.T, what string, got, want, deviation float64) {
	t.Helper()
	assert.That(t, math.Abs(got-want) <= 5*deviation, "%s: got %.6g, want %.6g within %.2g", what, got, want, 5*deviation)
}

func TestLoss(t *testing.T) {
	const n = 200_000
	for _, c := range []struct {
		loss      Loss
		want, row float64 // share, and mean length of a row of losses; 0: not tested
	}{
		{Loss{Model: Independent}, 0, 0},
		{Loss{Model: Independent, Ratio: 0.01}, 0.01, 1 / 0.99},
		{Loss{Model: Independent, Ratio: 0.5}, 0.5, 2},
		{Loss{Model: Independent, Ratio: 1}, 1, 0},
		// Gilbert's own: all is lost in the bad state, so a row is as long as the chain stays there.
		{Loss{Model: GilbertElliott, GoodToBad: 0.01, BadToGood: 0.25, BadLoss: 1}, 0.01 / 0.26, 4},
		{Loss{Model: GilbertElliott, GoodToBad: 0.05, BadToGood: 0.2, GoodLoss: 0.001, BadLoss: 0.5}, 0.2*0.5 + 0.8*0.001, 0},
	} {
		lost := fates(c.loss, n)
		// The states are correlated over 1/(p+r) frames, so there are fewer independent draws than frames.
		correlated := 1.0
		if c.loss.Model == GilbertElliott {
			correlated = 2 / (c.loss.GoodToBad + c.loss.BadToGood)
		}
		within(t, "loss", share(lost), c.want, math.Sqrt(c.want*(1-c.want)/n*correlated))
		rows := 0.0
		for i := 1; i < n; i++ {
			if lost[i] && !lost[i-1] {
				rows++
			}
		}
		if c.row > 0 {
			within(t, "length of a row", share(lost)*n/rows, c.row, math.Sqrt(c.row*(c.row-0.99)/rows))
		}
	}
}

func TestNoFrameIsLostBeforeTheBadStateIsReached(t *testing.T) {
	none := fates(Loss{Model: GilbertElliott, BadToGood: 1, BadLoss: 1}, 1000)
	assert.That(t, share(none) == 0, "a frame was lost in a state that cannot be reached")
	lost := fates(Loss{Model: GilbertElliott, GoodToBad: 1, BadLoss: 1}, 1000)
	assert.That(t, !lost[0] && share(lost) == 0.999,
		"a state that is never left was left, or the first frame did not find the good state")
}

// Jitter that keeps order has the configured distribution however busy the link is, and pushes no frame: on a saturated
// link, 10 ms +- 1 ms of independent draws was 13.7 +- 0.2, since each frame waited for the latest so far.
func TestJitterHoldsAtAnyLoad(t *testing.T) {
	const bytes, rate, frameNS, n = 1250, 1e9, 10_000, 50_000
	for _, c := range []struct {
		jitter    Jitter
		deviation float64 // in parts of the jitter, as is the reach
		inside    float64 // share that is within the jitter of the mean
		reach     int64
	}{
		{Jitter{Distribution: Uniform, NS: ms / 20}, 1 / math.Sqrt(3), 1, 1},
		{Jitter{Distribution: Normal, NS: ms / 20}, 0.9995, 0.6827, normalTail},
		{Jitter{Distribution: Normal, NS: ms, CorrelationNS: leastCorrelation * input.Limit(ms)}, 0.9995, 0.6827, normalTail},
	} {
		for _, gapNS := range []int64{1e9, 3e5, 50_000, 11_000, frameNS} {
			params := Params{DelayNS: 10 * ms, RateBPS: rate, Jitter: c.jitter, Seed: 5}
			line := newLine(params)
			pushed, last, inside := 0, int64(0), make([]bool, n)
			for i := range int64(n) {
				offer(t, line, i*gapNS, bytes)
				dueNS := line.Pop().DueNS
				if dueNS == last {
					pushed++
				}
				last = dueNS
				offNS := max(dueNS-i*gapNS-frameNS-10*ms, i*gapNS+frameNS+10*ms-dueNS)
				inside[i] = offNS <= c.jitter.NS
				assert.Must(t, offNS <= c.reach*c.jitter.NS, "%+v: a delay is off by %d ns", c.jitter, offNS)
			}
			assert.That(t, pushed == 0, "a frame each %d ns: %d of %d frames waited for the one ahead", gapNS, pushed, n)
			// A path is worth as many independent draws as it has correlation times, over 16/pi^2: the integral of its
			// correlation.
			draws := min(n, n*float64(gapNS)/float64(params.Resolved().Jitter.CorrelationNS)/1.62)
			delays, want := line.Delays(), c.deviation*float64(c.jitter.NS)
			assert.That(t, delays.Count == n, "%d frames were drawn, want %d", delays.Count, n)
			within(t, "mean", float64(delays.MeanNS()), float64(10*ms), want/math.Sqrt(draws))
			within(t, "standard deviation", float64(delays.DeviationNS()), want, want/math.Sqrt(draws))
			within(t, "share within the jitter", share(inside), c.inside, math.Sqrt(c.inside*(1-c.inside)/draws))
		}
	}
}

// Two delays correlate as path promises: less and less, and not at all from two correlation times on.
func TestJitterForgetsInItsCorrelationTime(t *testing.T) {
	const n = 25_000
	for _, configured := range []input.Limit{0, input.Limit(3 * ms)} { // the default is 1 ms
		params := Params{DelayNS: ms, Jitter: Jitter{Distribution: Uniform, NS: ms / 10, CorrelationNS: configured}}
		correlationNS := int64(params.Resolved().Jitter.CorrelationNS)
		for _, quarters := range []int64{1, 2, 4, 6, 8, 12} {
			line := newLine(params)
			product := 0.0
			for i := range int64(n) {
				var values [2]float64 // normal again
				for j := range values {
					now := i*4*correlationNS + i%101*correlationNS/101 + int64(j)*quarters*correlationNS/4
					offer(t, line, now, 100)
					inside := float64(line.Pop().DueNS-now-ms) / float64(ms/10)
					values[j] = math.Sqrt2 * math.Erfinv(min(max(inside, -0.99999), 0.99999))
				}
				product += values[0] * values[1] / n
			}
			v := float64(quarters) / 4
			want := (1-v/2)*math.Cos(math.Pi*v/2) + math.Sin(math.Pi*v/2)/math.Pi
			if v >= 2 {
				want = 0
			}
			within(t, "correlation", product, want, math.Sqrt((1+want*want)/n))
		}
	}
}

func TestReorderingOvertakesAndEndsInOrder(t *testing.T) {
	reorder := Params{DelayNS: 10 * ms, Jitter: Jitter{Distribution: Uniform, NS: 10 * ms, Reorder: true}}
	b, nowNS := newBench(reorder), int64(0)
	send := func() {
		nowNS += ms / 10
		b.until(nowNS)
		b.put(nowNS, udp(100, 0, false))
	}
	for range 100 {
		send()
	}
	b.Set(nowNS, Params{DelayNS: ms}) // no jitter any more: frames in flight may overtake, new ones may not
	for range 100 {
		send()
	}
	b.until(1 << 61)
	assert.That(t, !slices.IsSortedFunc(b.out[:100], byHandle), "nothing overtook")
	for i, out := range b.out[100:] {
		assert.Must(t, int(out.handle) == 100+i, "frame %d came out as number %d", out.handle, 100+i)
	}
	assert.That(t, !b.overtaking, "an empty line without reordering still sorts")
}

func byHandle(a, b fate) int { return int(a.handle) - int(b.handle) }

// A change while frames wait does not alter what they, and those behind them, draw; nor does a new seed alter what
// those that wait have drawn.
func TestDrawsDoNotDependOnChangesMeanwhile(t *testing.T) {
	for _, reorder := range []bool{false, true} {
		params := Params{DelayNS: 50 * ms, RateBPS: 1e6,
			Jitter: Jitter{Distribution: Normal, NS: 10 * ms, Reorder: reorder}, Loss: Loss{Model: Independent, Ratio: 0.5}}
		outcome := func(changes ...Params) []fate {
			b := newBench(params)
			for i := range 200 {
				nowNS := 35 * ms * int64(i/100)
				for ; i == 100 && len(changes) > 0; changes = changes[1:] {
					b.Set(nowNS, changes[0]) // the fourth is in service
				}
				b.put(nowNS, udp(1250, 0, false))
			}
			b.until(1 << 61)
			slices.SortFunc(b.out, byHandle)
			return b.out
		}
		untouched := outcome()
		faster := Params{RateBPS: 1e9, DelayNS: 5 * ms, Jitter: Jitter{Distribution: Uniform, NS: ms}}
		assert.That(t, slices.Equal(untouched, outcome(Params{DelayNS: ms}, faster, params)),
			"changes that were taken back altered the draws")
		seeded := params
		seeded.Seed = 9
		restarted := outcome(seeded)
		assert.That(t, slices.Equal(untouched[:100], restarted[:100]), "a new seed altered what frames that wait had drawn")
		assert.That(t, !slices.Equal(untouched[100:], restarted[100:]), "a new seed altered nothing")
	}
}
