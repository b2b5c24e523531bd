package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"containernet-env/link_emulator/model"
)

// End names one end of a link: a port or a switch, the other name empty.
type End struct {
	Port   string `json:"port"`
	Switch string `json:"switch"`
}

// LinkSpec is a link to be added. The parameters of its directions must have passed Check.
type LinkSpec struct {
	Name       string
	A, B       End
	AToB, BToA model.Params
}

func (e End) String() string {
	if e.Port != "" {
		return fmt.Sprintf("port %q", e.Port)
	}
	return fmt.Sprintf("switch %q", e.Switch)
}

// AddSwitch adds a switch without links.
func (f *Fabric) AddSwitch(name string) error {
	if _, taken := f.switches[name]; taken {
		return fmt.Errorf("a switch %q exists already", name)
	}
	f.switches[name] = &Switch{name: name, addresses: cmp.Or(f.addresses, newAddressTable())}
	return nil
}

// AddPort adds a port without a link. sink delivers to its host; mtu is the interface's.
func (f *Fabric) AddPort(name string, mtu int, sink Sink) (*Port, error) {
	if _, taken := f.ports[name]; taken {
		return nil, fmt.Errorf("a port %q exists already", name)
	}
	port := &Port{name: name, id: uint32(len(f.portByID)), sink: sink, maxFrame: mtu + frameOverhead, alive: true}
	f.portByID = append(f.portByID, port)
	f.ports[name] = port
	return port, nil
}

// SetMTU changes what a port takes from its host and passes to it. Frames that are under way are judged as they arrive.
func (f *Fabric) SetMTU(name string, mtu int) error {
	port, ok := f.ports[name]
	if !ok {
		return fmt.Errorf("there is no port %q", name)
	}
	port.maxFrame = mtu + frameOverhead
	return nil
}

// AddLink connects two ends. A link that closes a loop makes the network a routed one: see SetRoutes. Refused: unknown
// ends, and a port that has a link already.
func (f *Fabric) AddLink(spec LinkSpec, nowNS int64) error {
	if _, taken := f.links[spec.Name]; taken {
		return fmt.Errorf("a link %q exists already", spec.Name)
	}
	a, err := f.end(spec.A)
	if err != nil {
		return err
	}
	b, err := f.end(spec.B)
	if err != nil {
		return err
	}
	if a == b {
		return fmt.Errorf("%s is at both ends", spec.B)
	}
	if f.addresses == nil && f.connected(a, b) {
		f.route()
	}
	link := &Link{name: spec.Name, adminUp: true}
	there := f.newDirection(link, DirectionNames[0], a, b, spec.AToB, nowNS)
	back := f.newDirection(link, DirectionNames[1], b, a, spec.BToA, nowNS)
	there.back, back.back = back, there
	link.directions = [2]*Direction{there, back}
	f.links[spec.Name] = link
	return nil
}

// DirectionNames are those of a link's directions in the control protocol.
var DirectionNames = [2]string{"a_to_b", "b_to_a"}

func (f *Fabric) newDirection(link *Link, which string, from, to end, params model.Params, nowNS int64) *Direction {
	d := &Direction{link: link, to: to, position: unscheduled, order: f.nextOrder, pool: f.pool}
	f.nextOrder++
	d.line.Salt, d.line.Store = salt(link.name, which), d
	d.line.Set(nowNS, params)
	if from.port != nil {
		from.port.out = d
		f.changes++
	} else {
		from.sw.out = append(from.sw.out, d)
		from.sw.updateSlack()
	}
	return d
}

// salt is the same in every run and differs between directions, so that the losses of two links with the same seed are
// independent.
func salt(link, which string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(link + "\x00" + which))
	return hash.Sum64()
}

func (f *Fabric) end(e End) (end, error) {
	if (e.Port == "") == (e.Switch == "") {
		return end{}, errors.New(`a, b: allowed: either {"port": name} or {"switch": name}`)
	}
	if e.Switch != "" {
		sw, ok := f.switches[e.Switch]
		if !ok {
			return end{}, fmt.Errorf("there is no switch %q", e.Switch)
		}
		return end{sw: sw}, nil
	}
	port, ok := f.ports[e.Port]
	if !ok {
		return end{}, fmt.Errorf("there is no port %q", e.Port)
	}
	if port.out != nil {
		return end{}, fmt.Errorf("port %q carries link %q already; a port carries one link", e.Port, port.out.link.name)
	}
	return end{port: port}, nil
}

// connected reports whether there is a path between a and b.
func (f *Fabric) connected(a, b end) bool {
	seen := map[end]bool{a: true}
	for next := []end{a}; len(next) > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, out := range at.directions() {
			if !seen[out.to] {
				seen[out.to] = true
				next = append(next, out.to)
			}
		}
	}
	return seen[b]
}

// route makes the network a routed one, in which no address is learned yet.
func (f *Fabric) route() {
	if f.addresses == nil {
		f.addresses = newAddressTable()
		for _, sw := range f.switches {
			sw.addresses = f.addresses
		}
	}
}

