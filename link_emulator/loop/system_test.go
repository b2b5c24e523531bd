//go:build plumbing

package loop_test

import (
	"fmt"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/hang"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/netns"
)

// system is a loop on the real kernel: two hosts and a mortal one on a switch, whose devices are socket pairs.
type system struct {
	*loop.Loop
	t     *testing.T
	hosts []*device.Fake
	ports []*loop.Port
	died  chan string
}

func startSystem(t *testing.T, mortal int) *system {
	t.Helper()
	pool, err := framepool.New(8<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	network := fabric.New(pool)
	s := &system{t: t, died: make(chan string, 8)}
	if s.Loop, err = loop.New(network, func(err error) { t.Errorf("the loop failed: %v", err) }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		pool.Close()
	})
	params := model.Params{DelayNS: int64(1e6)}
	s.Do(func(nowNS int64) {
		if err = network.AddSwitch("s1"); err != nil {
			return
		}
		for i, pidfd := range []int{-1, -1, mortal} {
			name := fmt.Sprintf("h%d", i)
			near, far, pairErr := device.NewFakePair(true)
			if err = pairErr; err != nil {
				return
			}
			t.Cleanup(func() { far.Close() })
			port, attachErr := s.Attach(name, 1500, near, pidfd, func(gone unix.Errno, _ int64) {
				s.died <- fmt.Sprintf("%s %d", name, int(gone))
			})
			if err = attachErr; err != nil {
				return
			}
			s.hosts, s.ports = append(s.hosts, far), append(s.ports, port)
			if err = network.AddLink(name, fabric.End{Port: name}, fabric.End{Switch: "s1"}, params, params, nowNS); err != nil {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pass sends a frame from the first host and expects it at the second.
func (s *system) pass(payload string) {
	s.t.Helper()
	if errno := s.hosts[0].Write(testFrame(1, payload)); errno != 0 {
		s.t.Fatal(errno)
	}
	s.await(s.hosts[1])
	buffer := make([]byte, 2048)
	if n, errno := s.hosts[1].Read(buffer); errno != 0 || string(buffer[14:n]) != payload {
		s.t.Fatalf("got %q and %v, want %q", buffer[:n], errno, payload)
	}
}

func (s *system) await(host *device.Fake) {
	s.t.Helper()
	if !hang.Readable(host.FD()) {
		s.t.Fatal("nothing came")
	}
}

func TestTrafficGoesOnWhileGarbageIsCollected(t *testing.T) {
	s := startSystem(t, -1)
	for i := range 20 {
		s.Collect()
		s.pass(fmt.Sprint(i))
	}
}

func TestHostEndClosesItsPortOnly(t *testing.T) {
	host := exec.Command("sleep", "1000")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := netns.OpenProcess(host.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s := startSystem(t, pidfd)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-s.died:
		if got != "h2 0" {
			t.Errorf("got death %q", got)
		}
	case <-hang.After():
		t.Fatal("no death was reported")
	}
	<-s.ports[2].Closed()
	_ = host.Wait() // it was killed
	s.await(s.hosts[2])
	if _, errno := s.hosts[2].Read(make([]byte, 10)); errno != unix.EBADFD {
		t.Errorf("the device is still open: read says %v", errno)
	}
	s.pass("alive")
}
