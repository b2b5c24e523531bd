package client

import (
	"fmt"
	"strconv"
	"time"

	"containernet-env/benchmark_image/internal/spec"
)

type endpointsValue struct{ endpoints *[]string }

func (e *endpointsValue) String() string { return spec.JoinEndpoints(*e.endpoints) }
func (e *endpointsValue) Type() string   { return "list" }
func (e *endpointsValue) Set(text string) error {
	endpoints, err := spec.ParseEndpoints(text)
	if err != nil {
		return err
	}
	*e.endpoints = endpoints
	return nil
}

type stepsValue struct{ steps *spec.Steps }

func (s *stepsValue) String() string { return s.steps.String() }
func (s *stepsValue) Type() string   { return "list" }
func (s *stepsValue) Set(text string) error {
	steps, err := spec.ParseSteps(text)
	if err != nil {
		return err
	}
	*s.steps = steps
	return nil
}

// warmupValue is a number of requests, or a duration with its unit.
type warmupValue struct{ s *spec.Spec }

func (w *warmupValue) String() string { return "0" }
func (w *warmupValue) Type() string   { return "requests or duration" }
func (w *warmupValue) Set(text string) error {
	if n, err := strconv.Atoi(text); err == nil {
		w.s.WarmupRequests, w.s.WarmupDuration = n, 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%.100q is neither a number of requests nor a duration such as 2s", text)
	}
	w.s.WarmupRequests, w.s.WarmupDuration = 0, d
	return nil
}
