package probe

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/netns"
	"containernet-env/link_emulator/realtime"
)

// Result of a measurement, as JSON.
type Result struct {
	Streams     []StreamResult `json:"streams"` // in the order of the request
	Hosts       []HostResult   `json:"hosts"`
	WarmupNS    int64          `json:"warmup_ns"`
	ClockStepNS int64          `json:"clock_step_ns"` // by how much the wall clock was set: it distorts delays
}

// StreamResult is one stream. The times are of the frames in the order in which they were sent.
type StreamResult struct {
	Sent     int     `json:"sent"` // fewer than configured where the time was over
	Received int     `json:"received"`
	Repeated int     `json:"repeated"`          // of them arrived more than once
	SentNS   []int64 `json:"sent_ns,omitempty"` // from the start of the measurement
	// from right before sending to the kernel's receive stamp; -1: it did not arrive
	DelayNS []int64 `json:"delay_ns,omitempty"`
}

// HostResult is what at a host distorts a measurement.
type HostResult struct {
	Name     string `json:"name"`
	Warm     bool   `json:"warm"`      // a frame of the warm-up has reached it
	RingLost int    `json:"ring_lost"` // frames that this program had no room for
	Refused  int    `json:"refused"`   // frames that the kernel did not send
	Error    string `json:"error,omitempty"`
}

// station is a host with its sockets.
type station struct {
	host    input.Host
	address [6]byte
	ring    *ring
	socket  int   // that sends
	refused int   // frames that the kernel did not send
	failure error // the last error of sending
	warm    bool
}

// Measure carries out a request; its sockets stay open until the process ends. Frames that do not arrive are data, not
// an error. A namespace that cannot be entered and a socket that cannot be opened are errors.
func Measure(r Request) (Result, error) {
	run := input.Nonce()
	stations := make([]*station, len(r.Hosts))
	for i, host := range r.Hosts {
		s, err := openStation(host, expected(r, i), r.BypassQdisc)
		if err != nil {
			return Result{}, fmt.Errorf("host %q: %w", host.Name, err)
		}
		stations[i] = s
	}
	result := Result{WarmupNS: warmUp(stations, run, r).Nanoseconds()}
	addresses := make([][6]byte, len(stations))
	for i, s := range stations {
		addresses[i] = s.address
		s.refused, s.failure = 0, nil // in the warm-up
	}
	streams := NewRun(r, addresses, run)
	// Nothing is allocated while frames are sent, and no sender is to wait for the collector.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	// Every sender holds one of the scheduler's processors until it ends.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(len(stations) + 2))
	start := time.Now()
	var running sync.WaitGroup
	for i, s := range stations {
		running.Go(func() {
			realtime.Run(belowDataThread, func() { s.send(streams.Schedules[i], start) })
		})
	}
	running.Wait()
	time.Sleep(time.Duration(r.DurationMS)*time.Millisecond - time.Since(start))
	took, end := time.Since(start), time.Now()
	result.ClockStepNS = end.UnixNano() - start.UnixNano() - took.Nanoseconds()
	if err := collect(&result, stations, streams, start.UnixNano()); err != nil {
		return Result{}, err
	}
	return result, nil
}

// expected is how many frames come to a host, the warm-up's not among them.
func expected(r Request, host int) int {
	frames := 0
	for _, stream := range r.Streams {
		if stream.To == host {
			frames += stream.Count
		}
	}
	return frames
}

func openStation(host input.Host, frames int, bypassQdisc bool) (*station, error) {
	s := &station{host: host}
	return s, netns.Do(host.PID, -1, func() error {
		link, err := interfaceOf(host.IP)
		if err != nil {
			return err
		}
		s.address = [6]byte(link.HardwareAddr)
		if s.ring, err = openRing(link.Index, frames); err != nil {
			return err
		}
		return s.openSender(link.Index, bypassQdisc)
	})
}

// interfaceOf finds the Ethernet interface with an address in the namespace of the calling thread.
func interfaceOf(ip netip.Addr) (net.Interface, error) {
	links, err := net.Interfaces()
	if err != nil {
		return net.Interface{}, fmt.Errorf("list the interfaces: %w", err)
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			return net.Interface{}, fmt.Errorf("list the addresses of %s: %w", link.Name, err)
		}
		for _, address := range addresses {
			prefix, err := netip.ParsePrefix(address.String())
			if err == nil && prefix.Addr() == ip && len(link.HardwareAddr) == 6 {
				return link, nil
			}
		}
	}
	return net.Interface{}, fmt.Errorf("no Ethernet interface has the address %s", ip)
}

// warmUp has every host send to the next one until a frame has reached each: then links carry frames and switches know
// where everybody is. A host that has sent is known where its frame arrived. It ends when the frames that were sent
// meanwhile have arrived too.
func warmUp(stations []*station, run uint64, r Request) time.Duration {
	start, most := time.Now(), time.Duration(r.WarmupMS)*time.Millisecond
	for number := uint32(0); ; number++ {
		cold := false
		for i, s := range stations {
			s.ring.read(func(frame []byte, _ int64) {
				if IsOf(frame, s.address, run) {
					s.warm = true
				}
			})
			if next := stations[(i+1)%len(stations)]; !next.warm {
				cold = true
				s.write(WarmupFrame(next.address, s.address, run, number))
			}
		}
		took := time.Since(start)
		if !cold {
			time.Sleep(min(took, most-took)) // no frame under way takes longer than the first one
			return time.Since(start)
		}
		if took >= most {
			return took
		}
		time.Sleep(time.Duration(r.WarmupIntervalUS) * time.Microsecond)
	}
}

// collect reads what has arrived; originNS is the start of the measurement on the wall clock.
func collect(result *Result, stations []*station, streams *Run, originNS int64) error {
	for i, s := range stations {
		s.ring.read(func(frame []byte, stampNS int64) {
			streams.Arrived(i, s.address, frame, stampNS-originNS)
		})
		lost, err := s.ring.lost()
		if err != nil {
			return fmt.Errorf("host %q: %w", s.host.Name, err)
		}
		of := HostResult{Name: s.host.Name, Warm: s.warm, RingLost: lost, Refused: s.refused}
		if s.failure != nil {
			of.Error = s.failure.Error()
		}
		result.Hosts = append(result.Hosts, of)
	}
	result.Streams = streams.Streams()
	return nil
}
