package spec

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/store/etcd"
)

// Validate returns the first problem of s, nil if there is none: first what each parameter allows by itself, then the
// rules about several of them.
func (s *Spec) Validate() *Problem {
	if err := checkEndpoints(s.Endpoints); err != nil {
		return s.problem(paramEndpoints, "a comma-separated list of host:port; "+err.Error())
	}
	for _, p := range Parameters {
		if p.Of(s.Operation) {
			if problem := p.check(s); problem != nil {
				return problem
			}
		}
	}
	rules := []func() *Problem{s.validateStore, s.validateLoad, s.validateSecurity, s.validateKeyOrder, s.validateKeySpace}
	if s.Operation == Range {
		rules[len(rules)-1] = s.validateRange
	}
	rules = append(rules, s.validateHistory)
	for _, rule := range rules {
		if problem := rule(); problem != nil {
			return problem
		}
	}
	return nil
}

// validateLoad checks how many requests there are, when they start, how long they may take altogether, and where they
// go.
func (s *Spec) validateLoad() *Problem {
	most, seconds := MaxRunTimeout.Seconds(), float64(s.Total)/s.Rate
	switch {
	case s.Duration > 0 && s.Total > 0:
		return s.problem(paramDuration, "either a duration or a total")
	case s.Duration == 0 && s.Total == 0:
		return s.problem(paramTotal, paramTotal.Allowed())
	case s.Arrival != Constant && s.Rate == 0:
		return s.problem(paramArrival, "only together with a rate: a closed loop has no arrivals")
	case s.Rate > 0 && seconds > most:
		return s.problem(paramTotal, fmt.Sprintf("at most %.0f seconds, these would be %.0f", most, seconds))
	case s.WarmupRequests > 0 && s.WarmupDuration > 0:
		return s.problem(paramWarmupDuration, "either a number of requests or a duration")
	case s.Rate > 0 && float64(s.WarmupRequests)/s.Rate > most:
		return s.problem(paramWarmupRequests, fmt.Sprintf("at most %v seconds", most))
	case s.Leaderless && s.TargetLeader:
		return s.problem(paramLeaderless, "either no leader is looked for, or the leader is the target")
	case s.TargetMember != "" && s.TargetLeader:
		return s.problem(paramTargetMember, "either one member or the leader")
	case s.TargetMember != "" && !slices.Contains(s.Endpoints, s.TargetMember):
		return s.problem(paramTargetMember, "one of the endpoints "+Clip(strings.Join(s.Endpoints, ", ")))
	}
	return nil
}

// validateKeyOrder checks which generated keys there are, and their order.
func (s *Spec) validateKeyOrder() *Problem {
	drawn := s.KeyOrder == Uniform || s.KeyOrder == Zipfian || s.Operation != Put
	switch {
	case s.Sequential && s.KeyOrder != "" && s.KeyOrder != Sequential:
		return s.problem(paramKeyOrder, "not together with sequential keys")
	case s.ZipfExponent != DefaultZipfExponent && s.KeyOrder != Zipfian:
		return s.problem(paramZipfExponent, "only together with the key order zipfian")
	case s.KeySize > 0 && s.KeySpace == 0 && s.Duration > 0 && drawn:
		return s.problem(paramKeySpace, "a number of keys: a duration does not tell how many there are")
	}
	return nil
}

// validateKeySpace checks that keys of KeySize bytes can tell all keys of the key space apart.
func (s *Spec) validateKeySpace() *Problem {
	if s.KeySize == 0 {
		return s.problem(paramKeySize, paramKeySize.Allowed())
	}
	if room := keys.Room(s.KeySize); s.DistinctKeys() > room {
		return s.problem(paramKeySize, fmt.Sprintf("at least %d bytes: %d bytes make %d different keys and %d are needed",
			keys.MinSize(s.DistinctKeys()), s.KeySize, room, s.DistinctKeys()))
	}
	return nil
}

func (s *Spec) validateRange() *Problem {
	switch {
	case s.CountOnly && s.KeysOnly:
		return s.problem(paramKeysOnly, "not together with a count only")
	case s.ValSize != Default(Range).ValSize && !s.Verify:
		return s.problem(paramValSize, "only together with verify: a read does not choose the size of values")
	case s.KeySize > 0 && !s.Named():
		return s.validateKeySpace()
	}
	if p := s.validateNamed(); p != nil || !s.Verify {
		return p
	}
	return s.validateKnown()
}

