package emulator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/framepool"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/loop"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/realtime"
)

var operations = map[string]operation{
	"hello":         request((*Emulator).hello),
	"add_switch":    request((*Emulator).addSwitch),
	"add_port":      request((*Emulator).addPort),
	"set_port":      request((*Emulator).setPort),
	"add_link":      request((*Emulator).addLink),
	"read_link":     request((*Emulator).readLink),
	"set_link":      request((*Emulator).setLink),
	"link_state":    request((*Emulator).linkState),
	"remove_link":   request((*Emulator).removeLink),
	"remove_port":   request((*Emulator).removePort),
	"remove_switch": request((*Emulator).removeSwitch),
	"add_trace":     request((*Emulator).addTrace),
	"remove_trace":  request((*Emulator).removeTrace),
	"follow":        request((*Emulator).follow),
	"routes":        request((*Emulator).routes),
	"partition":     request((*Emulator).partition),
	"heal":          request((*Emulator).heal),
	"stats":         request((*Emulator).stats),
}

type named struct {
	header
	Name string `json:"name"`
}

// do runs fn on the data thread, between two frames.
func (e *Emulator) do(fn func(nowNS int64) error) (result any, atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) { err = fn(nowNS) })
	return nil, atNS, err
}

// Values of "stamps" and of --stamps: the source of the time at which a frame came to an interface.
const (
	KernelStamps = "kernel"
	ReadStamps   = "read" // a frame counts as come when it was read
)

func (e *Emulator) stamps() string {
	if e.options.Unstamped != "" {
		return ReadStamps
	}
	return KernelStamps
}

type latencies struct {
	TimerNS int64 `json:"timer_ns"`
}

func (e *Emulator) hello(header) (any, int64, error) {
	result := struct {
		Version string `json:"version"`
		realtime.Grant
		Stamps       string    `json:"stamps"`
		StampsReason string    `json:"stamps_reason"`
		PID          int       `json:"pid"`
		Core         *int      `json:"core"`
		Latencies    latencies `json:"latencies"`
		SelfTest     selfTest  `json:"self_test"`
	}{Version: e.options.Version, Grant: e.grant, Stamps: e.stamps(), StampsReason: e.options.Unstamped, PID: os.Getpid(),
		Core: e.options.Core, SelfTest: e.selfTest}
	atNS := e.loop.Do(func(int64) { result.Latencies.TimerNS = e.loop.TimerNS() })
	return result, atNS, nil
}

func (e *Emulator) addSwitch(r named) (any, int64, error) {
	if err := input.Name("name", r.Name, input.MaxNameBytes); err != nil {
		return nil, 0, err
	}
	return e.do(func(int64) error { return e.fabric.AddSwitch(r.Name) })
}

func (e *Emulator) removeSwitch(r named) (any, int64, error) {
	return e.do(func(int64) error { return e.fabric.RemoveSwitch(r.Name) })
}

// linkRequest holds the fields of add_link and set_link.
type linkRequest struct {
	named
	A    fabric.End      `json:"a"`
	B    fabric.End      `json:"b"`
	AToB json.RawMessage `json:"a_to_b"`
	BToA json.RawMessage `json:"b_to_a"`
}

// changes are those of both directions; nil: the direction is left out. held are the parameters so far, if any.
func (r *linkRequest) changes(held [2]*model.Params) (changes [2]*fabric.Change, err error) {
	for i, given := range [...]json.RawMessage{r.AToB, r.BToA} {
		if given == nil || string(given) == "null" {
			continue
		}
		if changes[i], err = changeOf(given, held[i]); err != nil {
			return changes, fmt.Errorf("%s.%w", fabric.DirectionNames[i], err)
		}
	}
	return changes, nil
}

// defaults are the parameters of a perfect cable, by name.
var defaults = func() (fields map[string]json.RawMessage) {
	_ = json.Unmarshal(encode(model.Params{}), &fields)
	return fields
}()

// changeOf reads the parameters of a direction: null resets one, and those that are left out stay as in held. Naming
// the seed restarts the draws.
func changeOf(given json.RawMessage, held *model.Params) (*fabric.Change, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(given, &fields); err != nil {
		return nil, err
	}
	change := &fabric.Change{Restart: fields["seed"] != nil}
	if held != nil {
		change.Params = *held
	}
	if delay := string(fields["delay_ns"]); delay == "null" || delay == "" && held == nil {
		return nil, fmt.Errorf("delay_ns: got %s, allowed: 0 to %d", cmp.Or(delay, "nothing"), model.MaxDelayNS)
	}
	for name, value := range fields {
		if string(value) == "null" {
			fields[name] = defaults[name]
		}
	}
	if err := input.Decode(encode(fields), &change.Params); err != nil {
		return nil, err
	}
	return change, change.Params.Check()
}

// ParseLink reads the fields of add_link.
func ParseLink(data []byte) (fabric.LinkSpec, error) {
	var r linkRequest
	if err := input.Decode(data, &r); err != nil {
		return fabric.LinkSpec{}, err
	}
	return r.spec()
}

func (r *linkRequest) spec() (fabric.LinkSpec, error) {
	spec := fabric.LinkSpec{Name: r.Name, A: r.A, B: r.B}
	changes, err := r.changes([2]*model.Params{})
	if err = cmp.Or(input.Name("name", r.Name, input.MaxNameBytes), err); err != nil {
		return spec, err
	}
	if changes[0] == nil || changes[1] == nil {
		return spec, errors.New("a_to_b, b_to_a: got nothing, allowed: the parameters of both directions")
	}
	spec.AToB, spec.BToA = changes[0].Params, changes[1].Params
	return spec, nil
}

