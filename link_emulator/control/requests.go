package control

import (
	"errors"
	"fmt"

	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/model"
)

// The types here are the requests of the protocol, field for field. A field that is a pointer may be left out or null.

// header is in every request.
type header struct {
	ID *int64 `json:"id"`
	Op string `json:"op"`
}

type named struct {
	header
	Name string `json:"name"`
}

type addPort struct {
	named
	PID    int     `json:"pid"`
	IfName string  `json:"ifname"`
	MAC    *string `json:"mac"`
	MTU    *int    `json:"mtu"`
}

type setPort struct {
	named
	MTU int `json:"mtu"`
}

type addLink struct {
	named
	A    end       `json:"a"`
	B    end       `json:"b"`
	AToB direction `json:"a_to_b"`
	BToA direction `json:"b_to_a"`
}

type setLink struct {
	named
	AToB *direction `json:"a_to_b"`
	BToA *direction `json:"b_to_a"`
}

type linkState struct {
	named
	Up *bool `json:"up"`
}

type partition struct {
	header
	Sets [][]string `json:"sets"`
}

type stats struct {
	header
	Reset   bool `json:"reset"`
	Buckets bool `json:"buckets"`
}

// end is one end of a link: exactly one of the names is given.
type end struct {
	Port   string `json:"port"`
	Switch string `json:"switch"`
}

func (e end) named() (fabric.End, error) {
	if (e.Port == "") == (e.Switch == "") {
		return fabric.End{}, errors.New(`allowed: either {"port": name} or {"switch": name}`)
	}
	return fabric.End(e), nil
}

// Link is a link to be added.
type Link struct {
	Name       string
	A, B       fabric.End
	AToB, BToA model.Params
}

// ParseLink reads the fields of add_link.
func ParseLink(data []byte) (Link, error) {
	var request addLink
	if err := decode(data, &request); err != nil {
		return Link{}, err
	}
	return request.link()
}

func (r *addLink) link() (link Link, err error) {
	link.Name = r.Name
	if err := checkLength("name", r.Name, maxNameBytes); err != nil {
		return link, err
	}
	if link.A, err = r.A.named(); err != nil {
		return link, fmt.Errorf("a: %w", err)
	}
	if link.B, err = r.B.named(); err != nil {
		return link, fmt.Errorf("b: %w", err)
	}
	if link.AToB, err = r.AToB.added(); err != nil {
		return link, fmt.Errorf("a_to_b.%w", err)
	}
	if link.BToA, err = r.BToA.added(); err != nil {
		return link, fmt.Errorf("b_to_a.%w", err)
	}
	return link, nil
}

// optional tells a field that is left out (not given) from null (given, without a value).
type optional[T any] struct {
	given bool
	value *T
}

// UnmarshalJSON is called for fields that are present, null or not.
func (o *optional[T]) UnmarshalJSON(data []byte) error {
	o.given = true
	return decode(data, &o.value)
}

// set changes held, unless the field is left out. Null is the zero value: the model's "unlimited", "none" or default.
func (o *optional[T]) set(held *T) {
	var null T
	switch {
	case o.value != nil:
		*held = *o.value
	case o.given:
		*held = null
	}
}

// sides are the names of a link's directions.
var sides = [...]string{"a_to_b", "b_to_a"}

// direction holds the parameters of one direction of a link.
type direction struct {
	DelayNS     optional[int64]  `json:"delay_ns"`
	RateBPS     optional[int64]  `json:"rate_bps"`
	Overhead    optional[int]    `json:"overhead_bytes"`
	QueueFrames optional[int]    `json:"queue_frames"`
	QueueBytes  optional[int64]  `json:"queue_bytes"`
	Jitter      optional[jitter] `json:"jitter"`
	Loss        optional[loss]   `json:"loss"`
	Seed        optional[int64]  `json:"seed"` // given at all, it restarts the draws
}

// added is a new direction; what is left out has its default.
func (d *direction) added() (model.Params, error) {
	if !d.DelayNS.given {
		return model.Params{}, errors.New("delay_ns: the field is missing")
	}
	return d.changed(model.Params{})
}