// validateNamed checks a range that names what it reads. Of the parameters of generated keys, those that define which
// keys were written are allowed with Verify.
func (s *Spec) validateNamed() *Problem {
	switch {
	case s.KeySize > 0 && !s.Verify:
		return s.problem(paramKeySize,
			"either a key to read, or the size of generated keys; both only together with verify, to tell what was written")
	case s.KeySize == 0 && s.Prefix != "":
		return s.problem(paramKeyPrefix, "only together with a key size")
	case s.KeySize == 0 && s.Verify:
		return s.problem(paramVerify, "only together with a key size: what was written is known of generated keys")
	case s.KeySize == 0 && s.KeySpace > 0:
		return s.problem(paramKeySpace, "only together with a key size")
	case s.KeyOrder != "":
		return s.problem(paramKeyOrder, "only together with a key size, and without a key")
	case s.SpanKeys != 0:
		return s.problem(paramSpanKeys, "only together with a key size, and without a key")
	case s.Key == "" && !s.KeyIsPrefix:
		return s.problem(paramKey, "a key of at least 1 byte, or a key size and a key space")
	case s.End != "" && s.KeyIsPrefix:
		return s.problem(paramEndRange, "either the end of a span or a prefix")
	case s.End != "" && s.End != AllKeys && s.End <= s.Key:
		return s.problem(paramEndRange, fmt.Sprintf(
			"a key that sorts after the key %.200q: the end of a range is not part of it", s.Key))
	}
	return nil
}

// validateKnown checks that it is known what a named key or span must hold.
func (s *Spec) validateKnown() *Problem {
	if s.KeySpace == 0 {
		return s.problem(paramKeySpace, "how many keys were written, where a key is read and verified")
	}
	if p := s.validateKeySpace(); p != nil {
		return p
	}
	if !s.withinPrefix() {
		return s.problem(paramVerify, fmt.Sprintf(
			"only of keys that all start with the prefix %.200q of those that were written: "+
				"what others may have written is not known", s.Prefix))
	}
	if first, last := s.Known(); first == last {
		return s.problem(paramKey, fmt.Sprintf("at least one of the keys %.200q to %.200q, which were written",
			keys.Append([]byte(s.Prefix), 0, s.KeySize), keys.Append([]byte(s.Prefix), uint64(s.KeySpace)-1, s.KeySize)))
	}
	return nil
}

// validateHistory checks that values have room for the name of their writer where reads or a history depend on it, and
// that each operation of a history is about one generated key.
func (s *Spec) validateHistory() *Problem {
	small := s.Operation != Range && s.ValSize < keys.VersionSize
	const reason = "at least %d bytes with %s: smaller values cannot be unique, as they have no room for the name of " +
		"their writer"
	switch {
	case small && s.History:
		return s.problem(paramValSize, fmt.Sprintf(reason, keys.VersionSize, "a history"))
	case small && s.Operation == Mixed && s.Verify:
		return s.problem(paramValSize, fmt.Sprintf(reason, keys.VersionSize, "verify"))
	case !s.History:
		return nil
	case s.Operation.Reads() && !s.Verify:
		return s.problem(paramHistory, "only together with verify, which tells what reads have found")
	case s.Named() || s.SpanKeys > 0 || s.CountOnly || s.KeysOnly:
		return s.problem(paramHistory, "only with reads of the values of single generated keys")
	}
	return nil
}

// ParseEndpoints splits a comma-separated list of host:port, in order. It refuses what could only be a
// mistake: an empty list or entry, a scheme, a port outside 1..65535, an address like 10.0.0.999, the same
// endpoint twice.
func ParseEndpoints(text string) ([]string, error) {
	if text == "" {
		return nil, fmt.Errorf("the list is empty")
	}
	endpoints := strings.Split(text, ",")
	if err := checkEndpoints(endpoints); err != nil {
		return nil, err
	}
	return endpoints, nil
}

func checkEndpoints(endpoints []string) error {
	if len(endpoints) == 0 {
		return fmt.Errorf("the list is empty")
	}
	if len(endpoints) > MaxEndpoints {
		return fmt.Errorf("%d endpoints, at most %d are allowed", len(endpoints), MaxEndpoints)
	}
	seen := make(map[string]bool, len(endpoints))
	for _, endpoint := range endpoints {
		if err := checkEndpoint(endpoint); err != nil {
			return err
		}
		if seen[endpoint] {
			return fmt.Errorf("%.100q stands in the list twice", endpoint)
		}
		seen[endpoint] = true
	}
	return nil
}

func checkEndpoint(endpoint string) error {
	if strings.Contains(endpoint, "://") {
		return fmt.Errorf("%.100q has a scheme: endpoints are written host:port, and a CA asks for TLS", endpoint)
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fmt.Errorf("%.100q is not host:port", endpoint)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || port[0] == '+' || port[0] == '0' {
		return fmt.Errorf("%.100q has the port %.100q, allowed is 1..65535", endpoint, port)
	}
	if strings.Contains(host, ":") || strings.Trim(host, "0123456789.") == "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return fmt.Errorf("%.100q does not start with a valid IP address", endpoint)
		}
		return nil
	}
	return checkHostName(endpoint, host)
}

