package fabric

import (
	"fmt"

	"containernet-env/link_emulator/model"
)

// TraceState names what a direction follows.
type TraceState struct {
	Rate    *string `json:"rate"`
	Delay   *string `json:"delay"`
	StartNS int64   `json:"start_ns"`
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
			return fmt.Errorf("%s.%w", directionNames[i], err)
		}
	}
	for i, d := range link.directions {
		if d.line.Following() == traces[i] {
			continue
		}
		d.line.Follow(nowNS, traces[i])
		if from := d.back.to; from.sw != nil {
			from.sw.updateSlack()
		}
		f.reschedule(d)
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

// followed is nil where a direction follows nothing.
func (d *Direction) followed() *TraceState {
	name := func(trace *model.Trace) *string {
		if trace == nil {
			return nil
		}
		return &trace.Name
	}
	traces := d.line.Following()
	if traces.Rate == nil && traces.Delay == nil {
		return nil
	}
	return &TraceState{name(traces.Rate), name(traces.Delay), traces.StartNS}
}
