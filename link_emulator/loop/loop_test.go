package loop_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/simulate"
)

const msNS = int64(1e6)

// rig joins hosts to one switch, in simulated time.
type rig struct {
	*simulate.Machine
	t     *testing.T
	hosts []*simulate.Host
	got   [][]arrival // by host
}

type arrival struct {
	payload string
	atNS    int64
}

func newRig(t *testing.T, noise simulate.Noise, count int, params model.Params) *rig {
	t.Helper()
	machine, err := simulate.NewMachine(1)
	assert.OK(t, err)
	t.Cleanup(machine.Close)
	r := &rig{Machine: machine, t: t}
	machine.Disturb(noise)
	assert.OK(r.t, machine.Fabric.AddSwitch("s1"))
	for i := range count {
		name := fmt.Sprint("h", i)
		host, err := r.AddHost(name, 1500)
		assert.OK(r.t, err)
		assert.OK(r.t, r.Fabric.AddLink(fabric.LinkSpec{Name: name, A: fabric.End{Port: name}, B: fabric.End{Switch: "s1"},
			AToB: params, BToA: params}, r.NowNS()))
		r.hosts, r.got = append(r.hosts, host), append(r.got, nil)
		host.Received = func(frame []byte, atNS int64) {
			r.got[i] = append(r.got[i], arrival{string(frame[14:]), atNS})
		}
	}
	return r
}

func testFrame(from byte, payload string) []byte {
	return append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, from, 0x88, 0xb5}, payload...)
}

// send has a host send a frame at a time.
func (r *rig) send(host int, payload string, atNS int64) {
	r.At(atNS, func(atNS int64) { r.hosts[host].Send(testFrame(1, payload), atNS) })
}

// run runs until all is quiet.
func (r *rig) run() {
	r.t.Helper()
	assert.OK(r.t, r.Run(1<<62))
}

func (r *rig) link(name string) *fabric.LinkState {
	r.t.Helper()
	state, err := r.Fabric.LinkState(name)
	assert.OK(r.t, err)
	return state
}

// With stamps, without any, and without some: a frame without a stamp counts as read, is not early, and is counted.
func TestFramesArriveAfterTheDelayAndNeverBefore(t *testing.T) {
	for _, c := range []struct {
		unstamped bool
		every     int // so many frames have no stamp
		unmatched uint64
	}{{false, 60, 1}, {true, 60, 60}, {false, 3, 20}} {
		noise := simulate.Quiet()
		noise.Unstamped = c.unstamped
		r := newRig(t, noise, 2, model.Params{DelayNS: 2 * msNS})
		start := r.NowNS()
		for i := range 60 {
			if payload := fmt.Sprint(i); i%c.every == 0 {
				r.At(start+int64(i)*10*msNS, func(int64) { r.hosts[0].SendUnstamped(testFrame(1, payload)) })
			} else {
				r.send(0, payload, start+int64(i)*10*msNS)
			}
		}
		r.run()
		assert.Must(t, len(r.got[1]) == 60, "%+v: %d of 60 frames arrived", c, len(r.got[1]))
		for i, got := range r.got[1] {
			lateNS := got.atNS - start - int64(i)*10*msNS - 4*msNS
			assert.That(t, got.payload == fmt.Sprint(i) && lateNS >= 0 && lateNS <= 30_000,
				"%+v: frame %q for %d, %d ns late", c, got.payload, i, lateNS)
		}
		into, out := r.link("h0").AToB, r.link("h1").BToA
		late := out.Lateness
		assert.That(t, late.Count == 60 && late.TooEarly == 0 && late.EarlyMaxNS == 0 && into.Unmatched == c.unmatched &&
			out.Unmatched == 0, "%+v: lateness of %d frames, %d too early; %d without a stamp", c, late.Count, late.TooEarly,
			into.Unmatched)
		r.Fabric.Reset(r.NowNS())
		assert.Equal(t, r.link("h0").AToB.Unmatched, 0, "%+v: after a reset", c)
	}
}

// piece is what a host hands over at once: so many frames of a flow, of 100 bytes each.
func piece(frames int) []byte {
	data := binary.NativeEndian.AppendUint16([]byte{1, 1, 0, 0}, 100)
	data = binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(data, 34), 16)
	data = append(data, testFrame(1, "")[:12]...)
	data = append(data, 8, 0, 0x45, 0, byte((40+100*frames)>>8), byte(40+100*frames), 0, 0, 0x40, 0, 64, 6, 0, 0)
	data = append(data, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0)
	return append(data, make([]byte, 100*frames)...)
}

