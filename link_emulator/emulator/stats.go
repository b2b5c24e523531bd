package emulator

import (
	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/loop"
)

// Stats holds all counters, read between two frames; only the kernel's counters are read right after.
type Stats struct {
	Fabric    fabric.State
	Ports     map[string]PortStats
	Lateness  fabric.Lateness // of all links together
	Unmatched uint64          // likewise
	TimerNS   int64           // see loop.Loop
	Loop      loop.Counts
	Buffers   BufferStats
}

// PortStats holds the counters of a port besides those of the fabric.
type PortStats struct {
	PortSpec
	Kernel      *device.Drops // nil when it could not be read; KernelError says why
	KernelError string
}

// BufferStats is the usage of the frame memory.
type BufferStats struct {
	Frames      int
	MappedBytes int64
	LimitBytes  int64
}

// Stats reads all counters. reset resets them at the same moment; frames in flight count as offered in the new period.
func (e *Emulator) Stats(reset bool) (*Stats, int64) {
	stats := &Stats{Ports: make(map[string]PortStats, len(e.ports))}
	atNS := e.loop.Do(func(nowNS int64) {
		stats.Fabric = e.fabric.State()
		stats.Loop, stats.TimerNS = e.loop.Counts(), e.loop.TimerNS()
		stats.Buffers.Frames, stats.Buffers.MappedBytes, stats.Buffers.LimitBytes = e.pool.Usage()
		for name, p := range e.ports {
			stats.Ports[name] = PortStats{PortSpec: p.PortSpec}
		}
		if reset {
			e.fabric.Reset(nowNS)
			e.loop.ResetCounts()
		}
	})
	for _, link := range stats.Fabric.Links {
		stats.Lateness.Add(&link.AToB.Lateness)
		stats.Lateness.Add(&link.BToA.Lateness)
		stats.Unmatched += link.AToB.Unmatched + link.BToA.Unmatched
	}
	for name, p := range stats.Ports {
		if !stats.Fabric.Ports[name].Alive {
			p.KernelError = "the interface has gone"
		} else if drops, err := e.ports[name].running.Device().KernelDrops(); err != nil {
			p.KernelError = err.Error()
		} else {
			counted := e.ports[name]
			since := drops.Since(counted.drops)
			p.Kernel = &since
			if reset {
				counted.drops = drops
			}
		}
		stats.Ports[name] = p
	}
	return stats, atNS
}
