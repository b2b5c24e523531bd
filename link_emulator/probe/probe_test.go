package probe

import (
	"strings"
	"testing"

	"containernet-env/link_emulator/assert"
)

const twoHosts = `"hosts":[{"name":"a","pid":1,"ip":"10.0.0.1"},{"name":"b","pid":2,"ip":"10.0.0.2"}],"duration_ms":100`

func streams(text string) string { return `{` + twoHosts + `,"streams":[` + text + `]}` }

func TestParseRefusals(t *testing.T) {
	const good = `"from":0,"to":1,"until_us":90,"count":3,"frame_bytes":98`
	for _, c := range []struct{ input, said string }{
		{streams(`{` + good + `,"x":1}`), "x: unknown field"},
		{streams(`{"from":0,"to":0,"until_us":90,"count":3,"frame_bytes":98}`), "streams[0].to: got 0, which sends"},
		{streams(`{"from":0,"to":2,"until_us":90,"count":3,"frame_bytes":98}`),
			"streams[0].to: got 2, allowed: 0 to 1"},
		{streams(`{` + good + `},{"from":0,"to":1,"until_us":9,"frame_bytes":98}`), "streams[1].count: got 0"},
		{streams(`{"from":0,"to":1,"until_us":90,"count":3,"frame_bytes":59}`), "streams[0].frame_bytes: got 59"},
		{streams(`{"from":0,"to":1,"start_us":5,"until_us":4,"count":3,"frame_bytes":98}`),
			"streams[0].until_us: got 4, allowed: 5"},
		{streams(`{"from":0,"to":1,"until_us":90,"count":2000001,"frame_bytes":98},` +
			`{"from":1,"to":0,"until_us":9,"count":2000000,"frame_bytes":98}`),
			"frames of all streams: got 4000001"},
	} {
		_, err := Parse([]byte(c.input))
		assert.That(t, err != nil && strings.Contains(err.Error(), c.said), "%s: got %v, want %q", c.input, err, c.said)
	}
}

func TestMarksAreReadBackFromFramesForThisHostOnly(t *testing.T) {
	here, there := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	frame := newFrame(here, there, minFrame)
	m := Mark{0x0123456789abcdef, warmupStream, 3}
	m.Encode(frame[headerBytes:])
	found, known := decode(frame, here)
	assert.That(t, known && found == m, "got %+v (%v), want %+v", found, known, m)
	_, taken := decode(frame, there)
	assert.That(t, !taken, "a frame that was flooded here was taken")
	const end = headerBytes + MarkBytes
	for length := range end {
		_, ok := decode(frame[:length], here)
		assert.That(t, !ok, "a frame that was cut to %d bytes was taken", length)
	}
	assert.That(t, slotBytes-66 >= end, "a slot of the ring has %d bytes, the mark ends at %d", slotBytes-66, end)
}

// simulate sends a host's streams in simulated time; each frame costs the sender some of it, and so does each pause. It
// returns the stream of each frame.
func simulate(r Request, costNS, lateNS int64) (run *Run, order []uint32) {
	run = NewRun(r, make([][6]byte, 2), 1)
	now := int64(0)
	for dueNS, ok := run.Schedules[0].Next(); ok; dueNS, ok = run.Schedules[0].Next() {
		if now < dueNS {
			now = dueNS + lateNS
		}
		m, _ := decode(run.Schedules[0].Frame(now), [6]byte{})
		order = append(order, m.Stream)
		now += costNS
	}
	return run, order
}

func TestStreamsWithoutAnIntervalTakeTurns(t *testing.T) {
	stream := Stream{To: 1, Count: 50, UntilUS: 1e6, FrameBytes: minFrame}
	_, order := simulate(Request{Streams: []Stream{stream, stream}}, 2000, 0)
	assert.Equal(t, len(order), 100, "frames")
	for i := 1; i < len(order); i++ {
		assert.Must(t, order[i] != order[i-1], "frames %d and %d are of the same stream", i-1, i)
	}
}

func TestALateSenderKeepsThePaceAndEndsInTime(t *testing.T) {
	stream := Stream{To: 1, Count: 1000, IntervalNS: 100_000, UntilUS: 10_000, FrameBytes: minFrame}
	r := Request{Streams: []Stream{stream}}
	run, _ := simulate(r, 3000, 60_000)
	got := run.Streams()[0].Sent
	assert.That(t, got >= 99 && got <= 101, "%d frames in 10 ms, one every 0.1 ms", got)
	run, _ = simulate(r, 500_000, 0)
	// The frame that is under way when the time is over is the last.
	sent := run.Streams()[0].SentNS
	last := sent[len(sent)-1]
	assert.That(t, last <= 10_500_000 && len(sent) <= 22, "%d frames, the last at %d ns", len(sent), last)
}