// What a host hands over at once are frames of one time, and no reason for others to wait longer.
func TestPiecesAreFramesOfOneTime(t *testing.T) {
	for _, unstamped := range []bool{false, true} {
		noise := simulate.Quiet()
		noise.Offload, noise.Unstamped = true, unstamped
		r := newRig(t, noise, 3, model.Params{DelayNS: msNS})
		start := r.NowNS() + msNS
		reads, before := 0, -1
		r.hosts[0].OnRead = func() { reads++ }
		r.hosts[1].OnRead = func() { before = reads }
		r.At(start, func(atNS int64) {
			for range 20 {
				r.hosts[0].SendPiece(piece(40), atNS)
			}
			r.hosts[0].SendPiece(append([]byte{1, 1}, make([]byte, 50)...), atNS) // no TCP
		})
		r.send(1, "other", start)
		r.run()
		assert.Equal(t, before, 2, "pieces of 40 frames that are read before those of another host")
		into, out := r.link("h0").AToB, r.link("h2").BToA
		assert.Equal(t, into.Offered, uint64(800), "frames of the first link")
		assert.Equal(t, into.Unmatched, map[bool]uint64{true: 800}[unstamped], "frames without a stamp")
		assert.Equal(t, r.Fabric.State().Ports["h0"].Dropped.Malformed, uint64(1), "pieces that are no frames")
		assert.Equal(t, len(r.got[2]), 801, "frames that arrived")
		late := out.Lateness
		assert.That(t, late.Count == 801 && late.TooEarly == 0 && late.EarlyMaxNS == 0, "%d frames, %d ns early", late.Count,
			late.EarlyMaxNS)
	}
}

// Lateness contains the time for which a frame waited to be read, and those behind it are as late.
func TestLatenessContainsTheWaitBeforeTheRead(t *testing.T) {
	noise := simulate.Quiet()
	noise.Stalls = []simulate.Span{{FromNS: 0, ToNS: 30 * msNS}}
	r := newRig(t, noise, 2, model.Params{DelayNS: msNS})
	start := r.NowNS()
	for i := range 20 {
		r.send(0, fmt.Sprint(i), start+1)
	}
	r.run()
	got := r.link("h1").BToA.Lateness
	least := 28 * msNS
	assert.That(t, got.Count == 20 && got.PercentileNS(1) >= least && got.TooEarly == 0,
		"%d frames, the most punctual 1 %% %d ns late, want 20 at least %d ns late", got.Count, got.PercentileNS(1), least)
	state := r.link("h0").AToB
	assert.That(t, state.Unmatched == 0 && state.Offered == 20, "of %d, %d have no stamp", state.Offered, state.Unmatched)
}

func TestInterfaceThatGoesIsReportedAndClosesItsPortOnly(t *testing.T) {
	r := newRig(t, simulate.Quiet(), 3, model.Params{})
	var gone unix.Errno
	r.hosts[2].Died = func(errno unix.Errno, _ int64) { gone = errno }
	r.At(r.NowNS()+1, func(int64) { r.hosts[2].Remove() })
	r.send(0, "alive", r.NowNS()+msNS)
	r.run()
	<-r.hosts[2].Port.Closed()
	got := r.got[1]
	assert.That(t, gone == unix.EBADFD && !r.link("h2").Up && len(got) == 1 && got[0].payload == "alive",
		"gone with %v, its link up: %v, others got %v", gone, r.link("h2").Up, got)
}

func TestIdleLoopSleeps(t *testing.T) {
	r := newRig(t, simulate.Quiet(), 2, model.Params{})
	start := r.NowNS()
	r.send(0, "x", start+1)
	r.At(start+1000*msNS, func(int64) { r.Loop.Post(func(int64) {}) })
	r.run()
	got := r.Loop.Counts().Turns
	assert.That(t, got <= 12 && len(r.got[1]) == 1, "with a frame and a request in a second it turned %d times", got)
}

func TestTimerLatencyIsMeasured(t *testing.T) {
	r := newRig(t, simulate.Quiet(), 2, model.Params{DelayNS: msNS})
	for i := range int64(60) {
		r.send(0, "x", r.NowNS()+i*10*msNS)
	}
	r.run()
	// A wake-up takes from a half to one and a half of that.
	got := r.Loop.TimerNS()
	assert.That(t, got >= simulate.Quiet().WakeNS/2 && got <= 2*simulate.Quiet().WakeNS, "got %d", got)
}