// linkResult is a link as it is now.
type linkResult struct {
	*fabric.LinkState
	Stamps string `json:"stamps"`
}

// link runs fn and returns the link as it is then, both at one moment.
func (e *Emulator) link(name string, fn func(nowNS int64) error) (any, int64, error) {
	result := linkResult{Stamps: e.stamps()}
	_, atNS, err := e.do(func(nowNS int64) (err error) {
		if err = fn(nowNS); err == nil {
			result.LinkState, err = e.fabric.LinkState(name)
		}
		return err
	})
	return result, atNS, err
}

func (e *Emulator) addLink(r linkRequest) (any, int64, error) {
	spec, err := r.spec()
	if err != nil {
		return nil, 0, err
	}
	return e.link(r.Name, func(nowNS int64) error { return e.fabric.AddLink(spec, nowNS) })
}

func (e *Emulator) readLink(r named) (any, int64, error) {
	return e.link(r.Name, func(int64) error { return nil })
}

// setLink checks both directions before it changes any. Nothing else changes the link meanwhile: requests are served
// one at a time.
func (e *Emulator) setLink(r struct {
	named
	AToB json.RawMessage `json:"a_to_b"`
	BToA json.RawMessage `json:"b_to_a"`
}) (any, int64, error) {
	var held [2]model.Params
	if _, _, err := e.do(func(int64) (err error) {
		held, err = e.fabric.LinkParams(r.Name)
		return err
	}); err != nil {
		return nil, 0, err
	}
	both := linkRequest{AToB: r.AToB, BToA: r.BToA}
	changes, err := both.changes([2]*model.Params{&held[0], &held[1]})
	if err == nil && changes[0] == nil && changes[1] == nil {
		err = errors.New("nothing to change: give a_to_b, b_to_a or both")
	}
	if err != nil {
		return nil, 0, err
	}
	return e.link(r.Name, func(nowNS int64) error { return e.fabric.SetLink(r.Name, changes, nowNS) })
}

func (e *Emulator) linkState(r struct {
	named
	Up       *bool                        `json:"up"`
	Switches map[string]map[string]string `json:"switches"`
}) (any, int64, error) {
	if r.Up == nil {
		return nil, 0, errors.New("up: the field is missing")
	}
	return e.link(r.Name, func(nowNS int64) error { return e.fabric.SetLinkUp(r.Name, *r.Up, r.Switches, nowNS) })
}

func (e *Emulator) removeLink(r named) (any, int64, error) {
	return e.do(func(nowNS int64) error { return e.fabric.RemoveLink(r.Name, nowNS) })
}

func (e *Emulator) routes(r struct {
	header
	Switches map[string]map[string]string `json:"switches"`
}) (any, int64, error) {
	return e.do(func(int64) error { return e.fabric.SetRoutes(r.Switches) })
}

func (e *Emulator) partition(r struct {
	header
	Sets [][]string `json:"sets"`
}) (any, int64, error) {
	return e.do(func(int64) error { return e.fabric.Partition(r.Sets) })
}

func (e *Emulator) heal(header) (any, int64, error) {
	return e.do(func(int64) error {
		e.fabric.Heal()
		return nil
	})
}

// portStats holds the counters of a port: the fabric's and the kernel's.
type portStats struct {
	portSpec
	fabric.PortState
	TapDrops      *device.Drops `json:"tap_drops"` // null: they could not be read
	TapDropsError string        `json:"tap_drops_error"`
}

// stats reads all counters between two frames; only the kernel's are read right after. reset resets them at the same
// moment; frames in flight count as offered in the new period.
func (e *Emulator) stats(r struct {
	header
	Reset   bool `json:"reset"`
	Buckets bool `json:"buckets"`
}) (any, int64, error) {
	result := struct {
		Links     map[string]linkResult          `json:"links"`
		Ports     map[string]portStats           `json:"ports"`
		Switches  map[string]fabric.SwitchCounts `json:"switches"`
		Partition map[string]int                 `json:"partition"`
		Stamps    string                         `json:"stamps"`
		Unmatched uint64                         `json:"unmatched"` // of all links together
		Lateness  fabric.Lateness                `json:"lateness"`  // likewise
		Latencies latencies                      `json:"latencies"`
		Loop      loop.Counts                    `json:"loop"`
		Buffers   framepool.Usage                `json:"buffers"`
	}{Links: map[string]linkResult{}, Ports: map[string]portStats{}, Stamps: e.stamps()}
	var state fabric.State
	atNS := e.loop.Do(func(nowNS int64) {
		state = e.fabric.State()
		result.Loop, result.Latencies.TimerNS, result.Buffers = e.loop.Counts(), e.loop.TimerNS(), e.pool.Usage()
		if r.Reset {
			e.fabric.Reset(nowNS)
			e.loop.ResetCounts()
		}
	})
	result.Switches, result.Partition = state.Switches, state.Partition
	result.Lateness.ShowBuckets = r.Buckets
	for name, link := range state.Links {
		for _, d := range [...]*fabric.DirectionState{&link.AToB, &link.BToA} {
			result.Lateness.Add(&d.Lateness)
			result.Unmatched += d.Unmatched
			d.Lateness.ShowBuckets = r.Buckets
		}
		result.Links[name] = linkResult{link, result.Stamps}
	}
	for name, p := range e.ports {
		stats := portStats{portSpec: p.portSpec, PortState: state.Ports[name]}
		if drops, err := p.kernelDrops(stats.Alive, r.Reset); err != nil {
			stats.TapDropsError = err.Error()
		} else {
			stats.TapDrops = &drops
		}
		result.Ports[name] = stats
	}
	return result, atNS, nil
}
