package model

import (
	"encoding/json"
	"math"
)

// Delays sums up what accepted frames take from the serializer to the far end, as it was drawn when they were offered:
// the delay, its jitter, and what a frame waits for those ahead of it after a change.
type Delays struct {
	Count        uint64
	originNS     int64 // close to the mean, so that the squares lose no digits
	sum, squares float64
}

func (d *Delays) add(delayNS int64) {
	if d.Count == 0 {
		d.originNS = delayNS
	}
	d.Count++
	difference := float64(delayNS - d.originNS)
	d.sum += difference
	d.squares += difference * difference
}

// MeanNS is the mean; 0 of none.
func (d *Delays) MeanNS() int64 {
	if d.Count == 0 {
		return 0
	}
	return d.originNS + int64(math.Round(d.sum/float64(d.Count)))
}

// DeviationNS is the standard deviation; 0 of none.
func (d *Delays) DeviationNS() int64 {
	if d.Count == 0 {
		return 0
	}
	n := float64(d.Count)
	return int64(math.Round(math.Sqrt(max(0, d.squares/n-d.sum/n*d.sum/n))))
}

// MarshalJSON implements json.Marshaler.
func (d Delays) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count       uint64 `json:"count"`
		MeanNS      int64  `json:"mean_ns"`
		DeviationNS int64  `json:"deviation_ns"`
	}{d.Count, d.MeanNS(), d.DeviationNS()})
}