// SetRoutes makes the network a routed one, with these routes in place of all earlier ones: by a switch and the switch
// that frames have to reach, the link that they take next. Refused: unknown names, and routes that do not lead there.
func (f *Fabric) SetRoutes(routes map[string]map[string]string) error {
	next := map[*Switch]map[*Switch]*Direction{}
	for from, links := range routes {
		sw, ok := f.switches[from]
		if !ok {
			return fmt.Errorf("switches: there is no switch %q", from)
		}
		next[sw] = map[*Switch]*Direction{}
		for to, name := range links {
			at := slices.IndexFunc(sw.out, func(out *Direction) bool { return out.link.name == name && out.to.sw != nil })
			if f.switches[to] == nil || to == from || at < 0 {
				return fmt.Errorf("switches.%s.%s: got %q, allowed: a link from switch %q to a switch on the way to switch %q",
					from, to, name, from, to)
			}
			next[sw][f.switches[to]] = sw.out[at]
		}
	}
	for from, links := range next {
		for to := range links {
			at := from
			for range len(next) {
				if out := next[at][to]; out != nil && at != to {
					at = out.to.sw
				}
			}
			if at != to {
				return fmt.Errorf("switches.%s.%s: the routes do not lead there", from.name, to.name)
			}
		}
	}
	f.route()
	for _, sw := range f.switches {
		sw.next = next[sw]
	}
	return nil
}

func (e end) directions() []*Direction {
	switch {
	case e.sw != nil:
		return e.sw.out
	case e.port.out != nil:
		return []*Direction{e.port.out}
	}
	return nil
}

// Change holds the new parameters of one direction.
type Change struct {
	Params  model.Params // must have passed Check
	Restart bool         // restart the draws, even if the seed is the same
}

// SetLink changes the directions for which a change is given, at nowNS; see model.Line.Set for frames in flight. What
// follows a trace is refused.
func (f *Fabric) SetLink(name string, changes [2]*Change, nowNS int64) error {
	link, err := f.link(name)
	if err != nil {
		return err
	}
	for i, d := range link.directions {
		if changes[i] == nil {
			continue
		}
		if err := d.line.Following().CheckChange(d.line.Configured(), changes[i].Params); err != nil {
			return fmt.Errorf("%s.%w", DirectionNames[i], err)
		}
	}
	for i, d := range link.directions {
		if changes[i] == nil {
			continue
		}
		d.line.Set(nowNS, changes[i].Params)
		if changes[i].Restart {
			d.line.Restart(nowNS)
		}
		f.changed(d)
	}
	return nil
}

// changed must be called when the parameters or the traces of a direction have changed.
func (f *Fabric) changed(d *Direction) {
	if from := d.back.to; from.sw != nil {
		from.sw.updateSlack()
	}
	f.changes++
	f.reschedule(d)
}

// Follow has the directions of a link follow traces from nowNS on, or none; see model.Line.Follow. Both are checked
// before any changes.
func (f *Fabric) Follow(name string, traces [2]model.Traces, nowNS int64) error {
	link, err := f.link(name)
	if err != nil {
		return err
	}
	for i, d := range link.directions {
		if err := traces[i].Check(d.line.Configured()); err != nil {
			return fmt.Errorf("%s.%w", DirectionNames[i], err)
		}
	}
	for i, d := range link.directions {
		if d.line.Following() != traces[i] {
			d.line.Follow(nowNS, traces[i])
			f.changed(d)
		}
	}
	return nil
}

// Follows reports whether any direction follows a trace.
func (f *Fabric) Follows(trace *model.Trace) bool {
	for _, link := range f.links {
		for _, d := range link.directions {
			if traces := d.line.Following(); traces.Rate == trace || traces.Delay == trace {
				return true
			}
		}
	}
	return false
}

// SetLinkUp takes a link down or up and, unless they are nil, replaces the routes at the same moment. When it goes
// down, frames in flight are lost, as with a cut cable; frames offered while it is down are dropped and counted.
func (f *Fabric) SetLinkUp(name string, up bool, routes map[string]map[string]string, nowNS int64) error {
	link, err := f.link(name)
	if err == nil && routes != nil {
		err = f.SetRoutes(routes)
	}
	if err != nil {
		return err
	}
	if !up && link.adminUp {
		f.cut(link, nowNS)
	}
	link.adminUp = up
	return nil
}

// PortDied marks a port whose device has disappeared: its link goes down for good, the rest keeps working.
func (f *Fabric) PortDied(port *Port, nowNS int64) {
	port.alive = false
	if port.out != nil {
		f.cut(port.out.link, nowNS)
	}
}

// RemoveLink removes a link; frames in flight are lost.
func (f *Fabric) RemoveLink(name string, nowNS int64) error {
	link, err := f.link(name)
	if err != nil {
		return err
	}
	f.cut(link, nowNS)
	for _, d := range link.directions {
		from := d.back.to
		if from.port != nil {
			from.port.out = nil
			f.changes++
			continue
		}
		from.sw.out = slices.DeleteFunc(from.sw.out, func(out *Direction) bool { return out == d })
		maps.DeleteFunc(from.sw.next, func(_ *Switch, out *Direction) bool { return out == d })
		from.sw.updateSlack()
	}
	delete(f.links, name)
	return nil
}

