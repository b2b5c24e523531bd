package emulator

import (
	"cmp"
	"errors"
	"fmt"

	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/input"
	"containernet-env/link_emulator/model"
)

// maxTracePoints bounds those of all traces together: 256 MiB of memory.
const maxTracePoints = 1 << 24

// addTrace adds a trace, or points to one that more of them were announced for.
func (e *Emulator) addTrace(r struct {
	named
	Kind     model.TraceKind `json:"kind"`
	RepeatNS input.Limit     `json:"repeat_ns"`
	TimesNS  []int64         `json:"times_ns"`
	Values   []int64         `json:"values"`
	More     bool            `json:"more"`
}) (any, int64, error) {
	if err := input.Name("name", r.Name, input.MaxNameBytes); err != nil {
		return nil, 0, err
	}
	if _, taken := e.traces[r.Name]; taken {
		return nil, 0, fmt.Errorf("a trace %q exists already", r.Name)
	}
	trace, err := e.partial, error(nil)
	if e.partial = nil; trace == nil || trace.Name != r.Name {
		trace, err = model.NewTrace(r.Name, r.Kind, int64(r.RepeatNS))
	} else if r.Kind != trace.Kind || int64(r.RepeatNS) != trace.RepeatNS {
		err = fmt.Errorf("kind, repeat_ns: got others, allowed: those that the trace %q began with", r.Name)
	}
	if err == nil {
		err = trace.Add(r.TimesNS, r.Values)
	}
	if err == nil && e.tracePoints()+trace.Points() > maxTracePoints {
		err = fmt.Errorf("times_ns: got too many, allowed: %d points of all traces together", maxTracePoints)
	}
	if err == nil && !r.More {
		err = trace.End()
	}
	switch {
	case err != nil:
		return nil, 0, err
	case r.More:
		e.partial = trace
	default:
		e.traces[r.Name] = trace
	}
	points := trace.Points()
	return struct {
		Points int `json:"points"`
	}{points}, e.loop.Do(func(int64) {}), nil
}

func (e *Emulator) tracePoints() (points int) {
	for _, trace := range e.traces {
		points += trace.Points()
	}
	return points
}

func (e *Emulator) removeTrace(r named) (any, int64, error) {
	trace, err := e.trace("name", &r.Name)
	if err != nil {
		return nil, 0, err
	}
	_, atNS, err := e.do(func(int64) error {
		if e.fabric.Follows(trace) {
			return fmt.Errorf("trace %q is followed by a link: end that first", r.Name)
		}
		return nil
	})
	if err == nil {
		delete(e.traces, r.Name)
	}
	return nil, atNS, err
}

func (e *Emulator) trace(field string, name *string) (*model.Trace, error) {
	if name == nil {
		return nil, nil
	}
	trace, ok := e.traces[*name]
	if !ok {
		return nil, fmt.Errorf("%s: there is no trace %q", field, *name)
	}
	return trace, nil
}

// followed are the traces of one direction, by name.
type followed struct {
	Rate  *string `json:"rate"`
	Delay *string `json:"delay"`
}

// follow has the directions of a link follow traces, and one that is left out follow none.
func (e *Emulator) follow(r struct {
	named
	StartNS *int64   `json:"start_ns"`
	AToB    followed `json:"a_to_b"`
	BToA    followed `json:"b_to_a"`
}) (any, int64, error) {
	var traces [2]model.Traces
	for i, given := range [...]followed{r.AToB, r.BToA} {
		if given == (followed{}) {
			continue
		}
		if r.StartNS == nil {
			return nil, 0, errors.New("start_ns: the field is missing")
		}
		rate, err := e.trace("rate", given.Rate)
		delay, errOfDelay := e.trace("delay", given.Delay)
		if err = cmp.Or(err, errOfDelay); err != nil {
			return nil, 0, fmt.Errorf("%s.%w", fabric.DirectionNames[i], err)
		}
		if err := input.Range("start_ns", *r.StartNS, 0, model.MaxTraceNS); err != nil {
			return nil, 0, err
		}
		traces[i] = model.Traces{Rate: rate, Delay: delay, StartNS: *r.StartNS}
	}
	return e.link(r.Name, func(nowNS int64) error { return e.fabric.Follow(r.Name, traces, nowNS) })
}
