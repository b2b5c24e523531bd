package control

import (
	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/fabric"
	"containernet-env/link_emulator/model"
	"containernet-env/link_emulator/refusal"
	"containernet-env/link_emulator/strictjson"
)

// readEnd reads {"port": name} or {"switch": name}.
func readEnd(request *strictjson.Object, field string) (end fabric.End) {
	request.Object(field, func(o *strictjson.Object) {
		if o.Has("port") == o.Has("switch") {
			o.Blame(refusal.New("", `allowed: either {"port": name} or {"switch": name}`))
			return
		}
		if o.Has("port") {
			end.Port = o.String("port", maxNameBytes)
		} else {
			end.Switch = o.String("switch", maxNameBytes)
		}
	})
	return end
}

// readNewDirection reads the parameters of a new direction; what is absent or null has its default.
func readNewDirection(request *strictjson.Object, field string) (params model.Params) {
	request.Object(field, func(o *strictjson.Object) {
		change := readChange(o)
		if change.DelayNS == nil {
			o.Refuse("delay_ns", "the field is missing")
			return
		}
		change.Apply(&params)
		if o.Err() == nil {
			o.Blame(params.Check())
		}
	})
	return params
}

// readChange reads the parameters that are present; null stands for unlimited, none, or the default.
func readChange(o *strictjson.Object) emulator.Change {
	change := emulator.Change{
		RateBPS:     optional(o, "rate_bps", func() int64 { return o.Int("rate_bps", model.MinRateBPS, model.MaxRateBPS) }),
		QueueFrames: optional(o, "queue_frames", func() int { return int(o.Int("queue_frames", 1, model.MaxQueueFrames)) }),
		QueueBytes:  optional(o, "queue_bytes", func() int64 { return o.Int("queue_bytes", 1, model.MaxQueueBytes) }),
		Jitter:      optional(o, "jitter", func() model.Jitter { return readJitter(o) }),
		Loss:        optional(o, "loss", func() model.Loss { return readLoss(o) }),
		Seed:        optional(o, "seed", func() uint64 { return uint64(o.Int("seed", 0, model.MaxSeed)) }),
	}
	if o.Has("delay_ns") { // it has no null
		delayNS := o.Int("delay_ns", 0, model.MaxDelayNS)
		change.DelayNS = &delayNS
	}
	return change
}

// optional is nil where a field is absent, the zero value where it is null, and else what read makes of it.
func optional[T any](o *strictjson.Object, field string, read func() T) *T {
	if !o.Has(field) {
		return nil
	}
	var value T
	if !o.Null(field) {
		value = read()
	}
	return &value
}

const (
	uniform        = "uniform"
	normal         = "normal"
	independent    = "independent"
	gilbertElliott = "gilbert_elliott"
)

// maxWordBytes is longer than any of the words above.
const maxWordBytes = 32

func readJitter(request *strictjson.Object) (jitter model.Jitter) {
	request.Object("jitter", func(o *strictjson.Object) {
		switch distribution := o.String("distribution", maxWordBytes); distribution {
		case uniform:
			jitter.Distribution = model.Uniform
		case normal:
			jitter.Distribution = model.Normal
		default:
			o.Refuse("distribution", "got %q, allowed: %s, %s", distribution, uniform, normal)
		}
		jitter.NS = o.Int("ns", 1, model.MaxDelayNS)
		if o.Has("reorder") {
			jitter.Reorder = o.Bool("reorder")
		}
	})
	return jitter
}

func readLoss(request *strictjson.Object) (loss model.Loss) {
	request.Object("loss", func(o *strictjson.Object) {
		switch kind := o.String("model", maxWordBytes); kind {
		case independent:
			loss.Model = model.Independent
			loss.Ratio = o.Float("ratio", 0, 1)
		case gilbertElliott:
			loss.Model = model.GilbertElliott
			loss.GoodToBad = o.Float("good_to_bad_ratio", 0, 1)
			loss.BadToGood = o.Float("bad_to_good_ratio", 0, 1)
			loss.GoodLoss = o.Float("good_loss_ratio", 0, 1)
			loss.BadLoss = o.Float("bad_loss_ratio", 0, 1)
		default:
			o.Refuse("model", "got %q, allowed: %s, %s", kind, independent, gilbertElliott)
		}
	})
	return loss
}

// jitterResult and lossResult show what readJitter and readLoss read.
type jitterResult struct {
	Distribution string `json:"distribution"`
	NS           int64  `json:"ns"`
	Reorder      bool   `json:"reorder"`
}

type lossResult struct {
	Model     string   `json:"model"`
	Ratio     *float64 `json:"ratio,omitempty"`
	GoodToBad *float64 `json:"good_to_bad_ratio,omitempty"`
	BadToGood *float64 `json:"bad_to_good_ratio,omitempty"`
	GoodLoss  *float64 `json:"good_loss_ratio,omitempty"`
	BadLoss   *float64 `json:"bad_loss_ratio,omitempty"`
}

func newJitterResult(j model.Jitter) *jitterResult {
	switch j.Distribution {
	case model.Uniform:
		return &jitterResult{uniform, j.NS, j.Reorder}
	case model.Normal:
		return &jitterResult{normal, j.NS, j.Reorder}
	}
	return nil
}

func newLossResult(l model.Loss) *lossResult {
	switch l.Model {
	case model.Independent:
		return &lossResult{Model: independent, Ratio: &l.Ratio}
	case model.GilbertElliott:
		return &lossResult{Model: gilbertElliott, GoodToBad: &l.GoodToBad, BadToGood: &l.BadToGood, GoodLoss: &l.GoodLoss, BadLoss: &l.BadLoss}
	}
	return nil
}