// changed is p with what is given; the rest stays as it is.
func (d *direction) changed(p model.Params) (model.Params, error) {
	d.DelayNS.set(&p.DelayNS)
	d.RateBPS.set(&p.RateBPS)
	d.Overhead.set(&p.Overhead)
	d.QueueFrames.set(&p.QueueFrames)
	d.QueueBytes.set(&p.QueueBytes)
	d.Seed.set(&p.Seed)
	// The model's 0 is "no limit", which is null in a request.
	switch {
	case d.DelayNS.given && d.DelayNS.value == nil:
		return p, fmt.Errorf("delay_ns: got null, allowed: 0 to %d", model.MaxDelayNS)
	case d.RateBPS.value != nil && p.RateBPS == 0:
		return p, fmt.Errorf("rate_bps: got 0, allowed: %d to %d, or null for unlimited", model.MinRateBPS, model.MaxRateBPS)
	case d.QueueFrames.value != nil && p.QueueFrames == 0:
		return p, fmt.Errorf("queue_frames: got 0, allowed: 1 to %d, or null for the default", model.MaxQueueFrames)
	case d.QueueBytes.value != nil && p.QueueBytes == 0:
		return p, fmt.Errorf("queue_bytes: got 0, allowed: 1 to %d, or null for no such limit", model.MaxQueueBytes)
	}
	var err error
	if d.Jitter.given {
		if p.Jitter, err = d.Jitter.value.params(); err != nil {
			return p, fmt.Errorf("jitter.%w", err)
		}
	}
	if d.Loss.given {
		if p.Loss, err = d.Loss.value.params(); err != nil {
			return p, fmt.Errorf("loss.%w", err)
		}
	}
	return p, p.Check()
}

const (
	uniform        = "uniform"
	normal         = "normal"
	independent    = "independent"
	gilbertElliott = "gilbert_elliott"
)

// jitter is in requests and results; null is none.
type jitter struct {
	Distribution string `json:"distribution"`
	NS           int64  `json:"ns"`
	Reorder      bool   `json:"reorder"`
	Correlation  *int64 `json:"correlation_ns"` // null: the default; null in results where frames may overtake
}

func (j *jitter) params() (model.Jitter, error) {
	if j == nil {
		return model.Jitter{}, nil
	}
	params := model.Jitter{NS: j.NS, Reorder: j.Reorder}
	if j.Correlation != nil {
		if params.CorrelationNS = *j.Correlation; params.CorrelationNS == 0 {
			return params, errors.New("correlation_ns: got 0, allowed: null for the default, or more")
		}
	}
	switch j.Distribution {
	case uniform:
		params.Distribution = model.Uniform
	case normal:
		params.Distribution = model.Normal
	default:
		return params, fmt.Errorf("distribution: got %q, allowed: %s, %s", j.Distribution, uniform, normal)
	}
	return params, nil
}

func newJitter(j model.Jitter) *jitter {
	switch j.Distribution {
	case model.Uniform:
		return &jitter{uniform, j.NS, j.Reorder, unlessZero(j.CorrelationNS)}
	case model.Normal:
		return &jitter{normal, j.NS, j.Reorder, unlessZero(j.CorrelationNS)}
	}
	return nil
}

// loss is in requests and results; null is none. A model's own ratios are given, all of them, and no others.
type loss struct {
	Model     string   `json:"model"`
	Ratio     *float64 `json:"ratio,omitempty"`
	GoodToBad *float64 `json:"good_to_bad_ratio,omitempty"`
	BadToGood *float64 `json:"bad_to_good_ratio,omitempty"`
	GoodLoss  *float64 `json:"good_loss_ratio,omitempty"`
	BadLoss   *float64 `json:"bad_loss_ratio,omitempty"`
}

func (l *loss) params() (params model.Loss, err error) {
	if l == nil {
		return params, nil
	}
	switch l.Model {
	case independent:
		params.Model = model.Independent
	case gilbertElliott:
		params.Model = model.GilbertElliott
	default:
		return params, fmt.Errorf("model: got %q, allowed: %s, %s", l.Model, independent, gilbertElliott)
	}
	for _, ratio := range [...]struct {
		field, model string
		given        *float64
		to           *float64
	}{
		{"ratio", independent, l.Ratio, &params.Ratio},
		{"good_to_bad_ratio", gilbertElliott, l.GoodToBad, &params.GoodToBad},
		{"bad_to_good_ratio", gilbertElliott, l.BadToGood, &params.BadToGood},
		{"good_loss_ratio", gilbertElliott, l.GoodLoss, &params.GoodLoss},
		{"bad_loss_ratio", gilbertElliott, l.BadLoss, &params.BadLoss},
	} {
		switch {
		case ratio.given != nil && ratio.model != l.Model:
			return params, fmt.Errorf("%s: the model %s has no such field", ratio.field, l.Model)
		case ratio.given == nil && ratio.model == l.Model:
			return params, fmt.Errorf("%s: the field is missing", ratio.field)
		case ratio.given != nil:
			*ratio.to = *ratio.given
		}
	}
	return params, nil
}

func newLoss(l model.Loss) *loss {
	switch l.Model {
	case model.Independent:
		return &loss{Model: independent, Ratio: &l.Ratio}
	case model.GilbertElliott:
		return &loss{Model: gilbertElliott, GoodToBad: &l.GoodToBad, BadToGood: &l.BadToGood, GoodLoss: &l.GoodLoss,
			BadLoss: &l.BadLoss}
	}
	return nil
}
