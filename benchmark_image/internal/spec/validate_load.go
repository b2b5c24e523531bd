package spec

import (
	"fmt"
	"slices"
	"strings"
)

// validateLoad checks how many requests there are and when they start.
func (s *Spec) validateLoad() *Problem {
	if s.Duration > 0 && s.Total > 0 {
		return &Problem{"duration", "--duration", s.Duration.Seconds(), "either a duration or a total"}
	}
	if s.Duration == 0 && (s.Total < 1 || s.Total > MaxTotal) {
		return &Problem{"total", "--total", s.Total, fmt.Sprintf("an integer in 1..%d", MaxTotal)}
	}
	if s.Rate != 0 && !(s.Rate >= MinRate && s.Rate <= MaxRate) {
		return &Problem{"rate", "--rate", s.Rate, fmt.Sprintf("0 (a closed loop) or %v..%v requests/s", MinRate, MaxRate)}
	}
	if s.Arrival != Constant && s.Arrival != Poisson {
		return &Problem{"arrival", "--arrival", s.Arrival, `"constant" or "poisson"`}
	}
	if s.Arrival != Constant && s.Rate == 0 && s.Steps.Kind != StepRate {
		return &Problem{"arrival", "--arrival", s.Arrival, "only together with a rate: a closed loop has no arrivals"}
	}
	if p := s.validateSteps(); p != nil {
		return p
	}
	return s.validateLength()
}

func (s *Spec) validateSteps() *Problem {
	if s.Steps.Kind == "" {
		return nil
	}
	const form = "rate=R1,R2,... or clients=N1,N2,...; "
	if err := s.Steps.check(); err != nil {
		return &Problem{"steps", "--steps", s.Steps.String(), form + err.Error()}
	}
	if s.Steps.Kind == StepRate && s.Rate != 0 {
		return &Problem{"steps", "--steps", s.Steps.String(), "steps of the rate not together with a rate"}
	}
	if s.Steps.Kind == StepClients && s.Clients != 1 {
		return &Problem{"steps", "--steps", s.Steps.String(), "steps of the clients not together with a number of clients"}
	}
	return nil
}

// validateLength bounds what a benchmark may take altogether.
func (s *Spec) validateLength() *Problem {
	const day = float64(MaxRunTimeout) / 1e9
	requests, seconds := 0.0, 0.0
	for _, step := range s.StepList() {
		switch {
		case s.Total > 0:
			requests += float64(s.Total)
			if step.Rate > 0 {
				seconds += float64(s.Total) / step.Rate
			}
		default:
			requests += step.Rate * s.Duration.Seconds()
			seconds += s.Duration.Seconds()
		}
	}
	field, flag, got := "total", "--total", any(s.Total)
	if s.Duration > 0 {
		field, flag, got = "duration", "--duration", s.Duration.Seconds()
	}
	if requests > MaxTotal {
		return &Problem{field, flag, got, fmt.Sprintf("at most %d requests in all steps together, these would be %.0f", MaxTotal, requests)}
	}
	if seconds > day {
		return &Problem{field, flag, got, fmt.Sprintf("at most %.0f seconds in all steps together, these would be %.0f", day, seconds)}
	}
	return nil
}

func (s *Spec) validateWarmup() *Problem {
	if s.WarmupRequests > 0 && s.WarmupDuration > 0 {
		return &Problem{"warmupDuration", "--warmup", s.WarmupDuration.Seconds(), "either a number of requests or a duration"}
	}
	rate := s.StepList()[0].Rate
	if requests := rate * s.WarmupDuration.Seconds(); requests > MaxTotal {
		return &Problem{"warmupDuration", "--warmup", s.WarmupDuration.Seconds(), fmt.Sprintf("at most %d requests", MaxTotal)}
	}
	if rate > 0 && float64(s.WarmupRequests)/rate > MaxRunTimeout.Seconds() {
		return &Problem{"warmupRequests", "--warmup", s.WarmupRequests, fmt.Sprintf("at most %v seconds", MaxRunTimeout.Seconds())}
	}
	return nil
}

func (s *Spec) validateTarget() *Problem {
	if s.TargetMember == "" {
		return nil
	}
	if s.TargetLeader {
		return &Problem{"targetMember", "--target-member", s.TargetMember, "either one member or the leader"}
	}
	if !slices.Contains(s.Endpoints, s.TargetMember) {
		return &Problem{"targetMember", "--target-member", s.TargetMember, "one of the endpoints " + clipped(strings.Join(s.Endpoints, ", "))}
	}
	return nil
}

// clipped bounds a text that a caller chose, in bytes.
func clipped(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func (s *Spec) validateKeyOrder() *Problem {
	if !slices.Contains([]string{"", Sequential, Shuffled, Uniform, Zipfian}, s.KeyOrder) {
		return &Problem{"keyOrder", "--key-order", s.KeyOrder, `"sequential", "shuffled", "uniform" or "zipfian"`}
	}
	if s.Sequential && s.KeyOrder != "" && s.KeyOrder != Sequential {
		return &Problem{"keyOrder", "--key-order", s.KeyOrder, "not together with sequential keys"}
	}
	if !(s.ZipfExponent > 0 && s.ZipfExponent <= MaxZipf) {
		return &Problem{"zipfExponent", "--zipf-exponent", s.ZipfExponent, fmt.Sprintf("more than 0, at most %d", MaxZipf)}
	}
	if s.ZipfExponent != DefaultZipfExponent && s.KeyOrder != Zipfian {
		return &Problem{"zipfExponent", "--zipf-exponent", s.ZipfExponent, "only together with the key order zipfian"}
	}
	drawn := s.KeyOrder == Uniform || s.KeyOrder == Zipfian || s.Operation != Put
	if s.KeySize > 0 && s.KeySpace == 0 && s.Duration > 0 && drawn {
		return &Problem{"keySpace", "--key-space-size", s.KeySpace, "a number of keys: a duration does not tell how many there are"}
	}
	return nil
}

func (s *Spec) validateValues() *Problem {
	if s.ValSize < 0 || s.ValSize > MaxValSize {
		return &Problem{"valSize", "--val-size", s.ValSize, fmt.Sprintf("0..%d bytes", MaxValSize)}
	}
	return nil
}

// validateReads checks what ranges and mixed loads have in common.
func (s *Spec) validateReads() *Problem {
	if s.Consistency != Linearizable && s.Consistency != Serializable {
		return &Problem{"consistency", "--consistency", s.Consistency, `"l" (linearizable) or "s" (serializable)`}
	}
	return s.validateValues()
}

func (s *Spec) validateMixed() *Problem {
	if !(s.PutRatio >= 0 && s.PutRatio <= 1) {
		return &Problem{"ratio", "--ratio", s.PutRatio, "0..1, the share of the puts"}
	}
	if p := s.validateReads(); p != nil {
		return p
	}
	if p := s.validateKeySpace(); p != nil {
		return p
	}
	return s.validateSpanKeys()
}
