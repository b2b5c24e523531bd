package loop

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/clock"
	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/netns"
)

// deadline bounds every wait; it is far beyond what anything here takes.
const deadline = 10 * time.Second

// rig is a running loop whose devices are socket pairs.
type rig struct {
	*Loop
	t      *testing.T
	stamps bool
	fabric *fabric.Fabric
	hosts  []*device.Fake
	ports  []*Port
	died   chan string
	wrap   func(device.Device) device.Device // nil: devices are attached as they are
}

// newRig joins count hosts to one switch by links of the given parameters. stamps: their devices have stamps.
func newRig(t *testing.T, stamps bool, count int, params model.Params) *rig {
	t.Helper()
	pool, err := framepool.New(8<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fabric: fabric.New(pool), died: make(chan string, 8)}
	r.stamps = stamps
	if r.Loop, err = New(r.fabric, func(err error) { t.Errorf("the loop failed: %v", err) }); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !r.stopping {
			r.Stop()
		}
		pool.Close()
	})
	r.must(func(int64) error { return r.fabric.AddSwitch("s1") })
	for i := range count {
		r.attach(fmt.Sprintf("h%d", i), -1, params)
	}
	return r
}

func (r *rig) must(fn func(nowNS int64) error) {
	r.t.Helper()
	var err error
	r.Do(func(nowNS int64) { err = fn(nowNS) })
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) attach(name string, pidfd int, params model.Params) {
	r.t.Helper()
	near, far, err := device.NewFakePair(r.stamps)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { far.Close() })
	var attached device.Device = near
	if r.wrap != nil {
		attached = r.wrap(near)
	}
	r.must(func(nowNS int64) error {
		port, err := r.Attach(name, 1500, attached, pidfd, func(gone unix.Errno, _ int64) {
			r.died <- fmt.Sprintf("%s %d", name, int(gone))
		})
		r.ports = append(r.ports, port)
		if err != nil {
			return err
		}
		return r.fabric.AddLink(name, fabric.End{Port: name}, fabric.End{Switch: "s1"}, params, params, nowNS)
	})
	r.hosts = append(r.hosts, far)
}

func testFrame(from byte, payload string) []byte {
	return append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, from, 0x88, 0xb5}, payload...)
}

func (r *rig) send(host int, frame []byte) {
	r.t.Helper()
	if errno := r.hosts[host].Write(frame); errno != 0 {
		r.t.Fatalf("host %d: write: %v", host, errno)
	}
}

// receive waits for one frame at a host and returns its payload and arrival time.
func (r *rig) receive(host int) (payload string, atNS int64) {
	r.t.Helper()
	buffer := make([]byte, 2048)
	r.waitReadable(r.hosts[host])
	atNS = clock.Now()
	n, errno := r.hosts[host].Read(buffer)
	if errno != 0 {
		r.t.Fatalf("host %d: read: %v", host, errno)
	}
	return string(buffer[14:n]), atNS
}

func (r *rig) waitReadable(d device.Device) {
	r.t.Helper()
	fds := []unix.PollFd{{Fd: int32(d.FD()), Events: unix.POLLIN}}
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if n, err := unix.Poll(fds, 100); n == 1 && err == nil {
			return
		}
	}
	r.t.Fatal("nothing came within the deadline")
}

// With and without stamps; without, the row that they make says of every frame that it counts as read.
func TestFramesArriveAfterTheDelayAndNeverBefore(t *testing.T) {
	const delayNS = int64(2e6)
	for unmatched, stamps := range map[uint64]bool{0: true, 50: false} {
		r := newRig(t, stamps, 2, model.Params{DelayNS: delayNS})
		var late []int64
		for i := range 50 {
			sentNS := clock.Now()
			r.send(0, testFrame(0, fmt.Sprint(i)))
			payload, atNS := r.receive(1)
			if payload != fmt.Sprint(i) {
				t.Fatalf("got frame %q, want %d", payload, i)
			}
			lateNS := atNS - sentNS - 2*delayNS
			if lateNS < 0 {
				t.Fatalf("stamps %v: frame %d came %d ns early", stamps, i, -lateNS)
			}
			late = append(late, lateNS)
		}
		slices.Sort(late)
		if median := late[len(late)/2]; median > int64(2e6) {
			t.Errorf("stamps %v: median lateness %d ns, want less than 2 ms even on a busy machine", stamps, median)
		}
		if got := r.link("h1").BToA.Lateness; got.Count() != 50 || got.TooEarly != 0 || got.EarlyMaxNS != 0 {
			t.Errorf("stamps %v: lateness was recorded %d times, want 50, %d too early, at most %d ns", stamps,
				got.Count(), got.TooEarly, got.EarlyMaxNS)
		}
		if got := r.link("h0").AToB.Unmatched; got != unmatched {
			t.Errorf("stamps %v: %d frames without a stamp, want %d", stamps, got, unmatched)
		}
	}
}

