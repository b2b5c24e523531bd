package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/model"
)

const (
	maxNameBytes   = 128
	maxIfNameBytes = 15 // IFNAMSIZ less the terminating zero
	maxPID         = 1 << 22
	defaultMTU     = 1500
)

// operation carries a request out and returns what becomes "result".
type operation func(s *Server, line []byte) (result any, atNS int64, err error)

var operations = map[string]operation{
	"hello":         decoded((*Server).hello),
	"add_switch":    decoded((*Server).addSwitch),
	"add_port":      decoded((*Server).addPort),
	"set_port":      decoded((*Server).setPort),
	"add_link":      decoded((*Server).addLink),
	"read_link":     decoded((*Server).readLink),
	"set_link":      decoded((*Server).setLink),
	"link_state":    decoded((*Server).linkState),
	"remove_link":   byName((*emulator.Emulator).RemoveLink),
	"remove_port":   byName((*emulator.Emulator).RemovePort),
	"remove_switch": byName((*emulator.Emulator).RemoveSwitch),
	"partition":     decoded((*Server).partition),
	"heal":          decoded((*Server).heal),
	"stats":         decoded((*Server).stats),
}

// decoded makes an operation of a method that takes its request as a struct.
func decoded[Request any](method func(*Server, Request) (any, int64, error)) operation {
	return func(s *Server, line []byte) (any, int64, error) {
		var request Request
		if err := decode(line, &request); err != nil {
			return nil, 0, err
		}
		return method(s, request)
	}
}

// byName makes an operation of a method that takes a name and has no result.
func byName(method func(*emulator.Emulator, string) (int64, error)) operation {
	return decoded(func(s *Server, request named) (any, int64, error) {
		atNS, err := method(s.emulator, request.Name)
		return empty{}, atNS, err
	})
}

// decode reads JSON into a struct. A field that the struct lacks is an error; the error for a wrong type has the
// field's path.
func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// empty is the result of operations without a result of their own.
type empty struct{}

func (s *Server) hello(header) (any, int64, error) {
	grant := s.emulator.Grant()
	return helloResult{
		Version:            s.version,
		Realtime:           grant.Realtime,
		RealtimeReason:     grant.RealtimeReason,
		MemoryLocked:       grant.Locked,
		MemoryLockedReason: grant.LockedReason,
		KeptAwake:          grant.Awake,
		KeptAwakeReason:    grant.AwakeReason,
		Stamps:             stampsOf(s.emulator.Unstamped()),
		StampsReason:       s.emulator.Unstamped(),
		PID:                os.Getpid(),
		Core:               s.emulator.Core(),
		Latencies:          latenciesResult{s.emulator.TimerNS()},
		SelfTest:           selfTestResult(s.emulator.SelfTest()),
	}, s.emulator.Now(), nil
}

func (s *Server) addSwitch(request named) (any, int64, error) {
	if err := checkLength("name", request.Name, maxNameBytes); err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.AddSwitch(request.Name)
	return empty{}, atNS, err
}

func (s *Server) addPort(request addPort) (any, int64, error) {
	spec, err := request.spec()
	if err != nil {
		return nil, 0, err
	}
	made, atNS, err := s.emulator.AddPort(spec)
	return portResult{IfName: made.IfName, MAC: made.MAC.String(), MTU: made.MTU, TxQueueLen: device.TxQueueLen}, atNS, err
}

func (r *addPort) spec() (emulator.PortSpec, error) {
	spec := emulator.PortSpec{Name: r.Name, PID: r.PID, IfName: r.IfName, MTU: defaultMTU}
	if err := checkLength("name", r.Name, maxNameBytes); err != nil {
		return spec, err
	}
	if err := checkLength("ifname", r.IfName, maxIfNameBytes); err != nil {
		return spec, err
	}
	if r.PID < 1 || r.PID > maxPID {
		return spec, fmt.Errorf("pid: got %d, allowed: 1 to %d", r.PID, maxPID)
	}
	if r.MTU != nil {
		spec.MTU = *r.MTU
	}
	if err := checkMTU(spec.MTU); err != nil {
		return spec, err
	}
	if r.MAC == nil {
		return spec, nil
	}
	mac, err := net.ParseMAC(*r.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
		return spec, fmt.Errorf("mac: got %q, allowed: a unicast address such as 02:00:00:00:00:01", *r.MAC)
	}
	spec.MAC = mac
	return spec, nil
}

func (s *Server) setPort(request setPort) (any, int64, error) {
	if err := checkMTU(request.MTU); err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.SetMTU(request.Name, request.MTU)
	return empty{}, atNS, err
}

func checkMTU(mtu int) error {
	if mtu < device.MinMTU || mtu > device.MaxMTU {
		return fmt.Errorf("mtu: got %d, allowed: %d to %d", mtu, device.MinMTU, device.MaxMTU)
	}
	return nil
}

func (s *Server) addLink(request addLink) (any, int64, error) {
	link, err := request.link()
	if err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.AddLink(link.Name, link.A, link.B, link.AToB, link.BToA)
	if err != nil {
		return nil, 0, err
	}
	state, _, err := s.emulator.ReadLink(request.Name)
	return newLinkResult(state, stampsOf(s.emulator.Unstamped()), false), atNS, err
}

func (s *Server) readLink(request named) (any, int64, error) {
	state, atNS, err := s.emulator.ReadLink(request.Name)
	return newLinkResult(state, stampsOf(s.emulator.Unstamped()), false), atNS, err
}

// setLink checks both directions before it changes any. Nobody else changes the link meanwhile: requests are served one
// at a time.
func (s *Server) setLink(request setLink) (any, int64, error) {
	if request.AToB == nil && request.BToA == nil {
		return nil, 0, errors.New("nothing to change: give a_to_b, b_to_a or both")
	}
	var held [2]model.Params
	var err error
	if held[0], held[1], err = s.emulator.LinkParams(request.Name); err != nil {
		return nil, 0, err
	}
	var changes [2]*fabric.Change
	for i, direction := range [...]*direction{request.AToB, request.BToA} {
		if direction == nil {
			continue
		}
		params, err := direction.changed(held[i])
		if err != nil {
			return nil, 0, fmt.Errorf("%s.%w", sides[i], err)
		}
		changes[i] = &fabric.Change{Params: params, Restart: direction.Seed.given}
	}
	state, atNS, err := s.emulator.SetLink(request.Name, changes[0], changes[1])
	return newLinkResult(state, stampsOf(s.emulator.Unstamped()), false), atNS, err
}

func (s *Server) linkState(request linkState) (any, int64, error) {
	if request.Up == nil {
		return nil, 0, errors.New("up: the field is missing")
	}
	state, atNS, err := s.emulator.SetLinkUp(request.Name, *request.Up)
	return newLinkResult(state, stampsOf(s.emulator.Unstamped()), false), atNS, err
}

func (s *Server) partition(request partition) (any, int64, error) {
	atNS, err := s.emulator.Partition(request.Sets)
	return empty{}, atNS, err
}

func (s *Server) heal(header) (any, int64, error) {
	return empty{}, s.emulator.Heal(), nil
}

func (s *Server) stats(request stats) (any, int64, error) {
	counted, atNS := s.emulator.Stats(request.Reset)
	return newStatsResult(counted, stampsOf(s.emulator.Unstamped()), request.Buckets), atNS, nil
}

func checkLength(field, text string, maxBytes int) error {
	if text == "" || len(text) > maxBytes {
		return fmt.Errorf("%s: got %.60q, allowed: 1 to %d bytes", field, text, maxBytes)
	}
	return nil
}