// checkHostName follows RFC 1123 section 2.1, with the underscore that container names may hold.
func checkHostName(endpoint, host string) error {
	if len(host) > 253 {
		return fmt.Errorf("%.100q has a host name of %d characters, at most 253 are allowed", endpoint, len(host))
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%.100q does not start with a valid host name", endpoint)
		}
		for _, c := range label {
			isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !isLetter && (c < '0' || c > '9') && c != '-' && c != '_' {
				return fmt.Errorf("%.100q does not start with a valid host name", endpoint)
			}
		}
	}
	return nil
}

// PasswordVariable is the environment variable with the user's password, where no file has it. It is in no parameter,
// so that it is on no command line, and in no body, result or log.
const PasswordVariable = "BENCHMARK_PASSWORD"

// MaxSecret bounds a file with certificates, a key, a password or a token, in bytes.
const MaxSecret = 1 << 20

// WithTLS is the path of the program that carries loads over TLS, by that of benchmark-client: it is beside it.
func WithTLS(client string) string { return client + "-tls" }

// Secured tells whether connections are secured with TLS, which only the program with TLS can do.
func (s *Spec) Secured() bool { return s.CAFile != "" }

// fileParameters are those that name files, in order.
var fileParameters = []*Parameter{paramCAFile, paramCertFile, paramKeyFile, paramPasswordFile, paramTokenFile}

func (s *Spec) validateSecurity() *Problem {
	switch {
	case s.CertFile != "" && s.CAFile == "":
		return s.problem(paramCertFile, "only together with a CA: there is no TLS without one")
	case s.CertFile != "" && s.KeyFile == "":
		return s.problem(paramCertFile, "only together with its private key")
	case s.KeyFile != "" && s.CertFile == "":
		return s.problem(paramKeyFile, "only together with its certificate")
	case s.PasswordFile != "" && s.User == "":
		return s.problem(paramPasswordFile, "only together with a user")
	}
	if name, password, found := strings.Cut(s.User, ":"); found && password != "" {
		// The rest is most likely a password: it is not repeated.
		hidden := *s
		hidden.User = name + ":..."
		return hidden.problem(paramUser,
			"a name without a colon: the password is in a file, or in the environment variable "+PasswordVariable)
	} else if found {
		return s.problem(paramUser, paramUser.Allowed())
	}
	return nil
}

// Locate puts the files that a caller from elsewhere has named into a folder. It refuses names that lead out of it, and
// all of them if there is no folder: callers must not choose which files are read.
func (s *Spec) Locate(folder string) *Problem {
	for _, p := range fileParameters {
		name := p.at(s).(*string)
		switch {
		case *name == "":
		case folder == "":
			return s.problem(p, "no files: the server was started without --credentials")
		case *name != filepath.Base(*name) || *name == "." || *name == "..":
			return s.problem(p, "the name of a file in the server's folder --credentials, without a slash")
		default:
			*name = filepath.Join(folder, *name)
		}
	}
	return nil
}

// ReadSecret gives the content of a file that a Spec names: certificates, a key or a password. It refuses those of more
// than MaxSecret bytes.
func ReadSecret(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = file.Close() // it was only read
	}()
	content, err := io.ReadAll(io.LimitReader(file, MaxSecret+1))
	if err == nil && len(content) > MaxSecret {
		err = fmt.Errorf("%s is larger than %d bytes", strings.ToValidUTF8(name, "?"), MaxSecret)
	}
	return content, err
}

// user is who a load of etcd logs in as, nil: there is none. The password is the first line of the file that s names,
// or what the environment has.
func (s *Spec) user() (*etcd.User, error) {
	if s.User == "" {
		return nil, nil
	}
	password := os.Getenv(PasswordVariable)
	if s.PasswordFile != "" {
		var err error
		if password, err = firstLine(s.PasswordFile); err != nil {
			return nil, fmt.Errorf("read the password of %q: %w", s.User, err)
		}
	}
	if password == "" {
		return nil, fmt.Errorf("log in as %q: there is neither a password file nor the environment variable %s", s.User,
			PasswordVariable)
	}
	return &etcd.User{Name: s.User, Password: password}, nil
}

// token is the first line of the file that s names; empty: it names none.
func (s *Spec) token() (string, error) {
	if s.TokenFile == "" {
		return "", nil
	}
	found, err := firstLine(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	for _, c := range []byte(found) {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("read the token: the first line of %s has more than visible ASCII characters", s.TokenFile)
		}
	}
	return found, nil
}

// firstLine is that of a file with a secret; an empty one is an error.
func firstLine(path string) (string, error) {
	content, err := ReadSecret(path)
	if err != nil {
		return "", err
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("the first line of %s is empty", path)
	}
	return string(line), nil
}
