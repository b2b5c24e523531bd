package spec

import "strconv"

// Args gives the command line of benchmark-client that parses to s again. s must be valid.
func (s *Spec) Args() []string {
	args := []string{string(s.Operation), "--endpoints=" + JoinEndpoints(s.Endpoints)}
	number := func(flag string, n int64) { args = append(args, "--"+flag+"="+strconv.FormatInt(n, 10)) }
	flag := func(name string, set bool) {
		if set {
			args = append(args, "--"+name)
		}
	}
	decimal := func(flag string, x float64) {
		args = append(args, "--"+flag+"="+strconv.FormatFloat(x, 'g', -1, 64))
	}
	text := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	number("conns", int64(s.Conns))
	number("clients", int64(s.Clients))
	if s.Duration > 0 {
		text("duration", s.Duration.String())
	} else {
		number("total", int64(s.Total))
	}
	decimal("rate", s.Rate)
	text("arrival", s.Arrival)
	text("steps", s.Steps.String())
	text("warmup", s.warmup())
	text("target-member", s.TargetMember)
	text("key-order", s.KeyOrder)
	decimal("zipf-exponent", s.ZipfExponent)
	number("seed", s.Seed)
	args = append(args,
		"--request-timeout="+s.RequestTimeout.String(),
		"--dial-timeout="+s.DialTimeout.String(),
		"--run-timeout="+s.RunTimeout.String())
	flag("target-leader", s.TargetLeader)
	if s.KeySize > 0 {
		number("key-size", int64(s.KeySize))
		number("key-space-size", int64(s.KeySpace))
	}
	number("val-size", int64(s.ValSize))
	if s.Operation != Range {
		flag("sequential-keys", s.Sequential)
		args = append(args, "--prefix="+s.Prefix)
	}
	if !s.Operation.Reads() {
		return args
	}
	args = append(args, "--consistency="+s.Consistency)
	flag("require-found", s.RequireFound)
	flag("verify", s.Verify)
	if s.SpanKeys > 0 {
		number("span-keys", int64(s.SpanKeys))
	}
	if s.Operation == Mixed {
		decimal("ratio", s.PutRatio)
		return args
	}
	number("limit", s.Limit)
	flag("count-only", s.CountOnly)
	flag("keys-only", s.KeysOnly)
	if s.KeySize > 0 {
		args = append(args, "--key-prefix="+s.Prefix)
	}
	if !s.Named() {
		return args
	}
	flag("from-key", s.FromKey)
	flag("prefix", s.KeyIsPrefix)
	args = append(args, "--", s.Key)
	if s.End != "" {
		args = append(args, s.End)
	}
	return args
}

// warmup gives the flag of that name.
func (s *Spec) warmup() string {
	switch {
	case s.WarmupDuration > 0:
		return s.WarmupDuration.String()
	case s.WarmupRequests > 0:
		return strconv.Itoa(s.WarmupRequests)
	}
	return ""
}