// A thread that forwards without a pause leaves its core to others for more than 5 % of the time, in short pieces.
func TestABusyLoopSleepsNowAndThen(t *testing.T) {
	noise := simulate.Quiet()
	noise.WriteNS = 3000
	r := newRig(t, noise, 2, model.Params{})
	start := r.NowNS()
	for i := range int64(30_000) {
		r.send(0, "x", start+i*3000)
	}
	assert.OK(r.t, r.Run(start+90*msNS))
	got := r.Loop.Counts().Yields
	assert.That(t, got >= 60 && got <= 150, "%d forced sleeps", got) // 90 ms / 14 / 60 us = 107
}

// Under load, frames that come do not end a sleep: the thread reads them before they are due, and none is later for
// that, also while links become shorter.
func TestFramesThatComeUnderLoadDoNotEndASleep(t *testing.T) {
	const frames, changed, judged = 6000, 1000, 2000
	for i, c := range []struct {
		delayNS   [2]int64 // of the sender's link and of the receiver's, after the change
		gapNS     int64
		unstamped bool
		sleeps    float64 // at most, for each frame
	}{
		{[2]int64{2 * msNS, 2 * msNS}, 50_000, false, 1.1}, {[2]int64{400_000, 0}, 50_000, false, 1.4}, // until it is due
		{[2]int64{0, 2 * msNS}, 50_000, false, 2.1}, {[2]int64{100_000, 0}, 50_000, false, 2.1}, // and until it comes
		{[2]int64{2 * msNS, 2 * msNS}, 50_000, true, 2.1},
		{[2]int64{2 * msNS, 2 * msNS}, 4000, false, 1.1}, // more per period than are read from a device at once
	} {
		gapNS := c.gapNS
		noise := simulate.Quiet()
		noise.Unstamped = c.unstamped
		// With reordering, frames on the longer link do not hold back those behind them.
		jitter := model.Jitter{Distribution: model.Uniform, NS: 1, Reorder: true}
		r := newRig(t, noise, 2, model.Params{DelayNS: 2 * msNS, Jitter: jitter})
		start, sleeps := r.NowNS()+1, int64(0)
		for i := range int64(frames) {
			r.send(0, fmt.Sprint(i), start+i*gapNS)
		}
		r.At(start+changed*gapNS+int64(i)*msNS/4, func(int64) { // whenever the devices were polled last
			r.Loop.Post(func(nowNS int64) {
				for i, delayNS := range c.delayNS {
					change := fabric.Change{Params: model.Params{DelayNS: delayNS + gapNS/4, Jitter: jitter}} // due while none comes
					assert.OK(t, r.Fabric.SetLink(fmt.Sprint("h", i), [2]*fabric.Change{&change, &change}, nowNS))
				}
			})
		})
		r.At(start+judged*gapNS, func(int64) { sleeps = r.Switches() })
		r.run()
		late := r.link("h1").BToA.Lateness.MaxNS
		for _, got := range r.got[1] {
			number, err := strconv.Atoi(got.payload)
			assert.OK(t, err)
			if sentNS := start + int64(number)*gapNS; number >= judged {
				late = max(late, got.atNS-sentNS-c.delayNS[0]-c.delayNS[1]-gapNS/2)
			}
		}
		each := float64(r.Switches()-sleeps) / (frames - judged)
		assert.That(t, len(r.got[1]) == frames && late <= 30_000 && each <= c.sleeps, "%+v: %d frames, %d ns late, %f sleeps",
			c, len(r.got[1]), late, each)
	}
}

// Frames that are due long ago when they are read go out a few at a time, not one by one: reads and writes in turns
// cost a saturated emulator a third of what it carries.
func TestLateFramesGoOutTogether(t *testing.T) {
	const frames = 60
	noise := simulate.Quiet()
	noise.Stalls = []simulate.Span{{FromNS: 0, ToNS: 2 * loop.BehindNS}}
	r := newRig(t, noise, 2, model.Params{DelayNS: 1000})
	var done []byte
	r.hosts[0].OnRead = func() { done = append(done, 'r') }
	received := r.hosts[1].Received
	r.hosts[1].Received = func(frame []byte, atNS int64) {
		done = append(done, 'w')
		received(frame, atNS)
	}
	for i := range frames {
		r.send(0, fmt.Sprint(i), r.NowNS()+1)
	}
	r.run()
	turns := strings.Count(string(done), "rw") // of reading and writing
	assert.That(t, len(r.got[1]) == frames && turns <= frames/8, "%d frames in %d turns: %s", len(r.got[1]), turns, done)
}