func (r *rig) link(name string) (state fabric.LinkState) {
	r.t.Helper()
	r.must(func(int64) (err error) {
		state, err = r.fabric.LinkState(name)
		return err
	})
	return state
}

// With stamps, lateness contains the time for which a frame waited to be read, and those behind it are as late.
func TestLatenessContainsTheWaitBeforeTheRead(t *testing.T) {
	const delayNS, frames, away = int64(1e6), 20, 30 * time.Millisecond
	r := newRig(t, true, 2, model.Params{DelayNS: delayNS})
	sentNS := clock.Now()
	r.Do(func(int64) {
		for i := range frames {
			r.send(0, testFrame(1, fmt.Sprint(i)))
		}
		time.Sleep(away)
	})
	for i := range frames {
		payload, atNS := r.receive(1)
		if payload != fmt.Sprint(i) || atNS < sentNS+2*delayNS {
			t.Errorf("got %q after %d ns, want %d", payload, atNS-sentNS, i)
		}
	}
	got := r.link("h1").BToA.Lateness
	if least := away.Nanoseconds() - 2*delayNS; got.Count() != frames || got.PercentileNS(1) < least || got.TooEarly != 0 {
		t.Errorf("%d frames, the most punctual 1 %% %d ns late, want %d frames at least %d ns late", got.Count(),
			got.PercentileNS(1), frames, least)
	}
	if got := r.link("h0").AToB; got.Unmatched != 0 || got.Offered != frames {
		t.Errorf("%d of %d frames have no stamp", got.Unmatched, got.Offered)
	}
}

// A frame without a stamp counts as read: it is not early, and it is counted. Others are not affected.
func TestFramesWithoutAStampAreCounted(t *testing.T) {
	const delayNS = int64(1e6)
	r := newRig(t, true, 2, model.Params{DelayNS: delayNS})
	for i := range 30 {
		sentNS := clock.Now()
		frame := testFrame(1, fmt.Sprint(i))
		if i%3 == 0 {
			if _, err := unix.Write(r.hosts[0].FD(), frame); err != nil { // past the stamps
				t.Fatal(err)
			}
		} else {
			r.send(0, frame)
		}
		if payload, atNS := r.receive(1); payload != fmt.Sprint(i) || atNS < sentNS+2*delayNS {
			t.Errorf("got %q after %d ns", payload, atNS-sentNS)
		}
	}
	if got := r.link("h0").AToB.Unmatched; got != 10 {
		t.Errorf("%d frames without a stamp, want 10", got)
	}
	if got := r.link("h1").BToA; got.Unmatched != 0 || got.Lateness.TooEarly != 0 {
		t.Errorf("%d frames from a switch without a stamp, %d too early", got.Unmatched, got.Lateness.TooEarly)
	}
	r.Do(func(nowNS int64) { r.fabric.Reset(nowNS) })
	if got := r.link("h0").AToB.Unmatched; got != 0 {
		t.Errorf("%d after a reset", got)
	}
}

func TestBurstKeepsOrder(t *testing.T) {
	r := newRig(t, true, 2, model.Params{DelayNS: int64(1e6), RateBPS: 100e6})
	next := 0
	for round := range 20 {
		for i := range 10 { // as many as a socket pair surely holds
			r.send(0, testFrame(0, fmt.Sprint(round*10+i)))
		}
		for range 10 {
			if payload, _ := r.receive(1); payload != fmt.Sprint(next) {
				t.Fatalf("got %q, want %d", payload, next)
			}
			next++
		}
	}
}

