// Package simulate carries out what probe does over links of the emulator in simulated time: the emulator's own turns,
// fabric, model and stamps, on a machine that is as noisy as configured. The same input gives the same output.
package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/probe"
)

const (
	mtu = 1500
	// sendNS is what a frame costs its sender, and stampNS is when its kernel stamps it, from when it is sent.
	sendNS  = int64(2000)
	stampNS = int64(300)
)

// Request configures a simulation.
type Request struct {
	probe.Request
	Switches   []string                     `json:"switches"`
	Links      []fabric.LinkSpec            `json:"-"`
	Routes     map[string]map[string]string `json:"routes"` // of switches: see the operation routes
	Noise      Noise                        `json:"noise"`
	SendWakeNS int64                        `json:"send_wake_ns"` // the most by which a sender wakes up late
	Delayed    []Delayed                    `json:"delayed"`
	Seed       uint64                       `json:"seed"`
}

// Delayed frames of a host enter its interface so much later.
type Delayed struct {
	Chance
	Host string `json:"host"`
}

// Parse reads a request as JSON: that of a probe, and the network; see the README. Unknown fields and values out of
// range are errors.
func Parse(data []byte) (Request, error) {
	r := Request{Noise: Quiet(), SendWakeNS: 60_000}
	given := struct {
		*Request
		Links []json.RawMessage `json:"links"`
	}{Request: &r}
	if err := input.Decode(data, &given); err != nil {
		return r, err
	}
	if err := cmp.Or(r.Check(), r.Noise.check(), input.Range("send_wake_ns", r.SendWakeNS, 0, maxNS)); err != nil {
		return r, err
	}
	for i, line := range given.Links {
		link, err := emulator.ParseLink(line)
		if err != nil {
			return r, fmt.Errorf("links[%d].%w", i, err)
		}
		r.Links = append(r.Links, link)
	}
	for i, delayed := range r.Delayed {
		if !slices.ContainsFunc(r.Hosts, func(host input.Host) bool { return host.Name == delayed.Host }) {
			return r, fmt.Errorf("delayed[%d].host: there is no host %q", i, delayed.Host)
		}
		if err := input.Range(fmt.Sprintf("delayed[%d].ns", i), delayed.NS, 0, maxNS); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Result is that of a probe, and what the emulator counted, by name of a link.
type Result struct {
	probe.Result
	Links    map[string]*fabric.LinkState `json:"links"`     // as in stats of the control protocol
	TapDrops map[string]uint64            `json:"tap_drops"` // by host: frames that found no room in its interface
}

// simulation is a request under way.
type simulation struct {
	Request
	*Machine
	hosts     []*Host
	addresses [][6]byte
	warm      []bool
	delayed   []Chance // by host
	random    *rand.Rand
	number    uint64 // of the run
	run       *probe.Run
	originNS  int64
}

// Simulate carries out a request.
func Simulate(r Request) (Result, error) {
	machine, err := NewMachine(r.Seed)
	if err != nil {
		return Result{}, err
	}
	defer machine.Close()
	s := &simulation{Request: r, Machine: machine, warm: make([]bool, len(r.Hosts)), delayed: make([]Chance, len(r.Hosts)),
		random: rand.New(rand.NewPCG(r.Seed, 1)), number: r.Seed + 1}
	if err := s.build(); err != nil {
		return Result{}, err
	}
	began := s.NowNS()
	if err := s.warmUp(); err != nil {
		return Result{}, err
	}
	s.begin()
	if err := s.Run(s.originNS + s.DurationMS*1e6); err != nil {
		return Result{}, err
	}
	result := Result{Links: s.Fabric.State().Links, TapDrops: map[string]uint64{}}
	result.WarmupNS = s.originNS - began
	result.Streams = s.run.Streams()
	for i, host := range s.hosts {
		result.Hosts = append(result.Hosts, probe.HostResult{Name: host.Name, Warm: s.warm[i]})
		result.TapDrops[host.Name] = host.Dropped
	}
	return result, nil
}

func (s *simulation) build() error {
	quiet := Quiet()
	quiet.Unstamped, quiet.Offload = s.Noise.Unstamped, s.Noise.Offload
	s.Disturb(quiet)
	for _, name := range s.Request.Switches {
		if err := s.Fabric.AddSwitch(name); err != nil {
			return err
		}
	}
	for i, of := range s.Hosts {
		host, err := s.AddHost(of.Name, mtu)
		if err != nil {
			return err
		}
		address := [6]byte{2, 0, 0, 0, byte(i >> 8), byte(i + 1)}
		host.Received = func(frame []byte, atNS int64) { s.received(i, frame, atNS) }
		s.hosts, s.addresses = append(s.hosts, host), append(s.addresses, address)
		for _, delayed := range s.Delayed {
			if delayed.Host == host.Name {
				s.delayed[i] = delayed.Chance
			}
		}
	}
	for _, link := range s.Links {
		if err := s.Fabric.AddLink(link, s.NowNS()); err != nil {
			return err
		}
	}
	if s.Routes != nil {
		return s.Fabric.SetRoutes(s.Routes)
	}
	return nil
}

func (s *simulation) received(host int, frame []byte, atNS int64) {
	if s.run != nil {
		s.run.Arrived(host, s.addresses[host], frame, atNS-s.originNS)
	} else if probe.IsOf(frame, s.addresses[host], s.number) {
		s.warm[host] = true
	}
}

// warmUp is as probe's: until a frame has reached every host or the time is over. No frame is under way at its end.
func (s *simulation) warmUp() error {
	for count := uint32(0); int64(count)*s.WarmupIntervalUS < s.WarmupMS*1000; count++ {
		atNS := s.NowNS() + s.WarmupIntervalUS*1000
		for i, host := range s.hosts {
			if next := (i + 1) % len(s.hosts); !s.warm[next] {
				frame := probe.WarmupFrame(s.addresses[next], s.addresses[i], s.number, count)
				s.At(atNS, func(atNS int64) { host.Send(frame, atNS) })
			}
		}
		if err := s.Run(math.MaxInt64); err != nil || !slices.Contains(s.warm, false) {
			return err
		}
	}
	return nil
}

// begin begins the measurement.
func (s *simulation) begin() {
	s.originNS = s.NowNS()
	s.Fabric.Reset(s.originNS)
	s.run = probe.NewRun(s.Request.Request, s.addresses, s.number)
	s.Disturb(s.Noise)
	for i := range s.hosts {
		s.sendNext(i, s.originNS)
	}
}

// sendNext plans the next frame of a host that is free from a time on.
func (s *simulation) sendNext(host int, freeNS int64) {
	dueNS, ok := s.run.Schedules[host].Next()
	if !ok {
		return
	}
	atNS := max(freeNS, s.originNS+dueNS)
	if atNS-freeNS > probe.ShortestSleepNS {
		atNS += s.random.Int64N(s.SendWakeNS + 1)
	}
	s.At(atNS+stampNS, func(stampedNS int64) {
		frame := s.run.Schedules[host].Frame(atNS - s.originNS)
		if delayed := s.delayed[host]; delayed.Ratio > 0 && s.random.Float64() < delayed.Ratio {
			frame = bytes.Clone(frame)
			s.At(stampedNS+delayed.NS, func(atNS int64) { s.hosts[host].Send(frame, atNS) })
		} else {
			s.hosts[host].Send(frame, stampedNS)
		}
		s.sendNext(host, atNS+sendNS)
	})
}
