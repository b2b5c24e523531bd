package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// What changes from one step to the next.
const (
	StepRate    = "rate"
	StepClients = "clients"
)

// Steps is a list of loads that one benchmark runs one after the other. The zero value is a benchmark without steps.
type Steps struct {
	Kind   string // StepRate or StepClients
	Values []float64
}

// ParseSteps reads the form rate=100,200.5 or clients=1,10,100; the empty text is no steps.
func ParseSteps(text string) (Steps, error) {
	if text == "" {
		return Steps{}, nil
	}
	kind, list, _ := strings.Cut(text, "=")
	s := Steps{Kind: kind}
	if kind != StepRate && kind != StepClients || list == "" {
		return Steps{}, fmt.Errorf("%.100q is neither rate=R1,R2,... nor clients=N1,N2,...", text)
	}
	if n := strings.Count(list, ",") + 1; n > MaxSteps {
		return Steps{}, fmt.Errorf("%d steps, at most %d are allowed", n, MaxSteps)
	}
	for piece := range strings.SplitSeq(list, ",") {
		value, err := strconv.ParseFloat(piece, 64)
		if err != nil {
			return Steps{}, fmt.Errorf("%.100q is not a number", piece)
		}
		s.Values = append(s.Values, value)
	}
	return s, s.check()
}

// String is the inverse of ParseSteps.
func (s Steps) String() string {
	if s.Kind == "" {
		return ""
	}
	texts := make([]string, len(s.Values))
	for i, value := range s.Values {
		texts[i] = strconv.FormatFloat(value, 'f', -1, 64)
	}
	return s.Kind + "=" + strings.Join(texts, ",")
}

func (s Steps) check() error {
	for _, value := range s.Values {
		if s.Kind == StepRate && !(value >= MinRate && value <= MaxRate) {
			return fmt.Errorf("a rate of %v requests/s, allowed is %v..%v", value, MinRate, MaxRate)
		}
		if s.Kind == StepClients && (!(value >= 1 && value <= MaxClients) || value != float64(int(value))) {
			return fmt.Errorf("%v clients, allowed is an integer in 1..%d", value, MaxClients)
		}
	}
	return nil
}

// Step is the load of one step.
type Step struct {
	Clients int
	Rate    float64 // 0: a closed loop
}

// StepList gives the loads of the benchmark in order; without steps it is the one that was asked for.
func (s *Spec) StepList() []Step {
	if s.Steps.Kind == "" {
		return []Step{{s.Clients, s.Rate}}
	}
	steps := make([]Step, len(s.Steps.Values))
	for i, value := range s.Steps.Values {
		if steps[i] = (Step{s.Clients, value}); s.Steps.Kind == StepClients {
			steps[i] = Step{int(value), s.Rate}
		}
	}
	return steps
}