func TestHostEndClosesItsPortOnly(t *testing.T) {
	r := newRig(t, true, 2, model.Params{})
	host := exec.Command("sleep", "1000")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := netns.OpenProcess(host.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	r.attach("mortal", pidfd, model.Params{})
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.expectDeath("mortal 0")
	<-r.ports[2].Closed()
	_ = host.Wait() // it was killed
	r.waitReadable(r.hosts[2])
	if _, errno := r.hosts[2].Read(make([]byte, 10)); errno != unix.EBADFD {
		t.Errorf("the device is still open: read says %v", errno)
	}
	r.send(0, testFrame(0, "alive"))
	if payload, _ := r.receive(1); payload != "alive" {
		t.Errorf("got %q", payload)
	}
}

func TestInterfaceThatGoesIsReported(t *testing.T) {
	r := newRig(t, true, 2, model.Params{})
	r.hosts[1].Close()
	r.expectDeath(fmt.Sprintf("h1 %d", int(unix.EBADFD)))
}

func (r *rig) expectDeath(want string) {
	r.t.Helper()
	select {
	case got := <-r.died:
		if got != want {
			r.t.Errorf("got death %q, want %q", got, want)
		}
	case <-time.After(deadline):
		r.t.Fatal("no death was reported")
	}
}

func TestDetachFreesNameAndDevice(t *testing.T) {
	r := newRig(t, true, 2, model.Params{})
	r.Do(func(int64) {
		if err := r.Detach(r.ports[1]); err == nil {
			t.Error("a port with a link was detached")
		}
	})
	r.must(func(nowNS int64) error {
		if err := r.fabric.RemoveLink("h1", nowNS); err != nil {
			return err
		}
		return r.Detach(r.ports[1])
	})
	<-r.ports[1].Closed()
	r.attach("h1", -1, model.Params{})
	r.send(0, testFrame(0, "x"))
	if payload, _ := r.receive(2); payload != "x" {
		t.Errorf("got %q", payload)
	}
}

func TestTrafficGoesOnWhileGarbageIsCollected(t *testing.T) {
	r := newRig(t, true, 2, model.Params{DelayNS: int64(1e6)})
	for i := range 20 {
		r.send(0, testFrame(0, fmt.Sprint(i)))
		r.Collect()
		if payload, _ := r.receive(1); payload != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", payload, i)
		}
	}
}

func TestIdleLoopSleeps(t *testing.T) {
	r := newRig(t, true, 2, model.Params{})
	r.send(0, testFrame(0, "x"))
	r.receive(1)
	turns := func() (n uint64) {
		r.Do(func(int64) { n = r.Counts().Turns })
		return n
	}
	before := turns()
	// A loop that spins would turn ten thousand times in this time; a sleeping one turns for the requests only.
	_, _ = unix.Poll(nil, 50)
	if got := turns() - before; got > 20 {
		t.Errorf("an idle loop turned %d times in 50 ms", got)
	}
}

// recorder notes what the data thread does with a device: a frame read, or one written.
type recorder struct {
	device.Device
	done *[]byte
}

func (r recorder) Read(buffer []byte) (int, unix.Errno) {
	n, errno := r.Device.Read(buffer)
	if errno == 0 {
		*r.done = append(*r.done, 'r')
	}
	return n, errno
}

func (r recorder) Write(frame []byte) unix.Errno {
	*r.done = append(*r.done, 'w')
	return r.Device.Write(frame)
}

// Frames that are due long ago when they are read go out a few at a time, not one by one: reads and writes in turns
// cost a saturated emulator a third of what it carries.
func TestLateFramesGoOutTogether(t *testing.T) {
	const frames = 8 // a socket pair holds no more than net.unix.max_dgram_qlen, 10 by default
	r := newRig(t, true, 0, model.Params{})
	done := make([]byte, 0, 4*frames)
	r.wrap = func(d device.Device) device.Device { return recorder{d, &done} }
	for _, name := range []string{"h0", "h1"} {
		r.attach(name, -1, model.Params{DelayNS: 1000})
	}
	r.must(func(int64) error { // the data thread stands still
		for i := range frames {
			if errno := r.hosts[0].Write(testFrame(1, fmt.Sprint(i))); errno != 0 {
				return fmt.Errorf("frame %d: %w", i, errno)
			}
		}
		time.Sleep(2 * time.Duration(behindNS))
		return nil
	})
	for i := range frames {
		if payload, _ := r.receive(1); payload != fmt.Sprint(i) {
			t.Fatalf("frame %q for %d", payload, i)
		}
	}
	var turns int
	r.Do(func(int64) { turns = strings.Count(string(done), "rw") })
	if turns > frames/2 {
		t.Errorf("%d frames went out in %d turns of reading and writing: %s", frames, turns, done)
	}
}
