package emulator

import (
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/refusal"
)

// AddLink joins two ends. The parameters must have passed Check.
func (e *Emulator) AddLink(name string, a, b fabric.End, aToB, bToA model.Params) (atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) { err = e.fabric.AddLink(name, a, b, aToB, bToA, nowNS) })
	return atNS, err
}

// Change of one direction: fields that are nil stay as they are.
type Change struct {
	DelayNS     *int64
	RateBPS     *int64
	QueueFrames *int
	QueueBytes  *int64
	Jitter      *model.Jitter
	Loss        *model.Loss
	Seed        *uint64 // given at all, it restarts the draws
}

// Apply changes p. What comes of it is to be checked.
func (c *Change) Apply(p *model.Params) {
	assign(&p.DelayNS, c.DelayNS)
	assign(&p.RateBPS, c.RateBPS)
	assign(&p.QueueFrames, c.QueueFrames)
	assign(&p.QueueBytes, c.QueueBytes)
	assign(&p.Jitter, c.Jitter)
	assign(&p.Loss, c.Loss)
	assign(&p.Seed, c.Seed)
}

func assign[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

func (c *Change) applied(p model.Params) (*fabric.Change, error) {
	if c == nil {
		return nil, nil
	}
	c.Apply(&p)
	return &fabric.Change{Params: p, Restart: c.Seed != nil}, p.Check()
}

// SetLink changes what a link is asked to be, both directions at one moment, and returns it as held afterwards.
func (e *Emulator) SetLink(name string, aToB, bToA *Change) (state fabric.LinkState, atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) {
		state, err = e.setLink(name, aToB, bToA, nowNS)
	})
	return state, atNS, err
}

func (e *Emulator) setLink(name string, aToB, bToA *Change, nowNS int64) (fabric.LinkState, error) {
	oldAToB, oldBToA, err := e.fabric.LinkParams(name)
	if err != nil {
		return fabric.LinkState{}, err
	}
	newAToB, err := aToB.applied(oldAToB)
	if err != nil {
		return fabric.LinkState{}, refusal.Under("a_to_b", err)
	}
	newBToA, err := bToA.applied(oldBToA)
	if err != nil {
		return fabric.LinkState{}, refusal.Under("b_to_a", err)
	}
	if err := e.fabric.SetLink(name, newAToB, newBToA, nowNS); err != nil {
		return fabric.LinkState{}, err
	}
	return e.fabric.LinkState(name)
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

// ReadLink reads a link as it is now.
func (e *Emulator) ReadLink(name string) (state fabric.LinkState, atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { state, err = e.fabric.LinkState(name) })
	return state, atNS, err
}

// RemoveLink takes a link away; what travels on it is lost.
func (e *Emulator) RemoveLink(name string) (atNS int64, err error) {
	atNS = e.loop.Do(func(nowNS int64) { err = e.fabric.RemoveLink(name, nowNS) })
	return atNS, err
}

// Partition keeps ports of different sets apart, from one moment on; see fabric.Partition.
func (e *Emulator) Partition(sets [][]string) (atNS int64, err error) {
	atNS = e.loop.Do(func(int64) { err = e.fabric.Partition(sets) })
	return atNS, err
}

// Heal ends a partition.
func (e *Emulator) Heal() (atNS int64) {
	return e.loop.Do(func(int64) { e.fabric.Heal() })
}
