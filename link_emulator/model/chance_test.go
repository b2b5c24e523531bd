package model

import (
	"math"
	"slices"
	"testing"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/input"
)

// fates offers frames that are too far apart for their delays to correlate, and returns, by frame, its delay and
// whether it was lost.
func fates(params Params, frames int) (delays []int64, lost []bool) {
	params.Seed = 7
	line := newLine(params)
	for i := range frames {
		now := int64(i) * 2 * usualCorrelation * max(params.DelayNS, 1)
		line.Offer(now, 0, 100)
		f := line.Pop()
		delays, lost = append(delays, f.DueNS-now), append(lost, f.Lost)
	}
	return delays, lost
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
		_, lost := fates(Params{Loss: c.loss}, n)
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
	_, none := fates(Params{Loss: Loss{Model: GilbertElliott, BadToGood: 1, BadLoss: 1}}, 1000)
	assert.That(t, share(none) == 0, "a frame was lost in a state that cannot be reached")
	_, lost := fates(Params{Loss: Loss{Model: GilbertElliott, GoodToBad: 1, BadLoss: 1}}, 1000)
	assert.That(t, !lost[0] && share(lost) == 0.999,
		"a state that is never left was left, or the first frame did not find the good state")
}

func moments(values []int64) (mean, deviation float64) {
	for _, v := range values {
		mean += float64(v) / float64(len(values))
	}
	for _, v := range values {
		deviation += (float64(v) - mean) * (float64(v) - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation)
}

func TestJitter(t *testing.T) {
	const n = 100_000
	for _, c := range []struct {
		distribution Distribution
		deviation    float64 // in ms
		inside       float64 // share within one ms of the mean
		reach        int64   // in ms
	}{{Uniform, 1 / math.Sqrt(3), 1, 1}, {Normal, 0.9995, 0.6827, 4}} {
		delays, _ := fates(Params{DelayNS: 4 * ms, Jitter: Jitter{Distribution: c.distribution, NS: ms}}, n)
		mean, deviation := moments(delays)
		want := c.deviation * float64(ms)
		within(t, "mean", mean, float64(4*ms), want/math.Sqrt(n))
		within(t, "standard deviation", deviation, want, want/math.Sqrt(n))
		inside := make([]bool, n)
		for i, d := range delays {
			inside[i] = d >= 3*ms && d <= 5*ms
		}
		within(t, "share within a millisecond", share(inside), c.inside, math.Sqrt(c.inside*(1-c.inside)/n))
		low, high := slices.Min(delays), slices.Max(delays)
		assert.That(t, low >= (4-c.reach)*ms && high <= (4+c.reach)*ms &&
			(c.distribution != Uniform || high-low >= 2*ms-2000), "delays from %d to %d", low, high)
	}
}

// Jitter that keeps order has the configured mean and deviation however busy the link is, and pushes no frame: on a
// saturated link, 10 ms +- 1 ms of independent draws was 13.7 +- 0.2, since each frame waited for the latest so far.
func TestJitterHoldsAtAnyLoad(t *testing.T) {
	const bytes, rate, n = 1250, 1e9, 50_000 // 10 us each
	for _, distribution := range []Distribution{Uniform, Normal} {
		for _, gapNS := range []int64{1e9, 3e5, 50_000, 11_000, 10_000} {
			jitter := Jitter{Distribution: distribution, NS: ms / 20}
			line := newLine(Params{DelayNS: 10 * ms, RateBPS: rate, Jitter: jitter, Seed: 5})
			want := float64(jitter.NS)
			if distribution == Uniform {
				want /= math.Sqrt(3)
			}
			pushed, last := 0, int64(0)
			for i := range int64(n) {
				offer(t, line, i*gapNS, bytes)
				if f := line.Pop(); f.DueNS == last {
					pushed++
				} else {
					last = f.DueNS
				}
			}
			assert.That(t, pushed == 0, "a frame each %d ns: %d of %d frames waited for the one ahead", gapNS, pushed, n)
			// A path is worth as many independent draws as it has correlation times, over 16/pi^2: the integral of its
			// correlation.
			draws := min(n, n*float64(gapNS)/float64(usualCorrelation*jitter.NS)/1.62)
			delays := line.Delays()
			assert.That(t, delays.Count == n, "%d frames were drawn, want %d", delays.Count, n)
			within(t, "mean", float64(delays.MeanNS()), float64(10*ms), want/math.Sqrt(draws))
			within(t, "standard deviation", float64(delays.DeviationNS()), want, want/math.Sqrt(draws))
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

// The delay falls less fast than time passes at the least correlation time that is allowed.
func TestLeastCorrelationKeepsOrder(t *testing.T) {
	least := Jitter{Distribution: Normal, NS: ms, CorrelationNS: input.Limit(leastCorrelation * ms)}
	line := newLine(Params{DelayNS: 4 * ms, Jitter: least})
	last := int64(0)
	for i := range int64(200_000) {
		offer(t, line, i*ms/10, 100)
		if f := line.Pop(); f.DueNS == last {
			t.Fatalf("frame %d waits for the one ahead", i)
		} else {
			last = f.DueNS
		}
	}
}

func TestReorderingOvertakesAndEndsInOrder(t *testing.T) {
	reorder := Params{DelayNS: 10 * ms, Jitter: Jitter{Distribution: Uniform, NS: 10 * ms, Reorder: true}}
	r := &run{Line: newLine(reorder)}
	for range 100 {
		r.now += ms / 10
		r.offer(100)
	}
	r.Set(r.now, Params{DelayNS: ms}) // no jitter any more: frames in flight may overtake, new ones may not
	for range 100 {
		r.now += ms / 10
		r.advance()
		r.offer(100)
	}
	r.drain()
	assert.That(t, !slices.IsSortedFunc(r.popped[:100], byHandle), "nothing overtook")
	for i, out := range r.popped[100:] {
		assert.Must(t, int(out.handle) == 100+i, "frame %d came out as number %d", out.handle, 100+i)
	}
	assert.That(t, !r.overtaking, "an empty line without reordering still sorts")
}

// A change while frames wait does not alter what they, and those behind them, draw; nor does a new seed alter what
// those that wait have drawn.
func TestDrawsDoNotDependOnChangesMeanwhile(t *testing.T) {
	for _, reorder := range []bool{false, true} {
		params := Params{DelayNS: 50 * ms, RateBPS: 1e6,
			Jitter: Jitter{Distribution: Normal, NS: 10 * ms, Reorder: reorder}, Loss: Loss{Model: Independent, Ratio: 0.5}}
		outcome := func(changes ...Params) (popped []record) {
			r := &run{Line: newLine(params)}
			for i := range 200 {
				for r.now = 35 * ms * int64(i/100); i == 100 && len(changes) > 0; changes = changes[1:] {
					r.Set(r.now, changes[0]) // the fourth is in service
				}
				r.offer(1250)
			}
			r.drain()
			slices.SortFunc(r.popped, byHandle)
			return r.popped
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
