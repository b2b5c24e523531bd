package fabric

import "fmt"

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
