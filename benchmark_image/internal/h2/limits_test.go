package h2

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/store"
)

func TestLimitsOfTheMember(t *testing.T) {
	p := newPeer(t, Options{}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
	var got outcomes
	var all [3]Stream
	for i := range all {
		all[i].Owner = &got
	}
	for i := range 2 {
		if !p.conn.CanStart() {
			t.Errorf("call %d cannot start", i)
		}
		p.start(&all[i], put, 1, 0)
	}
	if p.conn.CanStart() {
		t.Error("three calls at once, two are allowed")
	}
	p.answer(3)
	p.must(p.feed())
	if !p.conn.CanStart() {
		t.Error("the member does not count calls that are over")
	}
	p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
	p.must(p.feed())
	if p.conn.CanStart() || p.conn.Closing() {
		t.Error("no calls are allowed for now")
	}
}

func TestGoAwaySplitsTheCalls(t *testing.T) {
	p := newPeer(t, Options{})
	var kept, refused outcomes
	var all [100]Stream
	for i := range all {
		all[i].Owner = &kept
		if i >= 40 {
			all[i].Owner = &refused
		}
		p.start(&all[i], put, 1, 0)
	}
	p.must(p.framer.WriteGoAway(79, http2.ErrCodeEnhanceYourCalm, nil))
	p.must(p.feed())
	if len(kept.failures) != 0 || len(refused.failures) != 60 || !p.conn.Closing() || p.conn.CanStart() || p.conn.Active() != 40 {
		t.Errorf("%d and %d outcomes, %d under way", len(kept.failures), len(refused.failures), p.conn.Active())
	}
	for _, f := range refused.failures {
		if f.Unknown || f.Code != store.Unavailable || !strings.Contains(f.Text, "ENHANCE_YOUR_CALM") {
			t.Errorf("%+v", f)
		}
	}
	for i := range 40 {
		p.answer(uint32(2*i + 1))
	}
	p.must(p.feed())
	if len(kept.failures) != 40 || p.conn.EOF() != nil {
		t.Errorf("%d outcomes", len(kept.failures))
	}
}

func TestNumbersOfStreamsEnd(t *testing.T) {
	p := newPeer(t, Options{FirstStream: largestStreamID - 2})
	var got outcomes
	var first, last Stream
	first.Owner, last.Owner = &got, &got
	p.start(&first, put, 1, 0)
	p.start(&last, put, 1, 0)
	if p.conn.CanStart() || !p.conn.Closing() {
		t.Error("a stream after the last number")
	}
	p.answer(largestStreamID)
	p.answer(largestStreamID - 2)
	p.must(p.feed())
	if len(got.failures) != 2 || got.failures[0] != nil || got.failures[1] != nil {
		t.Errorf("outcomes %v", got.failures)
	}
}
