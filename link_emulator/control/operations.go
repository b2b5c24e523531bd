package control

import (
	"net"
	"os"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/refusal"
	"containernet-env/link_emulator/strictjson"
)

const (
	maxNameBytes   = 128
	maxIfNameBytes = 15 // IFNAMSIZ less the terminating zero
	maxPID         = 1 << 22
	defaultMTU     = 1500
)

// operation reads its own fields, carries the request out and returns what becomes "result".
type operation func(s *Server, request *strictjson.Object) (result any, atNS int64, err error)

var operations = map[string]operation{
	"hello":         (*Server).hello,
	"add_switch":    (*Server).addSwitch,
	"add_port":      (*Server).addPort,
	"add_link":      (*Server).addLink,
	"read_link":     (*Server).readLink,
	"set_link":      (*Server).setLink,
	"link_state":    (*Server).linkState,
	"remove_link":   (*Server).removeLink,
	"remove_port":   (*Server).removePort,
	"remove_switch": (*Server).removeSwitch,
	"partition":     (*Server).partition,
	"heal":          (*Server).heal,
	"stats":         (*Server).stats,
}

func (s *Server) perform(request *strictjson.Object) (any, int64, error) {
	name := request.String("op", maxNameBytes)
	if err := request.Err(); err != nil {
		return nil, 0, err
	}
	op, known := operations[name]
	if !known {
		return nil, 0, refusal.New("op", "there is no operation %q", name)
	}
	return op(s, request)
}

// empty is the result of operations that have nothing to tell.
type empty struct{}

func (s *Server) hello(request *strictjson.Object) (any, int64, error) {
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	grant := s.emulator.Grant()
	return helloResult{
		Version:            s.version,
		Realtime:           grant.Realtime,
		RealtimeReason:     grant.RealtimeReason,
		MemoryLocked:       grant.Locked,
		MemoryLockedReason: grant.LockedReason,
		KeptAwake:          grant.Awake,
		KeptAwakeReason:    grant.AwakeReason,
		PID:                os.Getpid(),
		Latencies:          latenciesResult(s.emulator.Latencies()),
		SelfTest:           selfTestResult(s.emulator.SelfTest()),
	}, s.emulator.Now(), nil
}

// named reads the requests whose only field is a name.
func named(request *strictjson.Object) (string, error) {
	name := request.String("name", maxNameBytes)
	return name, request.Done()
}

func (s *Server) addSwitch(request *strictjson.Object) (any, int64, error) {
	name, err := named(request)
	if err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.AddSwitch(name)
	return empty{}, atNS, err
}

func (s *Server) addPort(request *strictjson.Object) (any, int64, error) {
	spec := emulator.PortSpec{
		Name:   request.String("name", maxNameBytes),
		PID:    int(request.Int("pid", 1, maxPID)),
		IfName: request.String("ifname", maxIfNameBytes),
	}
	if request.Has("mac") && !request.Null("mac") {
		text := request.String("mac", 17)
		mac, err := net.ParseMAC(text)
		switch {
		case request.Err() != nil:
		case err != nil || len(mac) != 6:
			request.Refuse("mac", "got %q, allowed: six octets like 02:00:00:00:00:01", text)
		case mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00":
			request.Refuse("mac", "got %q, allowed: an address of one station", text)
		}
		spec.MAC = mac
	}
	spec.MTU = int(request.IntOr("mtu", defaultMTU, device.MinMTU, device.MaxMTU))
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	made, atNS, err := s.emulator.AddPort(spec)
	return portResult{IfName: made.IfName, MAC: made.MAC.String(), MTU: made.MTU, TxQueueLen: device.TxQueueLen}, atNS, err
}

func (s *Server) addLink(request *strictjson.Object) (any, int64, error) {
	name := request.String("name", maxNameBytes)
	a, b := readEnd(request, "a"), readEnd(request, "b")
	aToB, bToA := readNewDirection(request, "a_to_b"), readNewDirection(request, "b_to_a")
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.AddLink(name, a, b, aToB, bToA)
	if err != nil {
		return nil, 0, err
	}
	state, _, err := s.emulator.ReadLink(name)
	return newLinkResult(state), atNS, err
}

func (s *Server) readLink(request *strictjson.Object) (any, int64, error) {
	name, err := named(request)
	if err != nil {
		return nil, 0, err
	}
	state, atNS, err := s.emulator.ReadLink(name)
	return newLinkResult(state), atNS, err
}

func (s *Server) setLink(request *strictjson.Object) (any, int64, error) {
	name := request.String("name", maxNameBytes)
	var changes [2]*emulator.Change
	for i, direction := range [...]string{"a_to_b", "b_to_a"} {
		if request.Has(direction) {
			request.Object(direction, func(o *strictjson.Object) {
				change := readChange(o)
				changes[i] = &change
			})
		}
	}
	if changes[0] == nil && changes[1] == nil {
		request.Refuse("a_to_b", "nothing to change: give a_to_b, b_to_a or both")
	}
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	state, atNS, err := s.emulator.SetLink(name, changes[0], changes[1])
	return newLinkResult(state), atNS, err
}

func (s *Server) linkState(request *strictjson.Object) (any, int64, error) {
	name := request.String("name", maxNameBytes)
	up := request.Bool("up")
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	state, atNS, err := s.emulator.SetLinkUp(name, up)
	return newLinkResult(state), atNS, err
}

func (s *Server) removeLink(request *strictjson.Object) (any, int64, error) {
	name, err := named(request)
	if err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.RemoveLink(name)
	return empty{}, atNS, err
}

func (s *Server) removePort(request *strictjson.Object) (any, int64, error) {
	name, err := named(request)
	if err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.RemovePort(name)
	return empty{}, atNS, err
}

func (s *Server) removeSwitch(request *strictjson.Object) (any, int64, error) {
	name, err := named(request)
	if err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.RemoveSwitch(name)
	return empty{}, atNS, err
}

func (s *Server) partition(request *strictjson.Object) (any, int64, error) {
	sets := request.StringLists("sets", maxNameBytes)
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	atNS, err := s.emulator.Partition(sets)
	return empty{}, atNS, err
}

func (s *Server) heal(request *strictjson.Object) (any, int64, error) {
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	return empty{}, s.emulator.Heal(), nil
}

func (s *Server) stats(request *strictjson.Object) (any, int64, error) {
	reset := request.Has("reset") && request.Bool("reset")
	buckets := request.Has("buckets") && request.Bool("buckets")
	if err := request.Done(); err != nil {
		return nil, 0, err
	}
	stats, atNS := s.emulator.Stats(reset)
	return newStatsResult(stats, buckets), atNS, nil
}
