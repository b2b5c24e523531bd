package loop

import "testing"

// A thread that works all the time leaves its processor to others for more than 5 % of every second.
func TestRestsOfAThreadThatNeverSleeps(t *testing.T) {
	const turnNS, secondNS = int64(7e3), int64(1e9)
	r := rests{}
	restedNS, workedNS, longestNS := int64(0), int64(0), int64(0)
	for now := int64(0); now < secondNS; {
		now += turnNS
		workedNS += turnNS
		r.worked(now)
		if r.due() {
			longestNS, workedNS = max(longestNS, workedNS), 0
			now += restNS + switchNS
			restedNS += restNS
			r.slept(now)
		}
	}
	if share := float64(restedNS) / float64(secondNS); share < 0.06 || share > 0.08 {
		t.Errorf("it rested for %.3f of the time, want 0.06 to 0.08", share)
	}
	if longestNS > 1e6 {
		t.Errorf("it worked for %d ns without a rest", longestNS)
	}
}

func TestSleepsOfAnyLengthCountAsRests(t *testing.T) {
	for _, c := range []struct {
		sleepNS int64
		rests   bool
	}{{8e3, true}, {20e3, false}, {500e3, false}, {switchNS, true}} { // after 100 us of work each
		r, now, rested := rests{}, int64(0), false
		for range 5000 {
			now += 100e3
			r.worked(now)
			rested = rested || r.due()
			now += c.sleepNS
			r.slept(now)
		}
		if rested != c.rests {
			t.Errorf("sleeps of %d ns: it rests: %v, want %v", c.sleepNS, rested, c.rests)
		}
	}
}

// What is saved in a long sleep does not last for the second in which the kernel counts.
func TestLittleIsSavedForLater(t *testing.T) {
	r := rests{}
	r.slept(10e9)
	for now := int64(10e9); now < 10.05e9; now += 10e3 {
		r.worked(now)
	}
	if !r.due() {
		t.Errorf("after 50 ms of work %d ns are owed", r.owedNS)
	}
}

func TestLittleIsOwedAfterAStandstill(t *testing.T) {
	r := rests{}
	r.worked(10e9)
	now, rested := int64(10e9), 0
	for ; r.due(); rested++ {
		now += restNS + switchNS
		r.slept(now)
	}
	if rested != int(mostOwedNS/restNS) {
		t.Errorf("%d rests are due, want %d", rested, mostOwedNS/restNS)
	}
}
