package loop

import (
	"fmt"
	"os/exec"
	"slices"
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

// maxEarlyNS is the README's bound.
const maxEarlyNS = int64(20e3)

// deadline bounds every wait; it is far beyond what anything here takes.
const deadline = 10 * time.Second

// rig is a running loop whose devices are socket pairs.
type rig struct {
	*Loop
	t      *testing.T
	fabric *fabric.Fabric
	hosts  []*device.Fake
	ports  []*Port
	died   chan string
}

// newRig joins count hosts to one switch by links of the given parameters.
func newRig(t *testing.T, count int, params model.Params) *rig {
	t.Helper()
	pool, err := framepool.New(8<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, fabric: fabric.New(pool), died: make(chan string, count)}
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
	near, far, err := device.NewFakePair()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { far.Close() })
	r.must(func(nowNS int64) error {
		port, err := r.Attach(name, 1500, near, pidfd, func(gone unix.Errno, _ int64) {
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

func TestFramesArriveAfterTheDelayAndNeverBefore(t *testing.T) {
	const delayNS = int64(2e6)
	r := newRig(t, 2, model.Params{DelayNS: delayNS})
	var late []int64
	for i := range 50 {
		sentNS := clock.Now()
		r.send(0, testFrame(0, fmt.Sprint(i)))
		payload, atNS := r.receive(1)
		if payload != fmt.Sprint(i) {
			t.Fatalf("got frame %q, want %d", payload, i)
		}
		lateNS := atNS - sentNS - 2*delayNS
		if lateNS < -maxEarlyNS {
			t.Fatalf("frame %d came %d ns early", i, -lateNS)
		}
		late = append(late, lateNS)
	}
	slices.Sort(late)
	if median := late[len(late)/2]; median > int64(2e6) {
		t.Errorf("median lateness %d ns, want less than 2 ms even on a busy machine", median)
	}
	r.Do(func(int64) {
		link, err := r.fabric.LinkState("h1")
		if got := link.BToA.Lateness; err != nil || got.Count() != 50 || got.TooEarly != 0 || got.EarlyMaxNS > maxWriteNS {
			t.Errorf("lateness was recorded %d times, want 50, %d too early, at most %d ns (%v)", got.Count(), got.TooEarly, got.EarlyMaxNS, err)
		}
	})
}

func TestBurstKeepsOrder(t *testing.T) {
	r := newRig(t, 2, model.Params{DelayNS: int64(1e6), RateBPS: 100e6})
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
	r := newRig(t, 2, model.Params{})
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
	r := newRig(t, 2, model.Params{})
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
	r := newRig(t, 2, model.Params{})
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
	r := newRig(t, 2, model.Params{DelayNS: int64(1e6)})
	for i := range 20 {
		r.send(0, testFrame(0, fmt.Sprint(i)))
		r.Collect()
		if payload, _ := r.receive(1); payload != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", payload, i)
		}
	}
}

func TestIdleLoopSleeps(t *testing.T) {
	r := newRig(t, 2, model.Params{})
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
