package emulator

import (
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/model"
)

// AddLink connects two ends. The parameters must have passed Check.
func (e *Emulator) AddLink(name string, a, b fabric.End, aToB, bToA model.Params) (atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) { err = e.fabric.AddLink(name, a, b, aToB, bToA, nowNS) })
	return atNS, err
}

// LinkParams are the configured parameters of a link; see fabric.LinkParams.
func (e *Emulator) LinkParams(name string) (aToB, bToA model.Params, err error) {
	e.loop.Do(func(int64) { aToB, bToA, err = e.fabric.LinkParams(name) })
	return aToB, bToA, err
}

// SetLink changes the directions for which a change is given, both at one moment, and returns the link as it is
// afterwards.
func (e *Emulator) SetLink(name string, aToB, bToA *fabric.Change) (state fabric.LinkState, atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) {
		if err = e.fabric.SetLink(name, aToB, bToA, nowNS); err == nil {
			state, err = e.fabric.LinkState(name)
		}
	})
	return state, atNS, err
}

// SetLinkUp takes a link down or up.
func (e *Emulator) SetLinkUp(name string, up bool) (state fabric.LinkState, atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) {
		if err = e.fabric.SetLinkUp(name, up, nowNS); err == nil {
			state, err = e.fabric.LinkState(name)
		}
	})
	return state, atNS, err
}

// ReadLink reads the current state of a link.
func (e *Emulator) ReadLink(name string) (state fabric.LinkState, atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { state, err = e.fabric.LinkState(name) })
	return state, atNS, err
}

// RemoveLink removes a link; frames in flight are lost.
func (e *Emulator) RemoveLink(name string) (atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) { err = e.fabric.RemoveLink(name, nowNS) })
	return atNS, err
}

// Partition separates ports of different sets, from one moment on; see fabric.Partition.
func (e *Emulator) Partition(sets [][]string) (atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { err = e.fabric.Partition(sets) })
	return atNS, err
}

// Heal ends a partition.
func (e *Emulator) Heal() (atNS int64) {
	return e.loop.Do(func(int64) { e.fabric.Heal() })
}
