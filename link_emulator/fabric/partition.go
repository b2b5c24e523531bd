package fabric

import "fmt"

// A partition keeps ports of different sets apart. It is judged when a frame reaches a port: what is under way between two sets when
// the partition begins does not arrive, what is under way when it heals does. Links and switches carry on, so frames of
// both sides share them as before, and ports in no set reach everybody.

// Partition divides ports into sets from now on, in place of an earlier partition. Refused: fewer than two sets, an empty
// one, an unknown port, a port in two sets.
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
				return fmt.Errorf("sets: port %q stands there twice", name)
			}
			setOf[port.id] = i
		}
	}
	f.setOf = setOf
	return nil
}

// Heal ends the partition, if there is one.
func (f *Fabric) Heal() { f.setOf = nil }

// parted reports whether a partition keeps what one port sent from another. Ids are never used twice, so a port that is gone stays in its set alone.
func (f *Fabric) parted(from, to uint32) bool {
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