// RemovePort removes a port that has no link.
func (f *Fabric) RemovePort(name string) error {
	port, ok := f.ports[name]
	if !ok {
		return fmt.Errorf("there is no port %q", name)
	}
	if port.out != nil {
		return fmt.Errorf("port %q carries link %q: remove the link first", name, port.out.link.name)
	}
	f.portByID[port.id] = nil
	delete(f.ports, name)
	return nil
}

// RemoveSwitch removes a switch that has no links.
func (f *Fabric) RemoveSwitch(name string) error {
	sw, ok := f.switches[name]
	if !ok {
		return fmt.Errorf("there is no switch %q", name)
	}
	if len(sw.out) > 0 {
		return fmt.Errorf("switch %q carries link %q: remove its links first", name, sw.out[0].link.name)
	}
	for _, other := range f.switches {
		delete(other.next, sw)
	}
	delete(f.switches, name)
	return nil
}

// LinkState reads one link.
func (f *Fabric) LinkState(name string) (*LinkState, error) {
	link, err := f.link(name)
	if err != nil {
		return nil, err
	}
	return link.state(), nil
}

// LinkParams are the configured parameters of both directions: QueueFrames is 0 where the default applies.
func (f *Fabric) LinkParams(name string) (params [2]model.Params, err error) {
	link, err := f.link(name)
	if err != nil {
		return params, err
	}
	return [2]model.Params{link.directions[0].line.Configured(), link.directions[1].line.Configured()}, nil
}

// State holds everything the fabric counts, by name.
type State struct {
	Links     map[string]*LinkState
	Ports     map[string]PortState
	Switches  map[string]SwitchCounts
	Partition map[string]int // set by port name; nil when there is none
}

// State reads everything at one moment.
func (f *Fabric) State() State {
	s := State{
		Links:     make(map[string]*LinkState, len(f.links)),
		Ports:     make(map[string]PortState, len(f.ports)),
		Switches:  make(map[string]SwitchCounts, len(f.switches)),
		Partition: f.partition(),
	}
	for name, link := range f.links {
		s.Links[name] = link.state()
	}
	for name, port := range f.ports {
		s.Ports[name] = port.state(s.Links)
	}
	for name, sw := range f.switches {
		s.Switches[name] = sw.counts
	}
	return s
}

// Reset resets all counters at nowNS. Frames in flight count as offered in the new period.
func (f *Fabric) Reset(nowNS int64) {
	for _, link := range f.links {
		for _, d := range link.directions {
			d.Lateness.reset()
			d.Counts = Counts{Offered: uint64(d.line.Len()), Lateness: d.Lateness}
			d.line.ResetCounters(nowNS)
			f.reschedule(d)
		}
	}
	for _, port := range f.ports {
		port.PortCounts = PortCounts{}
	}
	for _, sw := range f.switches {
		sw.counts = SwitchCounts{}
	}
}

func (f *Fabric) link(name string) (*Link, error) {
	link, ok := f.links[name]
	if !ok {
		return nil, fmt.Errorf("there is no link %q", name)
	}
	return link, nil
}

// A partition separates ports of different sets. It is checked when a frame reaches a port: a frame in flight between
// two sets when the partition starts does not arrive, one in flight when it heals does. Links and switches keep
// working, so frames of both sides share them as before, and ports in no set reach every port.

// Partition divides ports into sets from now on and replaces an earlier partition. Refused: fewer than two sets, an
// empty set, an unknown port, a port in two sets.
func (f *Fabric) Partition(sets [][]string) error {
	if len(sets) < 2 {
		return fmt.Errorf("sets: got %d, allowed: two or more sets", len(sets))
	}
	setOf := map[uint32]int{}
	for i, names := range sets {
		if len(names) == 0 {
			return fmt.Errorf("sets: set %d is empty", i)
		}
		for _, name := range names {
			port, ok := f.ports[name]
			if !ok {
				return fmt.Errorf("sets: there is no port %q", name)
			}
			if _, twice := setOf[port.id]; twice {
				return fmt.Errorf("sets: port %q is named twice", name)
			}
			setOf[port.id] = i
		}
	}
	f.setOf = setOf
	return nil
}

// Heal ends the partition, if there is one.
func (f *Fabric) Heal() { f.setOf = nil }

// separated reports whether a partition separates two ports. Ids are never reused, so a removed port does not affect
// later ones.
func (f *Fabric) separated(from, to uint32) bool {
	if f.setOf == nil {
		return false
	}
	a, aIn := f.setOf[from]
	b, bIn := f.setOf[to]
	return aIn && bIn && a != b
}

// partition is the set of each port, by name; nil when there is no partition.
func (f *Fabric) partition() map[string]int {
	if f.setOf == nil {
		return nil
	}
	byName := map[string]int{}
	for name, port := range f.ports {
		if set, in := f.setOf[port.id]; in {
			byName[name] = set
		}
	}
	return byName
}
